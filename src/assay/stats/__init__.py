"""Statistics: a claim is a region, evidence is an interval, the verdict is their relation.

Importing this package imports neither SciPy nor NumPy; they are loaded by the first comparison.
"""

from assay.stats.comparisons import better, non_inferior, parity, parity_from_summary, reproduces
from assay.stats.decision import Decision, all_hold, holm, holm_decisions, relation, score
from assay.stats.evidence import enforce, evidence_level
from assay.stats.intervals import Summary, binomial_interval, bootstrap_interval, iqm, mean_interval, summarise
from assay.stats.limits import constrained, numeric_match, reduction
from assay.stats.points import first_look, headline_score
from assay.stats.power import LookPlan, minimal_margin, planned_looks, power, seeds_needed, unexcluded_collapse_rate
from assay.stats.rates import above_chance, solves
from assay.stats.selftest import sensitivity, specificity

__all__ = [
    "Decision",
    "LookPlan",
    "Summary",
    "above_chance",
    "all_hold",
    "better",
    "binomial_interval",
    "bootstrap_interval",
    "constrained",
    "enforce",
    "evidence_level",
    "first_look",
    "headline_score",
    "holm",
    "holm_decisions",
    "iqm",
    "mean_interval",
    "minimal_margin",
    "non_inferior",
    "numeric_match",
    "parity",
    "parity_from_summary",
    "planned_looks",
    "power",
    "reduction",
    "relation",
    "reproduces",
    "score",
    "seeds_needed",
    "sensitivity",
    "solves",
    "specificity",
    "summarise",
    "unexcluded_collapse_rate",
]
