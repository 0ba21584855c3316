"""``assay plan`` says what a run will cost, from recorded times, and says when it does not know."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from assay.engine import CostModel, Store, StoredCell, choose_executor, content_key, estimate, forecast
from assay.errors import InputError
from assay.protocols import Cell


def cells(group: str, count: int, **needs: float) -> list[Cell]:
    return [Cell(content_key({"g": group, "n": n}), "m:f", {}, f"{group} {n}", group, **needs) for n in range(count)]  # type: ignore[arg-type]


def test_a_forecast_counts_cores_and_leaves_out_what_is_stored() -> None:
    costs = CostModel()
    costs.learn("narrow", 10.0)
    costs.learn("wide", 30.0)
    plan = [*cells("narrow", 6), *cells("wide", 2, cpus=4.0)]
    cost = forecast(plan, {plan[0].key, plan[1].key}, costs)
    assert (cost.cells, cost.stored, cost.guessed, cost.unknown) == (8, 2, 0, 0)
    assert cost.core_seconds == 4 * 10.0 + 2 * 30.0 * 4
    assert cost.seconds(4) == 70.0 and cost.seconds(1000) == 30.0, "no faster than its longest cell"


def test_a_forecast_says_what_it_guesses_and_what_it_does_not_know() -> None:
    costs = CostModel()
    assert forecast(cells("new", 3), set(), costs).unknown == 3
    costs.learn("old", 5.0)
    mixed = forecast([*cells("new", 3), *cells("old", 1)], set(), costs)
    assert (mixed.guessed, mixed.unknown, mixed.core_seconds) == (3, 0, 20.0)
    assert forecast(cells("new", 3), set(), costs).unknown == 3, "other plans' times say nothing about this one"
    guess = forecast(cells("new", 3), set(), costs, otherwise=2.0)
    assert (guess.guessed, guess.unknown, guess.core_seconds) == (3, 0, 6.0)


def test_an_unknown_engine_and_a_stray_address_are_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'ray'"):
        choose_executor("rya")
    with pytest.raises(InputError, match="--engine ray"):
        choose_executor("local", address="auto")


def test_the_command_tells_core_hours_before_and_after_times_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import typer

    from assay.cli.claims.plan import plan_command
    from assay.registry import registry
    from assay.studies.verification import plan

    monkeypatch.setattr(estimate, "shipped", dict)
    app = typer.Typer()
    app.command()(plan_command)
    asked = ["0", "--seeds", "2", "--workers", "2", "--store", str(tmp_path)]
    before = CliRunner().invoke(app, asked)
    assert before.exit_code == 0 and "an unknown time" in before.output and "--seeds 1" in before.output

    planned = plan(registry.find(0), "quick", (42, 43))
    store, costs = Store(tmp_path), CostModel()
    for cell in planned:
        costs.learn(cell.group, 3600.0)
    store.keep_costs(costs)
    store.put(StoredCell(planned[0].key, planned[0].label, planned[0].group, 3600.0, {}))
    rest = len({cell.key for cell in planned}) - 1
    after = CliRunner().invoke(app, asked)
    assert after.exit_code == 0
    assert f"{rest}.00 core-hours" in " ".join(after.output.split()) and f"{rest} of {rest + 1} cells" in after.output
    assert "on 2 cores (local)" in after.output


def test_before_anything_was_run_shipped_times_are_used_and_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import typer

    from assay.cli.claims.plan import plan_command
    from assay.registry import registry
    from assay.studies.verification import plan

    groups = {cell.group for cell in plan(registry.find(0), "quick", (42,))}
    monkeypatch.setattr(estimate, "shipped", lambda: dict.fromkeys(groups, 36.0))
    app = typer.Typer()
    app.command()(plan_command)
    told = CliRunner().invoke(app, ["0", "--budget", "full", "--seeds", "1", "--store", str(tmp_path)])
    expected = f"{len(groups) * 36.0 / 3600:.2f} core-hours"
    assert told.exit_code == 0 and expected in told.output and "when this version was made" in told.output
    assert estimate.prior("honesty/full/fault: no such arm") is None
    shortened = CliRunner().invoke(app, ["0", "--budget", "smoke", "--store", str(tmp_path)])
    assert "a guess" in shortened.output, "a quick cell says nothing about a shortened one"


def test_a_pilot_tells_the_seeds_of_the_tracks_asked_for_each_in_its_own_unit(tmp_path: Path) -> None:
    import typer

    from assay.cli.claims.plan import plan_command
    from assay.results import Finding, Measurement, Region, Run, Verdict

    def finding(number: int, unit: str, margin: float) -> Finding:
        values = (margin / 2, -margin / 2, margin / 3)
        gap = Measurement(name="gap", value=0.0, unit=unit, n=3, values=values, seeds=(1, 2, 3),
                          region=Region(low=-margin, high=margin))  # fmt: skip
        return Finding(subject="s", claim="c", number=number, title=f"Track in {unit}", verdict=Verdict.INCONCLUSIVE,
                       reason="r", headline="gap", measurements=(gap,), seeds=(1, 2, 3))  # fmt: skip

    pilot = tmp_path / "run.json"
    pilot.write_text(Run(id="r", created="c", findings=(finding(2, "pp", 1.0), finding(37, "bits", 0.05))).to_json())
    app = typer.Typer()
    app.command()(plan_command)
    both = CliRunner().invoke(app, ["--pilot", str(pilot)], env={"COLUMNS": "140"})
    assert "±1 pp" in both.output and "±0.05 bits" in both.output
    one = CliRunner().invoke(app, ["2", "--pilot", str(pilot), "--store", str(tmp_path / "s")], env={"COLUMNS": "140"})
    assert "Track in pp" in one.output and "bits" not in one.output
    needed = next(line.split(": ")[1].split()[0] for line in one.output.splitlines() if "for parity within" in line)
    assert one.output.rstrip().endswith(f"assay verify 2 --seeds {needed}")


@pytest.mark.parametrize("budget", ["smoke", "quick"])
def test_every_track_ships_the_measured_cost_of_each_of_its_arms(budget: str) -> None:
    from assay.registry import registry
    from assay.seeding import seeds_of
    from assay.studies.verification import plan

    ours = [track for track in registry.ordered() if track.module.startswith("assay.tracks")]
    groups = {cell.group for t in ours for cell in plan(t, budget, seeds_of(budget, count=1, first=42))}  # type: ignore[arg-type]
    unknown = sorted(group for group in groups if estimate.prior(group) is None)
    assert unknown == [], f"measure them: python benchmarks/priors.py {budget}"
    assert all(estimate.prior(group) for group in groups)
