"""A user's rule, model and task in the benchmark: the same floors, controls and statistics, here and in workers."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from assay import tasks
from assay.engine import LocalExecutor, Store
from assay.errors import InputError
from assay.results import Verdict
from assay.studies.arms.brought import bring, digest
from assay.studies.bench import bench

QUICK = {"epochs": 4, "learning_rate": 1e-2}


class Own:
    """Backprop times ``sign``: healthy at 1, broken at -1."""

    def __init__(self, sign: float = 1.0) -> None:
        self.sign = sign

    def backward(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        outputs = model(x)
        loss = nn.functional.mse_loss(outputs, y) if y.is_floating_point() else nn.functional.cross_entropy(outputs, y)
        (self.sign * loss).backward()
        return loss.detach()


def net(task: Any) -> Any:
    def build(seed: int) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return nn.Sequential(nn.Linear(task.inputs, 16), nn.Tanh(), nn.Linear(16, task.outputs))

    return build


def classes(rows: int = 900) -> tasks.BroughtTask:
    generator = np.random.default_rng(0)
    y = generator.integers(0, 3, rows)
    return tasks.from_arrays(3 * np.eye(6)[y] + generator.normal(size=(rows, 6)), y, name="mine")


def test_own_task_model_and_rules_are_judged_like_ours(tmp_path: Path) -> None:
    task = classes()
    run = bench(task, rules={"good": Own(1.0), "bad": Own(-1.0)}, model=net(task), seeds=3, margin=6,
                settings=QUICK, store=tmp_path)
    good, bad = run.findings
    assert (good.name, bad.name) == ("mine/good/build", "mine/bad/build")
    assert good.verdict is Verdict.PASS, good.reason
    assert bad.verdict is not Verdict.PASS
    assert {control.kind for control in good.controls} == {"known-good", "known-bad"}
    assert all(control.separated for control in good.controls)
    assert good.measurement("floor: logistic").value > 80
    assert "computed in this process" in run.config["where"]
    assert run.config["data hashes"]["mine"]


def test_the_same_call_redoes_nothing_and_changed_state_or_data_is_another_cell(tmp_path: Path) -> None:
    def cells(task: Any, rule: Any) -> int:
        bench(task, rules={"own": rule}, model=net(task), seeds=1, settings={"epochs": 1}, store=tmp_path)
        return len(list(Store(tmp_path)))

    task = classes(300)
    once = cells(task, Own(1.0))
    assert cells(classes(300), Own(1.0)) == once
    assert cells(task, Own(0.5)) == once + 1, "one arm at one seed"
    assert cells(classes(330), Own(1.0)) > once + 1


def test_a_regression_is_judged_in_units_or_shares(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(400, 3))
    task = tasks.from_arrays(x, 1000 + 80 * x[:, 0] * x[:, 1] + 5 * generator.normal(size=400), name="price")
    options: dict[str, Any] = {"rules": {"own": Own}, "model": net(task), "seeds": 3, "settings": QUICK,
                               "store": tmp_path}
    (absolute,), (relative,) = (bench(task, margin=margin, **options).findings for margin in (8.0, "10%"))
    gap = absolute.measurement("error gap")
    assert (gap.region.low, gap.region.high) == (-8.0, 8.0) and gap.unit == "target units"
    floor = absolute.measurement("floor: mean").value
    assert relative.measurement("error gap").region.high == pytest.approx(0.1 * floor)
    assert {"floor: mean", "floor: ridge", "floor: neighbour"} <= {m.name for m in absolute.measurements}
    with pytest.raises(InputError, match="a share such as"):
        bench(task, margin="ten", **options)


def test_things_in_a_module_run_in_workers_by_their_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_lab_for_bench.py").write_text(textwrap.dedent("""
        import numpy as np, torch
        from assay.tasks import from_arrays
        rng = np.random.default_rng(0)
        labels = rng.integers(0, 3, 300)
        wine = from_arrays(3 * np.eye(6)[labels] + rng.normal(size=(300, 6)), labels, name="wine")
        def net(seed):
            torch.manual_seed(seed)
            return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
        class MyRule:
            def backward(self, model, x, y):
                loss = torch.nn.functional.cross_entropy(model(x), y)
                loss.backward()
                return loss.detach()
    """))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    run = bench("my_lab_for_bench:wine", rules=["my_lab_for_bench:MyRule"], model="my_lab_for_bench:net", seeds=1,
                settings={"epochs": 1}, store=tmp_path / "cells", executor=LocalExecutor(1))
    (finding,) = run.findings
    assert finding.name == "wine/MyRule/net" and not finding.failures
    assert "where" not in run.config
    assert finding.rerun.startswith("assay bench my_lab_for_bench:wine --rules my_lab_for_bench:MyRule")


def test_live_objects_do_not_travel_and_say_what_to_do(tmp_path: Path) -> None:
    task = classes(300)
    with pytest.raises(InputError, match="give them as my_lab:name"):
        bench(task, rules={"own": Own(2.0)}, model=net(task), seeds=1, store=tmp_path, executor=LocalExecutor(1))


def test_an_energy_rule_on_a_plain_model_is_an_error_in_words(tmp_path: Path) -> None:
    task = classes(300)
    (finding,) = bench(task, rules=["eqprop"], model=net(task), seeds=1, settings={"epochs": 1},
                       store=tmp_path).findings
    assert finding.verdict is Verdict.ERROR and "a model with an energy" in finding.failures[0].message


def test_a_digest_tells_content_and_nothing_else() -> None:
    def closed(value: float) -> Any:
        return lambda seed: value * seed

    assert digest(closed(1.0)) == digest(closed(1.0)) != digest(closed(2.0))
    assert digest(Own(1.0)) == digest(Own(1.0)) != digest(Own(2.0))
    assert digest({"a": torch.ones(3)}) == digest({"a": torch.ones(3)}) != digest({"a": torch.zeros(3)})
    generator = (i for i in range(3))
    assert digest(generator) != digest(generator), "what cannot be told is never the same"
    assert bring("my_lab:MyRule").label == "MyRule" and bring(LocalExecutor).reference.endswith(":LocalExecutor")
