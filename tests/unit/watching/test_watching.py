"""Looking into a training: planted defects show, the model is left alone, and looking costs what was allowed."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import assay
from assay import symmetry as sym
from assay.errors import InputError
from assay.watching import Watch


def net(width: int = 8, seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 3))


def batch(rows: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    return torch.randn(rows, 6, generator=draw), torch.arange(rows) % 3


def backward(model: nn.Module) -> None:
    x, y = batch()
    nn.functional.cross_entropy(model(x), y).backward()


def test_health_of_a_sound_model_and_of_one_whose_signal_is_cut() -> None:
    sound = net()
    backward(sound)
    seen = Watch(every=1).step(sound, 1)
    assert seen is not None
    exact = math.sqrt(sum(float(p.grad.double().square().sum()) for p in sound.parameters()))
    assert seen["health/gradient norm"] == pytest.approx(exact, rel=1e-5)
    assert seen["health/parameters without a signal"] == 0 == seen["health/not finite"]

    cut = net()
    cut[2].register_forward_hook(lambda module, args, out: out.detach())
    backward(cut)
    told = Watch(every=1).step(cut, 1)
    assert told is not None and told["health/parameters without a signal"] == 4

    broken = net()
    backward(broken)
    broken[0].weight.grad[0, 0] = math.nan
    assert (Watch(every=1).step(broken, 1) or {})["health/not finite"] == 1


def test_credit_and_symmetry_are_the_audits_numbers_and_leave_the_model_alone() -> None:
    model = assay.models.ResMLP(6, width=8, depth=3, classes=3)
    backward(model)
    before = copy.deepcopy(model.state_dict())
    spec = sym.Symmetry(sym.sign(), inputs=sym.odd(), outputs=sym.invariant())
    watch = Watch(every=1, most=1.0, credit=batch(), symmetry=(batch()[0], spec))
    seen = watch.step(model, 1)
    assert seen is not None and watch.findings[0].name == "credit"
    growth = "largest growth of a block"
    assert seen[f"credit/{growth}"] == watch.findings[0].measurement(growth).value
    assert max(value for name, value in seen.items() if name.startswith("symmetry/")) > 1e-3, "no even function"
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(p.grad is not None for p in model.parameters())


def test_a_probe_waits_until_its_cost_is_paid_for() -> None:
    model = net()
    backward(model)
    watch = Watch(every=1, most=0.02, health=False, credit=batch())
    watch.step(model, 1)
    cost = watch.spent
    assert cost > 0, "the first look is taken"
    watch.step(model, 2)
    assert watch.waited == 1 and watch.spent == cost, "nothing passed that could pay for another"
    watch._began -= 200 * cost
    watch.step(model, 3)
    assert watch.spent > cost and watch.share <= 0.02


def test_looks_come_every_n_steps_and_are_logged() -> None:
    model, logged = net(), []
    backward(model)
    watch = Watch(every=3, most=1.0, log=lambda values, step: logged.append((step, sorted(values))))
    assert [step for step in range(8) if watch.step(model, step) is not None] == [3, 6]
    assert [step for step, _ in logged] == [3, 6] == [entry.step for entry in watch.history]
    for wrong in ({"every": 0}, {"most": 0.0}, {"most": 2.0}):
        with pytest.raises(InputError):
            Watch(**wrong)


@pytest.mark.filterwarnings("ignore")  # Lightning's own, about torch and its loaders
def test_lightning_logs_what_the_watch_saw(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch", reason="needs the [lightning] extra")
    from assay.watching.lightning import AssayCallback

    class Module(lightning.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = assay.models.ResMLP(6, width=8, depth=2, classes=3)

        def forward(self, x: torch.Tensor) -> Any:
            return self.net(x)

        def training_step(self, rows: Any, index: int) -> Any:
            return nn.functional.cross_entropy(self(rows[0]), rows[1])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    x, y = batch(40)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=4)
    callback = AssayCallback(every=5, most=1.0, credit=(x[:8], y[:8]))
    logger = lightning.loggers.CSVLogger(tmp_path)
    trainer = lightning.Trainer(
        max_epochs=1, callbacks=[callback], logger=logger, accelerator="cpu", enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False, log_every_n_steps=1, default_root_dir=tmp_path)
    trainer.fit(Module(), loader)
    assert [entry.step for entry in callback.watch.history] == [5, 5, 10, 10]
    assert len(callback.watch.findings) == 2
    text = next(tmp_path.rglob("metrics.csv")).read_text()
    assert "health/gradient norm" in text and "credit/largest growth of a block" in text


@pytest.mark.filterwarnings("ignore")  # of transformers and accelerate
def test_hugging_face_keeps_what_the_watch_saw_in_its_history(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="needs the [huggingface] extra")
    pytest.importorskip("accelerate", reason="needs the [huggingface] extra")
    from assay.watching.huggingface import AssayCallback

    config = transformers.BertConfig(vocab_size=20, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                                     intermediate_size=16, num_labels=2)
    model = transformers.BertForSequenceClassification(config)
    draw = torch.Generator().manual_seed(0)
    tokens, labels = torch.randint(0, 20, (32, 5), generator=draw), torch.arange(32) % 2
    rows = [{"input_ids": a, "labels": b} for a, b in zip(tokens, labels, strict=True)]
    callback = AssayCallback(every=2, most=1.0, credit=(tokens[:8], labels[:8]))
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), per_device_train_batch_size=8, num_train_epochs=1, report_to=[], use_cpu=True,
        save_strategy="no", disable_tqdm=True, seed=0)
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=rows, callbacks=[callback])
    trainer.train()
    kept = [entry for entry in trainer.state.log_history if "health/gradient norm" in entry]
    assert [entry["step"] for entry in kept] == [2, 4]
    assert all(entry["credit/largest growth of a block"] > 0 for entry in kept)
    assert callback.watch.findings[0].experiment.count("layer") >= 2, "both encoder layers are blocks"
