"""Planted faults and their healthy twins: what the framework must tell apart before its verdicts mean anything."""

from assay.tracks.honesty.faults.belonging import BELONGING
from assay.tracks.honesty.faults.evidence import EVIDENCE
from assay.tracks.honesty.faults.planted import Planted, PlantedJudgement
from assay.tracks.honesty.faults.statistics import STATISTICS
from assay.tracks.honesty.faults.storage import STORAGE
from assay.tracks.honesty.faults.verdicts import VERDICTS

PLANTED: tuple[Planted, ...] = (*STATISTICS, *VERDICTS, *EVIDENCE, *STORAGE, *BELONGING)
"""Every planted pair, in the order it is reported."""

__all__ = ["PLANTED", "Planted", "PlantedJudgement"]
