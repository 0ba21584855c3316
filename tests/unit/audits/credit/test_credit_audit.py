"""The credit audit on healthy models: what it measures, what it leaves alone, what it refuses."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import scipy.stats
import torch
from torch import nn

import assay
from assay.audits.credit import CreditCallback, FAProtocol, audit_credit
from assay.audits.credit.alignment import DepthAlignment, measure_alignment
from assay.audits.credit.equilibrium import stream_at_rest
from assay.audits.credit.stream import error_signal, exact_cosines, exact_losses, exact_stream
from assay.audits.equilibrium.true_gradient import true_gradient
from assay.errors import InputError
from assay.probe.blocks import discover_blocks
from assay.results import Finding, Verdict
from assay.rules.feedback.rule import FeedbackAlignment
from assay.rules.feedback.survey import take_survey
from subjects import SUBJECTS, OwnProducts, Transformer, batch


def check(finding: Finding, name: str):
    return next(c for c in finding.checks if c.name == name)


@pytest.mark.parametrize("name", SUBJECTS)
def test_backprop_on_any_model_sends_the_true_gradient(name: str) -> None:
    model, (x, y) = SUBJECTS[name](), batch(name, 8)
    finding = audit_credit(model, x, y, rule=assay.Backprop())
    assert check(finding, "alignment").reason == "the rule sends the true gradient"
    assert finding.verdict is Verdict.PARTIAL and "not run" in finding.reason
    assert all(control.separated for control in finding.controls)
    assert {figure.key for figure in finding.figures} == {"stream", "stream-growth", "gradient-size", "alignment"}


@pytest.mark.parametrize("name", SUBJECTS)
def test_the_drop_in_protocol_runs_on_any_model(name: str) -> None:
    model, (x, y) = SUBJECTS[name](), batch(name, 8)
    report = FAProtocol(model, x, y).run()
    assert report["verdict"] == "NOT RUN(D3)"
    assert set(report["diagnostics"]) == {"D1_scale_growth", "D2_ref_validity", "D3_depth_utility"}
    assert report["diagnostics"]["D3_depth_utility"]["fires"] is None
    assert FAProtocol(model, x, y, accuracy=0.5, frozen_accuracy=0.49).run()["verdict"] == "FAIL(D3)"


@pytest.mark.parametrize(("name", "expected", "link"), [
    ("resmlp", ("blocks.0", "blocks.1", "blocks.2"), "direct"),
    ("vit", ("blocks.0", "blocks.1"), "direct"),
    ("resnet", tuple(f"blocks.{i}" for i in range(6)), "direct"),
    ("transformer", tuple(f"encoder.layers.{i}" for i in range(3)), "direct"),
    ("outer skip", tuple(f"layers.{i}" for i in range(3)), "outside"),
    ("plain mlp", ("2", "4"), "outside"),
])
def test_blocks_are_found(name: str, expected: tuple[str, ...], link: str) -> None:
    blocks = discover_blocks(SUBJECTS[name](), batch(name)[0])
    assert blocks.names == expected and blocks.link == link


def test_blocks_of_a_staged_net_are_not_its_stages() -> None:
    class Staged(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            from assay.networks.feedforward.small_resnet import ConvBlock

            self.stem = nn.Conv2d(3, 4, 3, padding=1)
            self.layer1 = nn.Sequential(ConvBlock(4, 4, 1), ConvBlock(4, 4, 1))
            self.layer2 = nn.Sequential(ConvBlock(4, 8, 2), ConvBlock(8, 8, 1))
            self.head = nn.Linear(8, 4)

        def forward(self, x):
            return self.head(self.layer2(self.layer1(self.stem(x))).mean((2, 3)))

    assert discover_blocks(Staged(), batch("resnet")[0]).names == ("layer1.0", "layer1.1", "layer2.0", "layer2.1")


def test_a_glob_overrides_the_choice() -> None:
    model, (x, _) = SUBJECTS["resmlp"](), batch("resmlp")
    blocks = discover_blocks(model, x, glob="blocks.[01]")
    assert blocks.names == ("blocks.0", "blocks.1") and "chosen by" in str(blocks)
    with pytest.raises(InputError, match="modules that ran: embed"):
        discover_blocks(model, x, glob="layers.*")


def test_no_blocks_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(InputError, match="name the blocks with a glob"):
        audit_credit(nn.Sequential(nn.Flatten(), nn.Linear(6, 4)), *batch("plain mlp"))


def test_outer_skip_streams_add_up() -> None:
    """h_{l+1} - h_l must be what block l wrote, though the caller adds it."""
    model, (x, y) = SUBJECTS["outer skip"]().double(), batch("outer skip")
    stream = exact_stream(model, x, y, discover_blocks(model, x.double()))
    h = model.stem(x.double())
    for layer, before, after in zip(model.layers, stream.values, stream.values[1:], strict=False):
        written = layer(h)
        torch.testing.assert_close(after - before, written.detach())
        h = h + written


def test_the_exact_error_keeps_digits_that_autograd_loses() -> None:
    """Logits (60, 0): the true error at the target is -exp(-60), which 1 - p_y rounds to zero."""
    logits = torch.tensor([[60.0, 0.0]], dtype=torch.float64)
    y = torch.tensor([0])
    exact = error_signal(logits, y)
    assert exact[0, 0] == pytest.approx(-(2.718281828459045**-60), rel=1e-9)
    assert float(exact_losses(logits, y)) == pytest.approx(2.718281828459045**-60, rel=1e-9)
    leaf = logits.clone().requires_grad_()
    nn.functional.cross_entropy(leaf, y).backward()
    assert float(leaf.grad[0, 0]) == 0.0


def test_exact_gradients_are_autograds_where_nothing_cancels() -> None:
    model, (x, y) = SUBJECTS["resmlp"]().double(), batch("resmlp")
    blocks = discover_blocks(model, x.double())
    stream = exact_stream(model, x, y, blocks)
    h = model.embed(x.double()).detach().requires_grad_()
    out = h
    for block in model.blocks:
        out = block(out)
    nn.functional.cross_entropy(model.out_head(model.out_ln(out)), y, reduction="sum").backward()
    torch.testing.assert_close(stream.gradients[0], h.grad)


def test_cosines_need_no_clamp() -> None:
    tiny = torch.full((1, 4), 1e-200, dtype=torch.float64)
    assert float(exact_cosines(tiny, tiny)) == pytest.approx(1.0, abs=1e-15)


def test_the_deepest_depth_of_block_feedback_is_exact_by_construction() -> None:
    model, (x, y) = SUBJECTS["resmlp"](), batch("resmlp", 16)
    blocks = discover_blocks(model, x)
    truth = exact_stream(model, x, y, blocks)
    rule = FeedbackAlignment(model, kind="fa", level="block")
    found = measure_alignment(rule, model, x=x, y=y, blocks=blocks, truth=truth, seed=0, redraws=8)
    assert [a.exact for a in found] == [False, False, False, True]


def test_fresh_feedback_is_a_null_for_a_rule_that_did_not_train_the_model() -> None:
    """A rule with matrices of its own on a model trained without it is one more draw: |z| is rarely beyond 3."""
    model, (x, y) = SUBJECTS["resmlp"](), batch("resmlp", 16)
    blocks = discover_blocks(model, x)
    truth = exact_stream(model, x, y, blocks)
    rules = [FeedbackAlignment(model, kind="dfa", level="block", seed=100 + s) for s in range(10)]
    z = [
        measure_alignment(rule, model, x=x, y=y, blocks=blocks, truth=truth, seed=0, redraws=20)[1].z for rule in rules
    ]
    assert sum(abs(value) > 3 for value in z) <= 1


@pytest.mark.parametrize("name", ["resmlp", "resnet", "transformer", "outer skip"])
def test_the_model_is_left_exactly_as_it_was(name: str) -> None:
    model, (x, y) = SUBJECTS[name](), batch(name, 8)
    model.train()
    next(model.children()).eval()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    modes = [m.training for m in model.modules()]
    state = copy.deepcopy(model.state_dict())
    before, x_before = torch.get_rng_state(), x.clone()
    audit_credit(model, x, y, rule=FeedbackAlignment(model, kind="dfa", level="block"), redraws=3)
    FAProtocol(model, x, y).run()
    assert torch.equal(torch.get_rng_state(), before) and torch.equal(x, x_before) and not x.requires_grad
    assert [m.training for m in model.modules()] == modes
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert all(torch.equal(p.grad, torch.ones_like(p)) for p in model.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_hooks_are_removed_when_the_model_raises() -> None:
    model = SUBJECTS["resmlp"]()
    with pytest.raises(InputError, match="expected"):
        audit_credit(model, torch.zeros(4, 99), torch.zeros(4, dtype=torch.long))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_wrong_shapes_name_the_input() -> None:
    with pytest.raises(InputError, match=r"an input the model accepts; given x of shape \(4, 99\)"):
        audit_credit(SUBJECTS["plain mlp"](), torch.zeros(4, 99), torch.zeros(4, dtype=torch.long))


@pytest.mark.parametrize(("x", "y", "message"), [
    (torch.zeros(4, 6), torch.zeros(4), "outputs of shape"),
    (torch.zeros(4, 6), torch.zeros(3, dtype=torch.long), "as many targets as inputs"),
    (torch.zeros(1, 6), torch.zeros(1, dtype=torch.long), "at least two"),
    (torch.zeros(4, 6), torch.full((4,), 9), "targets from 0 to 3"),
])
def test_wrong_targets_are_named(x, y, message: str) -> None:
    with pytest.raises(InputError, match=message):
        audit_credit(SUBJECTS["plain mlp"](), x, y)


def test_dropout_is_off_during_the_audit() -> None:
    model, (x, y) = Transformer(dropout=0.5), batch("transformer", 8)
    model.train()
    one, two = (audit_credit(model, x, y, rule=assay.Backprop()) for _ in range(2))
    assert one.seconds > 0 and one.model_copy(update={"seconds": two.seconds}) == two
    assert "dropout off" in one.limitations[0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_audited_and_its_coarse_gradient_is_named(dtype: torch.dtype) -> None:
    model, (x, y) = SUBJECTS["resmlp"]().to(dtype), batch("resmlp", 8)
    finding = audit_credit(model, x.to(dtype), y)
    assert check(finding, "reference").verdict in (Verdict.PASS, Verdict.FAIL)
    assert finding.measurement("samples without a reference").value is not None


def test_a_half_precision_model_on_full_precision_inputs_is_a_clear_error() -> None:
    model, (x, y) = SUBJECTS["resmlp"]().half(), batch("resmlp", 8)
    with pytest.raises(InputError, match=r"x of shape \(8, 12\), torch.float32"):
        audit_credit(model, x, y)


def test_token_models_with_own_products_are_audited_by_glob() -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(11, 8)
            self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8)) for _ in range(3))
            self.head = nn.Linear(8, 11)

        def forward(self, tokens):
            h = self.embed(tokens)
            for block in self.blocks:
                h = h + block(h)
            return self.head(h)

    tokens = torch.randint(11, (6, 5))
    finding = audit_credit(Tokens(), tokens, tokens, rule=assay.Backprop(), blocks="blocks.*")
    assert finding.verdict is Verdict.PARTIAL
    with pytest.raises(InputError):
        audit_credit(OwnProducts(), *batch("products"))


def test_the_callback_audits_every_epoch() -> None:
    task = assay.tasks.digits(seed=0)
    model = assay.models.ResMLP(64, width=8, depth=2)
    watch = CreditCallback(task.validation.x[:16], task.validation.y[:16], rule=assay.Backprop())
    assay.train(model, task, assay.Backprop(), epochs=2, seed=0, callbacks=[watch])
    assert len(watch.findings) == 2 and watch.figure().series[0].x == (1.0, 2.0)


def at_rest_subjects() -> dict:
    generator = torch.Generator().manual_seed(0)
    digits, tokens = torch.randint(4, (8,), generator=generator), torch.randint(7, (8, 5), generator=generator)
    return {
        "mlp": (assay.models.EnergyMLP([6, 10, 10, 4], seed=0), torch.randn(8, 6, generator=generator), digits),
        "conv": (assay.models.EnergyConv((1, 8, 8), [4, 4], classes=4, seed=0),
                 torch.rand(8, 1, 8, 8, generator=generator), digits),
        "attention": (assay.models.EnergyAttention(7, length=5, width=16, heads=2, layers=2, seed=0), tokens,
                      tokens.flip(1)),
    }


@pytest.mark.parametrize("name", ["mlp", "conv", "attention"])
def test_equilibrium_propagation_goes_through_the_same_audit(name: str) -> None:
    model, x, y = at_rest_subjects()[name]
    finding = audit_credit(model, x, y, rule=assay.EqProp(beta=0.1, nudge="centered"))
    assert finding.verdict is Verdict.PARTIAL and "depth utility not run" in finding.reason
    assert check(finding, "alignment").verdict is Verdict.PASS and check(finding, "reference").verdict is Verdict.PASS
    assert min(row[1] for row in finding.tables[1].rows) > 0.98
    assert "layers.1" in check(finding, "blocks").reason


def test_the_credit_of_units_at_rest_is_the_gradient_of_their_bias() -> None:
    """A bias is a force on its layer: implicit differentiation, which knows no nudge, must point the same way."""
    model, x, y = at_rest_subjects()["mlp"]
    stream, truth = stream_at_rest(model, x, y, torch.float64), true_gradient(model, x, y)
    for depth, credit in enumerate(stream.gradients):
        bias = truth.gradients[f"layers.{depth}.bias"]
        assert float(exact_cosines(credit.sum(0, keepdim=True), bias[None])) == pytest.approx(1, abs=1e-9)


def test_one_layer_of_units_has_no_depth_to_audit() -> None:
    model = assay.models.LoopedMLP(6, 10, 4, seed=0)
    with pytest.raises(InputError, match="at least two layers of units"):
        audit_credit(model, *batch("plain mlp", 8), rule=assay.EqProp())


def test_one_batch_of_one_rule_makes_a_finding_that_survives_json() -> None:
    model, (x, y) = SUBJECTS["resmlp"](), batch("resmlp", 8)
    finding = audit_credit(model, x, y, rule=FeedbackAlignment(model), redraws=4)
    assert Finding.model_validate_json(finding.model_dump_json()) == finding


def test_a_model_of_nans_never_passes_the_drop_in_protocol() -> None:
    """A NaN behind a healthy first block must not hide behind that block's finite growth."""
    model, (x, y) = SUBJECTS["resmlp"](), batch("resmlp", 8)
    with torch.no_grad():
        model.blocks[1].w1.weight[0, 0] = torch.nan
    assert FAProtocol(model, x, y).run()["verdict"] == "FAIL(D1+D2)"
    assert audit_credit(model, x, y).verdict is Verdict.FAIL


