"""The published table without training anything: its verdicts from the records that come with the package."""

from __future__ import annotations

from pathlib import Path

from assay.errors import expected
from assay.results import Run, Table
from assay.studies.reproduce.compare import by_arm
from assay.studies.reproduce.page import ORDER, read_records
from assay.studies.reproduce.published import PUBLISHED_VERDICTS
from assay.studies.reproduce.report import report
from assay.studies.reproduce.sections import Arms, depth_utility, published_verdicts

SHIPPED = Path(__file__).parent / "fa-protocol"
CHECKOUT = Path(__file__).parents[4] / "docs" / "results" / "data" / "fa-protocol"
"""Where the records are in a wheel, and in a checkout, from which the wheel takes them."""


def recorded(folder: str | Path | None = None) -> Run:
    """The run of the recorded trainings: every published figure beside ours, and the verdicts of the protocol first."""
    place = Path(folder) if folder is not None else next((p for p in (SHIPPED, CHECKOUT) if p.is_dir()), SHIPPED)
    records = read_records(place)
    if not records:
        raise expected("a folder of records (the `records` folder of a run)", given=str(place))
    command = "assay reproduce fa-protocol recorded" + (f" --records {folder}" if folder is not None else "")
    run = report(records, [], command=command, seconds=0.0)
    arms = by_arm(record for record in records if record["setting"]["arch"] == "resmlp")
    return run.model_copy(update={"tables": (verdicts(arms), *run.tables)})


def _told(verdict: str, fired: str) -> str:
    return verdict if fired == "nothing" else f"{verdict}({fired.replace(', ', '+')})"


def verdicts(arms: Arms) -> Table:
    """One row per arm: what the source concludes, what its own rule says of our trainings, what intervals say."""
    rows = []
    for arm in ORDER:
        if arm == "frozen" or not arms.get(arm) or not arms.get("frozen"):
            continue
        ours = [verdict for verdict, _ in published_verdicts(arms, arm).values()]
        utility = depth_utility(arms, arm)
        gap = utility.gap.value if utility.gap is not None else None
        source = PUBLISHED_VERDICTS.get(arm)
        rows.append((arm, _told(*source) if source else "not published", ", ".join(ours), utility.verdict.value,
                     None if gap is None else round(100 * gap, 1)))
    return Table(
        title="Verdicts of the protocol", rows=tuple(rows),
        columns=("arm", "source", "ours by its rule, by seed", "does depth pay", "gain over frozen [pp]"),
        note="Recorded trainings; assay reproduce fa-protocol all trains them again.",
    )
