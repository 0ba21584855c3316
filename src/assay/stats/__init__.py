"""Statistics: a claim is a region, evidence is an interval, the verdict is their relation.

Importing this package imports neither SciPy nor NumPy; they are loaded by the first comparison.
"""

from assay.stats.answers import Answers, pack, pack_items, paired_answers, recorded_answers, unpack, unpack_items
from assay.stats.comparisons import better, non_inferior, parity, parity_from_summary, reproduces
from assay.stats.controls import control_arms, judged_controls
from assay.stats.decision import Decision, all_hold, holm, holm_decisions, relation, score
from assay.stats.evidence import enforce, evidence_level
from assay.stats.guards import asked
from assay.stats.intervals import Summary, binomial_interval, bootstrap_interval, iqm, levels, mean_interval, summarise
from assay.stats.limits import constrained, numeric_match, reduction
from assay.stats.looks import Look, Spending, spending
from assay.stats.observed import Ran, finished, inputs_told
from assay.stats.points import first_look, headline_score
from assay.stats.power import LookPlan, minimal_margin, planned_looks, power, seeds_needed, unexcluded_collapse_rate
from assay.stats.rates import above_chance, solves
from assay.stats.selftest import sensitivity, specificity

__all__ = [
    "Answers",
    "Decision",
    "Look",
    "LookPlan",
    "Ran",
    "Spending",
    "Summary",
    "above_chance",
    "all_hold",
    "asked",
    "better",
    "binomial_interval",
    "bootstrap_interval",
    "constrained",
    "control_arms",
    "enforce",
    "evidence_level",
    "finished",
    "first_look",
    "headline_score",
    "holm",
    "holm_decisions",
    "inputs_told",
    "iqm",
    "judged_controls",
    "levels",
    "mean_interval",
    "minimal_margin",
    "non_inferior",
    "numeric_match",
    "pack",
    "pack_items",
    "paired_answers",
    "parity",
    "parity_from_summary",
    "planned_looks",
    "power",
    "recorded_answers",
    "reduction",
    "relation",
    "reproduces",
    "score",
    "seeds_needed",
    "sensitivity",
    "solves",
    "specificity",
    "spending",
    "summarise",
    "unexcluded_collapse_rate",
    "unpack",
    "unpack_items",
]