def test_inputs_that_are_not_finite_are_refused() -> None:
    model, (x, y) = SUBJECTS["resmlp"](), batch("resmlp", 8)
    x[3, 1] = torch.inf
    with pytest.raises(InputError, match="x with 1 values that are not"):
        audit_credit(model, x, y)


def test_many_depths_do_not_give_chance_many_tries() -> None:
    """5 % over all depths together: at one of five a signal must beat the 1 % point of the null."""
    one, five = (DepthAlignment(0.1, 0.01, 1.0, 0.0, 0.05, redraws=20, places=n) for n in (1, 5))
    assert one.critical == pytest.approx(scipy.stats.t.ppf(0.95, 19))
    assert five.critical == pytest.approx(scipy.stats.t.ppf(0.99, 19))
    assert one.aligned and not five.aligned
    model, (x, y) = SUBJECTS["resmlp"](), batch("resmlp", 8)
    blocks = discover_blocks(model, x)
    found = measure_alignment(
        FeedbackAlignment(model), model, x=x, y=y, blocks=blocks, truth=exact_stream(model, x, y, blocks), seed=0
    )
    assert {a.places for a in found if a} == {4}


@pytest.mark.parametrize("level", ["layer", "block"])
def test_redrawn_rules_know_the_model_from_the_first_of_them(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks and coverage are looked for by the rule itself and once for all redraws, not for each of them."""
    looked: list[str] = []

    def counted(name: str, found: Any) -> Any:
        return lambda *args, **options: (looked.append(name), found(*args, **options))[1]

    monkeypatch.setattr("assay.rules.feedback.blocks.discover_blocks", counted("block", discover_blocks))
    monkeypatch.setattr("assay.rules.feedback.rule.take_survey", counted("layer", take_survey))
    torch.manual_seed(0)
    model = assay.models.ResMLP(12, width=8, depth=2, classes=3)
    x, y = torch.randn(6, 12), torch.arange(6) % 3
    found = audit_credit(model, x, y, rule=FeedbackAlignment(model, level=level), redraws=6, responses=False)
    assert found.verdict is not Verdict.ERROR
    assert looked.count(level) <= 3, "the rule, one of its redraws, and the coverage of the report"
