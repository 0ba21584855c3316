"""What a study knows of earlier looks at its claims, and what that makes of a verdict.

The plan of every claim is written to the ledger of the store before the first cell runs; its verdict when it is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assay import stats
from assay.engine.store.looks import Ledger, RecordedLook
from assay.protocols import Outcomes
from assay.results import Control, Evidence, Finding, Verdict


@dataclass(frozen=True)
class Past:
    """The looks at a claim before this one, and the plan of this one; ``Past()`` is a claim nobody keeps account of."""

    claim: str = ""
    entry: RecordedLook | None = None
    earlier: tuple[RecordedLook, ...] = ()

    @staticmethod
    def of(ledger: Ledger, claim: str, seeds: Sequence[int], *, code: str) -> Past:
        """The past of a claim, with this look's plan written down."""
        earlier = tuple(ledger.of(claim))
        return Past(claim, ledger.plan(claim, seeds, code=code), earlier)

    @staticmethod
    def again(ledger: Ledger, claim: str, seeds: Sequence[int], *, code: str) -> Past:
        """The past as it was when these seeds were looked at, read from the ledger; nothing is written."""
        looks = ledger.of(claim)
        same = [look for look in looks if set(look.seeds) == set(seeds)]
        mine = next((look for look in same if look.code == code), same[0] if same else None)
        if mine is None:
            return Past(claim)
        return Past(claim, mine, tuple(looks[: looks.index(mine) + 1]))

    def ran(self, outcomes: Outcomes, *, arms: Sequence[str], controls: tuple[Control, ...]) -> stats.Ran:
        """What the verdict rests on; ``arms`` are the control arms."""
        records, inputs = stats.finished(outcomes, controls=arms), stats.inputs_told(outcomes, controls=arms)
        if self.entry is None:
            return stats.Ran(records, controls=controls, inputs=inputs)
        looks = tuple(_look(entry) for entry in self.earlier)
        return stats.Ran(
            records,
            controls=controls,
            planned=self._planned(outcomes),
            look=stats.spending(self.entry.seeds, looks, code=self.entry.code),
            earlier=looks,
            code=self.entry.code,
            machine=self.entry.machine,
            inputs=inputs,
        )

    def saw(self, ledger: Ledger, finding: Finding, *, complete: bool) -> None:
        """Write the verdict down. An ERROR of cells has shown nothing yet and is tried again; one of the decision, with
        every cell there (``complete``), came after all was seen."""
        if self.entry is not None and (complete or finding.verdict is not Verdict.ERROR):
            verdict, evidence = str(finding.verdict), str(finding.evidence or "")
            ledger.saw(self.claim, self.entry, verdict=verdict, evidence=evidence, asked=stats.asked(finding))

    def _planned(self, outcomes: Outcomes) -> bool:
        """Whether every cell that was there already belongs to seeds that an earlier look had planned."""
        known = {seed for entry in self.earlier for seed in entry.seeds}
        return all(not outcome.cached or outcome.trial.seed in known for outcome in outcomes)


NO_PAST = Past()


def _look(entry: RecordedLook) -> stats.Look:
    verdict = Verdict(entry.verdict) if entry.verdict else None
    evidence = Evidence(entry.evidence) if entry.evidence else None
    return stats.Look(entry.seeds, entry.at, entry.code, entry.machine, verdict, evidence, entry.asked)
