"""Arms of a comparison: a rule on a model with the settings chosen for a task, by name.

``assay bench`` and ``assay tune`` share this table, so that what was tuned is what is run. No torch is imported before
an arm is built.
"""

from assay.studies.arms.settings import ArmSettings, Chosen, chosen, load_chosen, read_settings
from assay.studies.arms.table import MODELS, Arm, arms, find_arm

__all__ = ["MODELS", "Arm", "ArmSettings", "Chosen", "arms", "chosen", "find_arm", "load_chosen", "read_settings"]
