"""What an audit says: of each finding, of the files of the run, and of the cells computed again."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from assay import stats
from assay.engine import Store
from assay.reports.save import FOLDER, RENDERERS
from assay.reports.truth import contradictions
from assay.results import Check, Figure, Finding, Measurement, Region, Run, Table, Verdict
from assay.studies.audit_run.evidence import Piece, TracedFinding, differences, records_by_arm
from assay.studies.audit_run.rerun import ELSEWHERE, Recomputed

CHECKS = (
    "cells are there", "signed by somebody known", "decided again", "controls were run", "seeds were run",
    "planned before", "page agrees",
)  # fmt: skip
THERE, SIGNED, AGAIN, CONTROLS, SEEDS, PLANNED, PAGE = CHECKS


def judge_finding(traced: TracedFinding, store: Store | None, compared: Sequence[Recomputed] = ()) -> Finding:
    """Whether a finding of the run is what its cells say; every difference is a row of its table."""
    page = traced.finding
    if traced.obstacle or store is None:
        checks = [Check(name=THERE, verdict=Verdict.INCONCLUSIVE, reason=traced.obstacle), _page(page)]
        return _finding(page, checks, ())
    missing = traced.missing
    table: tuple[Table, ...] = ()
    if len(missing) == len(traced.pieces):
        again = Check(name=AGAIN, verdict=Verdict.INCONCLUSIVE, reason="there is nothing to decide from")
    else:
        found = differences(page, traced.again())
        again = Check(name=AGAIN, verdict=Verdict.PASS, reason="the same verdict and the same numbers")
        if found:
            first, more = found[0], f", and {len(found) - 1} more" if len(found) > 1 else ""
            reason = f"{first.what}: the page says {first.page}, the cells say {first.cells}{more}"
            # With cells missing the decision cannot come out the same; that is no contradiction yet.
            worst = Verdict.INCONCLUSIVE if missing else Verdict.FAIL
            again = Check(name=AGAIN, verdict=worst, reason=reason)
            rows = tuple((each.what, each.page, each.cells) for each in found)
            title = "What the page says and the cells do not"
            table = (Table(title=title, columns=("what", "page", "cells"), rows=rows),)
    checks = [
        _there(traced), _signed(traced, compared), again, _controls(traced), _seeds(traced), _planned(traced, store),
        _page(page),
    ]
    return _finding(page, checks, table)


def judge_files(run: Run, folder: Path) -> Finding:
    """Whether run.json is as it was written, and every rendering beside it is a rendering of it."""
    digest = Check(name="run.json is as it was written", verdict=Verdict.PASS, reason=f"SHA-256 {run.digest[:16]}")
    if run.altered:
        digest = digest.model_copy(update={"verdict": Verdict.FAIL, "reason": "its content does not fit its digest"})
    elif not run.digest:
        digest = digest.model_copy(update={"verdict": Verdict.INCONCLUSIVE, "reason": "it carries no digest"})
    checks = [digest]
    rows: list[tuple[str, str, str]] = []
    home = folder if folder.is_dir() else folder.parent
    for name, ending in FOLDER.items():
        file = home / name
        if ending == ".json" or not file.is_file():
            continue
        written, anew = file.read_text(encoding="utf-8", errors="replace"), RENDERERS[ending](run)
        same = written == anew
        verdict = Verdict.PASS if same else Verdict.FAIL
        reason = "it is what run.json renders to" if same else "it is not what run.json renders to here"
        checks.append(Check(name=f"{name} says what run.json says", verdict=verdict, reason=reason))
        if not same:
            rows += [(name, *pair) for pair in _first_lines(written, anew)]
    table = Table(
        title="Lines that differ", columns=("file", "as found", "as run.json renders"), rows=tuple(rows),
        note="A rendering made by another version of Assay may differ in form alone; the first lines show which it is.",
    )
    return _concluded(
        "the files of the run", "The files of the run say what its run.json says, and it is as it was written.",
        checks, (table,) if rows else (), name="files",
    )


def judge_sample(
    traced: Sequence[TracedFinding], compared: Sequence[Recomputed], *, share: float, seed: int
) -> Finding:
    """Whether the cells that were computed again came out as stored."""
    claim = "Cells of this run come out the same when they are computed again here."
    there = sum(piece.stored is not None for each in traced for piece in each.pieces)
    different = [each for each in compared if not each.same]
    if not compared:
        why = "none were asked for" if share <= 0 else "there are no stored cells to choose from"
        check = Check(name="sample", verdict=Verdict.INCONCLUSIVE, reason=f"no cell was computed again: {why}")
        return _concluded("cells computed again", claim, [check], (), name="sample")
    interval = stats.binomial_interval(len(different), len(compared)) if len(compared) > 1 else None
    sampled = f"a random sample of {there} stored cells"
    measured = Measurement(
        name="cells that came out differently", value=float(len(different)), unit="cells", n=len(compared),
        region=Region(high=0.0), note=sampled,
    )
    # Beside the claim, not part of it: what the sample says of the cells outside it.
    of_all = Measurement(
        name="share of all cells that would", value=len(different) / len(compared), n=len(compared), interval=interval,
        note=sampled,
    )
    elsewhere = sum(each.elsewhere for each in compared)
    how = f"{len(compared)} of {there} cells were computed again"
    if different:
        first = different[0]
        detail = first.failure or f"{first.where}: stored {first.stored}, again {first.again}"
        which = f"{len(different)} came out differently, as {first.piece.cell.label}"
        reason, verdict = f"{how}; {which}: {detail}", Verdict.FAIL
    else:
        bound = f"; at most {interval.high:.0%} of all would not (95 %, exact)" if interval else ""
        reason, verdict = f"{how} and came out the same{bound}", Verdict.PASS
    note = f"{elsewhere} were stored by another machine or other versions, where {ELSEWHERE:g} is allowed; else 0 is."
    check = Check(name="sample", verdict=verdict, reason=reason)
    finding = _concluded("cells computed again", claim, [check], (_table(compared, note),), name="sample")
    return finding.model_copy(update={
        "measurements": (measured, of_all), "headline": measured.name,
        "limitations": (f"The sample was drawn with seed {seed}; cells outside it were not computed again.",
                        "Values that are times or memory are not compared."),
    })


def overview(findings: Sequence[Finding]) -> Figure:
    """Findings by checks: what holds, what could not be told, what does not hold."""
    shade = {Verdict.PASS: 1.0, Verdict.INCONCLUSIVE: 0.5}
    rows = [finding for finding in findings if any(check.name == THERE for check in finding.checks)]
    grid = []
    for finding in rows:
        told = {check.name: shade.get(check.verdict, 0.0) for check in finding.checks}
        grid.append(tuple(told.get(name, 0.5) for name in CHECKS))
    return Figure(
        key="audit", question="Which finding holds under which check?", kind="heatmap",
        categories=("cells", "signed", "again", "arms", "seeds", "plan", "page"),
        row_names=tuple(f"{'' if f.number is None else f.number} {f.name}".strip() for f in rows), grid=tuple(grid),
        caption="1: holds; 0.5: cannot be told here; 0: does not hold.",
    )


def _table(compared: Sequence[Recomputed], note: str) -> Table:
    order = sorted(compared, key=lambda each: (each.same, -each.difference))
    rows = tuple(
        (each.piece.cell.label, "same" if each.same else "different", each.difference, each.where or "all values",
         each.stored, each.again if not each.failure else each.failure, "another" if each.elsewhere else "this")
        for each in order
    )
    columns = ("cell", "came out", "largest relative difference", "where", "stored", "again", "machine and versions")
    return Table(title="Cells computed again", columns=columns, rows=rows, note=note)


def _there(traced: TracedFinding) -> Check:
    """Every cell is in the store, and none of them is another than was written."""
    count, altered = len(traced.pieces), [piece for piece in traced.pieces if piece.altered]
    if altered:
        reason = f"{len(altered)} of {count} cells are not what was written: {_some(altered)}"
        return Check(name=THERE, verdict=Verdict.FAIL, reason=reason)
    if missing := traced.missing:
        hint = "" if traced.plan is not None else "; is this the store of the run? name it with --store"
        reason = f"{len(missing)} of {count} cells are not in the store: {_some(missing)}{hint}"
        return Check(name=THERE, verdict=Verdict.INCONCLUSIVE, reason=reason)
    code = "; computed by other code than is here" if traced.other_code else ""
    return Check(name=THERE, verdict=Verdict.PASS, reason=f"all {count} cells{code}")


def _signed(traced: TracedFinding, compared: Sequence[Recomputed]) -> Check:
    """Every cell bears the key of somebody known, or came out the same when it was computed again here."""
    names = Counter(piece.stored.signer or "you" for piece in traced.pieces if piece.stored is not None)
    by = ", ".join(f"{count} signed by {name}" for name, count in names.items())
    strange = {piece.key for piece in traced.pieces if piece.stored is not None and not piece.vouched}
    proven = {each.piece.key for each in compared if each.same}
    if open_ := strange - proven:
        reason = (
            f"{by}, whose key is not here: {len(open_)} of them were not computed again; trust the key by name "
            "(--trust) or compute all of them again (--rerun 100%)"
        )
        return Check(name=SIGNED, verdict=Verdict.INCONCLUSIVE, reason=reason)
    told = f"{by}, each computed again here" if strange else by or "no cell"
    return Check(name=SIGNED, verdict=Verdict.PASS if names else Verdict.INCONCLUSIVE, reason=told)


def _some(pieces: Sequence[Piece]) -> str:
    more = ", ..." if len(pieces) > 3 else ""
    return ", ".join(piece.cell.label for piece in pieces[:3]) + more


def _controls(traced: TracedFinding) -> Check:
    """Every control on the page is an arm with records in the store."""
    arms = records_by_arm(traced.pieces)
    planned = set(traced.controls)
    unrun = sorted(name for name in planned if not arms.get(name))
    if not planned:
        return Check(name=CONTROLS, verdict=Verdict.FAIL, reason="the track has no controls")
    if unrun:
        verdict = Verdict.INCONCLUSIVE if traced.missing else Verdict.FAIL
        return Check(name=CONTROLS, verdict=verdict, reason=f"no record of {', '.join(unrun[:3])}")
    arms_of = "1 control arm has" if len(planned) == 1 else f"{len(planned)} control arms have"
    return Check(name=CONTROLS, verdict=Verdict.PASS, reason=f"{arms_of} records")


def _seeds(traced: TracedFinding) -> Check:
    """The seeds on the page are those of records, not only of a wish."""
    ran = {piece.trial.seed for piece in traced.pieces if piece.stored is not None}
    asked = set(traced.finding.seeds)
    if wished := sorted(asked - ran):
        verdict = Verdict.INCONCLUSIVE if traced.missing else Verdict.FAIL
        return Check(name=SEEDS, verdict=verdict, reason=f"no record at seeds {', '.join(map(str, wished[:5]))}")
    told = "a record at the only seed" if len(asked) == 1 else f"records at all {len(asked)} seeds"
    return Check(name=SEEDS, verdict=Verdict.PASS, reason=told)


def _planned(traced: TracedFinding, store: Store) -> Check:
    """Every cell was in a plan that was written down before it was computed."""
    dated = [piece for piece in traced.pieces if piece.stored is not None and piece.stored.at]
    if traced.plan is None or not dated:
        return Check(name=PLANNED, verdict=Verdict.INCONCLUSIVE, reason="no plan of this run is in the store")
    late = {piece.key: piece.stored.at for piece in dated if piece.stored and piece.stored.at < traced.plan.at}
    if late:
        for plan in store.plans():
            keys = {key for found in plan.cells.values() for key in found}
            late = {key: at for key, at in late.items() if key not in keys or plan.at > at}
    if late:
        reason = f"{len(late)} of {len(dated)} cells were computed before any plan named them"
        return Check(name=PLANNED, verdict=Verdict.FAIL, reason=reason)
    return Check(name=PLANNED, verdict=Verdict.PASS, reason=f"{len(dated)} cells were planned, then computed")


def _page(page: Finding) -> Check:
    found = contradictions(page)
    verdict = Verdict.FAIL if found else Verdict.PASS
    return Check(name=PAGE, verdict=verdict, reason=found[0] if found else "verdict and numbers agree")


def _finding(page: Finding, checks: Sequence[Check], tables: tuple[Table, ...]) -> Finding:
    claim = f"{page.verdict} is what the cells of this claim say: {page.claim}"
    found = _concluded(page.subject, claim, checks, tables, name=page.name)
    return found.model_copy(update={"number": page.number, "title": page.title, "seeds": page.seeds})


def _concluded(
    subject: str, claim: str, checks: Sequence[Check], tables: tuple[Table, ...], *, name: str
) -> Finding:
    """A finding as good as its worst check."""
    worst = Verdict.worst(check.verdict for check in checks)
    bad = [f"{check.name}: {check.reason}" for check in checks if check.verdict is worst]
    reason = "; ".join(bad if worst is not Verdict.PASS else dict.fromkeys(check.reason for check in checks))
    return Finding(
        subject=subject, claim=claim, verdict=worst, reason=reason, name=name, checks=tuple(checks), tables=tables)


def _first_lines(written: str, anew: str, most: int = 5) -> list[tuple[str, str]]:
    pairs = zip(written.splitlines(), anew.splitlines(), strict=False)
    plain = [(_plain(one), _plain(other)) for one, other in pairs if one != other]
    found = [(one, other) for one, other in plain if one != other][:most]
    return found or [(f"{len(written)} characters", f"{len(anew)} characters")]


def _plain(line: str) -> str:
    """A line as a reader sees it, without its markup."""
    return " ".join(re.sub(r"<[^>]*>?", " ", line).split())[:160]
