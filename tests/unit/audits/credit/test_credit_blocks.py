"""Blocks are found by their skip additions, across stages and shape changes, in nets as people write them."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from known_nets import NETS, PlainBetween, data
from torch import Tensor, nn

import assay
from assay.audits.credit import FAProtocol, audit_credit, credit_cosine, nudging_test, perturbation_correlation
from assay.audits.credit.published import exact_share
from assay.audits.credit.recipe import remove_blocks
from assay.errors import InputError
from assay.probe.blocks import discover_blocks


@pytest.mark.parametrize("name", NETS)
def test_the_residual_blocks_of_a_known_net_are_its_blocks(name: str) -> None:
    build, shape, wanted = NETS[name]
    model, (x, _) = build(), data(shape)
    flags = [p.requires_grad for p in model.parameters()]
    found = discover_blocks(model, x)
    assert list(found.names) == wanted, str(found)
    assert len(found.shapes) == len(wanted) + 1
    assert [p.requires_grad for p in model.parameters()] == flags and model.training


@pytest.mark.parametrize("name", NETS)
def test_a_known_net_is_audited_and_its_layers_take_feedback(name: str) -> None:
    build, shape, wanted = NETS[name]
    model, (x, y) = build(), data(shape)
    rule = assay.FeedbackAlignment(model, seed=0)
    assert rule.survey(model, x).complete, str(rule.coverage)
    finding = audit_credit(model, x, y, rule=rule, redraws=2, responses=False)
    assert [check.name for check in finding.checks][:2] == ["blocks", "feedback coverage"]
    picture = next(figure for figure in finding.figures if figure.key == "stream")
    assert [label.split(" ")[0] for label in picture.categories] == [*wanted, "head"]


def test_growth_is_that_of_the_blocks_and_not_of_the_plain_layer_between_stages() -> None:
    """Blocks that write nothing grow by exactly 1; the layer between the stages multiplies the stream by more."""
    model, (x, y) = PlainBetween(), data((3, 8, 8))
    finding = audit_credit(model, x, y, responses=False)
    assert finding.measurement("largest growth of a block").value == pytest.approx(1.0)
    assert FAProtocol(model, x, y).run()["diagnostics"]["D1_scale_growth"]["value"] == pytest.approx(1.0)
    by_name = audit_credit(model, x, y, responses=False, blocks="*.*")
    last = "gradient norm behind the last block"
    assert finding.measurement(last).value == pytest.approx(by_name.measurement(last).value)


@pytest.mark.parametrize("kind", ["fa", "dfa"])
def test_block_level_feedback_crosses_stages(kind: str) -> None:
    model, (x, y) = PlainBetween(), data((3, 8, 8))
    rule = assay.FeedbackAlignment(model, kind=kind, level="block", seed=0)
    rule.backward(model, x, y)
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())
    exact = assay.FeedbackAlignment(model, level="block", feedback="weights")
    model.zero_grad()
    exact.backward(model, x, y)
    found = model.stem.weight.grad.clone()
    model.zero_grad()
    assay.Backprop().backward(model, x, y)
    torch.testing.assert_close(found, model.stem.weight.grad)


def test_gates_of_a_recurrent_cell_are_no_skip() -> None:
    """Two linear terms of the same input are added in a plain layer: nothing is skipped."""

    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, h: Tensor) -> Tensor:
            return torch.tanh(self.one(h) + self.two(h))

    from assay.probe.residual import residual_modules

    model = nn.Sequential(nn.Linear(5, 8), Gated(), Gated(), nn.Linear(8, 3))
    assert residual_modules(model, torch.randn(4, 5)) == []


# The published protocol, as its users call it.


def test_the_class_token_is_measured_in_a_stream_of_tokens() -> None:
    """A fresh class token is tiny beside what the first block writes to it: the published measure is about 6.7."""
    model = assay.models.ViTMini(seed=0)
    x = torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    report = assay.FAProtocol(model, x, torch.arange(8) % 10, d1_threshold=50.0).run()
    assert 4 < report["diagnostics"]["D1_scale_growth"]["value"] < 10


def test_a_causal_model_is_measured_at_the_token_it_answers_from() -> None:
    """At the first token of a model that answers at its last one no gradient arrives: D2 would fire for nothing."""

    class AtTheEnd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
            self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.encoder(x, mask=nn.Transformer.generate_square_subsequent_mask(5))[:, -1])

    torch.manual_seed(0)
    report = FAProtocol(AtTheEnd(), torch.randn(6, 5, 8), torch.arange(6) % 3).run()
    assert report["diagnostics"]["D2_ref_validity"]["value"] > 1e-3


@pytest.mark.parametrize("spoil", [lambda x: x[:0], lambda x: x * torch.nan, lambda x: x[:2], lambda x: x.numpy()])
def test_the_protocol_refuses_what_it_cannot_measure(spoil: object) -> None:
    x, y = torch.linspace(-1, 1, 96).reshape(8, 12), torch.arange(8) % 3
    with pytest.raises(InputError, match="expected"):
        FAProtocol(assay.models.ResMLP(12, width=8, depth=2, classes=3), spoil(x), y)


def test_two_points_are_two_points_and_a_missing_baseline_is_no_pass() -> None:
    model = assay.models.ResMLP(12, width=8, depth=2, classes=3)
    x, y = torch.linspace(-1, 1, 1200).reshape(100, 12), torch.arange(100) % 3
    protocol = assay.FAProtocol(model, x, y, 50.0)
    assert protocol.run()["verdict"] == "NOT RUN(D3)"
    assert protocol.run()["diagnostics"]["D3_depth_utility"]["status"].startswith("not run")
    assert protocol.run(frozen_baseline_acc=0.93, test_acc=0.95)["verdict"] == "PASS"
    assert protocol.run(frozen_baseline_acc=0.93, test_acc=0.94)["verdict"] == "FAIL(D3)"
    strict = assay.FAProtocol(model, x, y, d1_threshold=0.1, d2_threshold=1e9)
    assert strict.run()["verdict"] == "FAIL(D1+D2)"
    assert strict.run(frozen_baseline_acc=1.0)["verdict"] == "FAIL(D1+D2+D3)"
    assert assay.FAProtocol(model, x, y, d1_threshold=0.1).run(0.0, 1.0)["verdict"] == "PASS"
    assert exact_share(2 / 3, 3) - exact_share(1 / 3, 3) == exact_share(1 / 3, 3)
    with pytest.raises(InputError, match="from 0 to 1"):
        protocol.run(frozen_baseline_acc=34.9)


def test_a_baseline_accuracy_taken_in_float32_is_the_share_it_stands_for() -> None:
    """``(answers == y).float().mean().item()`` of 93 in 100 is 0.9300000071525574: still 2 points below 95 in 100."""
    for items, right in ((100, 93), (10000, 3487), (128, 50), (3, 2)):
        mean = (torch.arange(items) < right).float().mean().item()
        assert exact_share(mean, items) == Fraction(right, items), mean
    of_another_batch = (torch.arange(10000) < 3487).float().mean().item()
    assert exact_share(of_another_batch, 128) == Fraction(3487, 10000)
    assert exact_share(0.9301, 100) == Fraction(9301, 10000)
    model, x = assay.models.ResMLP(12, width=8, depth=2, classes=3), torch.randn(100, 12)
    with torch.no_grad():
        y = model(x).argmax(1)
    y[:5] = (y[:5] + 1) % 3
    taken = (torch.arange(100) < 93).float().mean().item()
    assert assay.FAProtocol(model, x, y).run(frozen_baseline_acc=taken)["verdict"] == "PASS"
    with pytest.raises(InputError, match="thresholds of at least 0"):
        assay.FAProtocol(model, x, y, d1_threshold=-1.0)



def test_the_metrics_stand_alone_and_tell_the_gradient_from_noise() -> None:
    model = assay.models.ResMLP(12, width=16, depth=2, classes=3)
    x, y = torch.randn(12, 12, generator=torch.Generator().manual_seed(1)), torch.arange(12) % 3
    dfa = assay.FeedbackAlignment(model, kind="dfa", level="block", seed=0)
    assert credit_cosine(model, x, y, assay.Backprop()) == pytest.approx((1, 1, 1))
    assert all(abs(value) < 0.9 for value in credit_cosine(model, x, y, dfa))
    assert all(value < 0 for value in nudging_test(model, x, y, assay.Backprop()))
    assert all(value > 0.9 for value in perturbation_correlation(model, x, y, assay.Backprop()))


def test_the_shallow_baseline_has_no_blocks_left() -> None:
    model = assay.models.ResMLP(12, width=8, depth=3, classes=3)
    x = torch.randn(4, 12)
    assert remove_blocks(model, x) == ("blocks.0", "blocks.1", "blocks.2")
    torch.testing.assert_close(model(x), model.out_head(model.out_ln(model.embed(x))))
    with pytest.raises(InputError, match="keep the shape"):
        remove_blocks(PlainBetween(), data((3, 8, 8))[0])


def test_a_rule_with_float32_matrices_of_its_own_is_audited_and_its_own_faults_are_named() -> None:
    """The audit works in float64; the matrices a user's rule keeps do not follow, and that is not the input's fault."""

    class Fixed:
        def __init__(self, width: int = 16) -> None:
            self.matrix = torch.randn(width, 3)

        def backward(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
            h = model.embed(x)
            for block in model.blocks:
                h = block(h)
            logits = model.out_head(model.out_ln(h))
            error = (logits.softmax(1) - nn.functional.one_hot(y, 3)) / len(y)
            h.backward((error @ self.matrix.T).detach())
            return nn.functional.cross_entropy(logits, y).detach()

    model = assay.models.ResMLP(12, width=16, depth=2, classes=3)
    x, y = torch.randn(12, 12), torch.arange(12) % 3
    assert audit_credit(model, x, y, rule=Fixed()).checks
    with pytest.raises(InputError, match=r"the rule said: .*shape"):
        audit_credit(model, x, y, rule=Fixed(width=5))
