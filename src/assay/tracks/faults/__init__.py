"""Planted faults and their healthy twins: what the framework must tell apart before its verdicts mean anything."""

from assay.tracks.faults.belonging import BELONGING
from assay.tracks.faults.evidence import EVIDENCE
from assay.tracks.faults.planted import Judgement, Planted
from assay.tracks.faults.statistics import STATISTICS
from assay.tracks.faults.storage import STORAGE
from assay.tracks.faults.verdicts import VERDICTS

PLANTED: tuple[Planted, ...] = (*STATISTICS, *VERDICTS, *EVIDENCE, *STORAGE, *BELONGING)
"""Every planted pair, in the order it is reported."""

__all__ = ["PLANTED", "Judgement", "Planted"]
