"""Defects planted into models, rules and baselines: each must be found, and its healthy twin accepted."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import assay
from assay.audits.credit import Baselines, FAProtocol, Recipe, audit_credit
from assay.audits.credit.depth import crossed_gap, judge_utility
from assay.results import Check, Finding, Verdict
from assay.rules.feedback.rule import FeedbackAlignment
from subjects import SUBJECTS, batch


def check(finding: Finding, name: str):
    return next(c for c in finding.checks if c.name == name)


@pytest.fixture(scope="module")
def trained() -> tuple[nn.Module, Tensor, Tensor]:
    """A residual net trained by backprop on digits, and a test batch."""
    task = assay.tasks.digits(seed=0)
    model = assay.models.ResMLP(64, width=32, depth=3, seed=0)
    result = assay.train(model, task, assay.Backprop(), epochs=15, seed=0, batch_size=64, learning_rate=5e-3)
    assert result.test_accuracy > 0.94
    return model, task.test.x[:128], task.test.y[:128]


def rescaled(model: nn.Module, factor: float) -> nn.Module:
    """The same function with the stream ``factor`` times as large: LayerNorm takes the factor out again."""
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for part in (twin.embed, *(block.w2 for block in twin.blocks)):
            for parameter in part.parameters():
                parameter.mul_(factor)
    return twin


def test_rescaling_the_stream_moves_the_published_check_and_not_ours(trained) -> None:
    """LayerNorm's eps is 1e-5 of the variance at the small scale, so answers agree to about that."""
    model, x, y = trained
    large = rescaled(model, 1e6)
    torch.testing.assert_close(large(x), model(x), rtol=1e-3, atol=1e-3)
    healthy, gauge = (audit_credit(m, x, y, rule=assay.Backprop()) for m in (model, large))
    assert gauge.verdict is healthy.verdict and check(gauge, "reference").verdict is Verdict.PASS
    assert gauge.measurement("gauge-invariant gradient").value == pytest.approx(
        healthy.measurement("gauge-invariant gradient").value, rel=1e-3)
    assert check(healthy, "D2 reference validity").verdict is Verdict.PASS
    assert check(gauge, "D2 reference validity").verdict is Verdict.FAIL
    assert [issue.title for issue in gauge.issues] == [
        "Published D2 fires on a sound reference", "The usual cosine clamp would corrupt the comparison"]
    assert not healthy.issues
    assert FAProtocol(large, x, y).run()["diagnostics"]["D2_ref_validity"]["fires"]


def test_a_larger_batch_moves_the_published_check_and_not_ours(trained) -> None:
    """The batch-mean gradient falls as 1/N although every sample's own gradient stays the same."""
    model, x, y = trained
    raw, invariant = ("gradient norm behind the last block", "gauge-invariant gradient")
    once = audit_credit(model, x, y, responses=False)
    eight = audit_credit(model, x.repeat(8, 1), y.repeat(8), responses=False)
    assert eight.measurement(raw).value == pytest.approx(once.measurement(raw).value / 8, rel=1e-9)
    assert eight.measurement(invariant).value == pytest.approx(once.measurement(invariant).value, rel=1e-9)


@pytest.mark.parametrize("factor", [4, 8, 16])
def test_saturated_softmax_is_a_true_reference_failure(trained, factor: int) -> None:
    model, x, y = trained
    sure = copy.deepcopy(model)
    with torch.no_grad():
        sure.out_head.weight.mul_(factor)
        sure.out_head.bias.mul_(factor)
    finding = audit_credit(sure, x, y, rule=assay.Backprop())
    assert finding.verdict is Verdict.FAIL and "the reference is noise" in finding.reason
    assert finding.measurement("samples without a reference").value > 0.5
    assert check(finding, "D2 reference validity").verdict is Verdict.PASS
    assert finding.issues[0].title == "Published D2 misses a reference that is noise"


def test_a_stream_that_absorbs_its_input_is_found() -> None:
    """A block that writes 1e9 times the stream leaves nothing of the input in float32."""
    model, (x, y) = SUBJECTS["resmlp"](), batch("resmlp", 16)
    assert check(audit_credit(model, x, y), "input survives").verdict is Verdict.PASS
    with torch.no_grad():
        model.blocks[0].w2.weight.mul_(1e11)
    finding = audit_credit(model, x, y)
    assert finding.verdict is Verdict.FAIL and check(finding, "input survives").verdict is Verdict.FAIL
    assert FAProtocol(model, x, y).run()["verdict"] == "FAIL(D1+D2)"


def test_weights_that_are_not_numbers_are_named() -> None:
    model, (x, y) = SUBJECTS["resmlp"](), batch("resmlp", 8)
    with torch.no_grad():
        model.blocks[1].w1.weight[0, 0] = torch.nan
    finding = audit_credit(model, x, y, rule=assay.Backprop())
    assert finding.verdict is Verdict.FAIL and "blocks.1.w1.weight" in finding.reason


class Afterwards:
    """Backprop whose gradients are changed when it is done: the stream shows nothing of it."""

    def __init__(self, change: Callable[[Tensor], Tensor]) -> None:
        self.change = change

    def backward(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        loss = assay.Backprop().backward(model, x, y)
        for parameter in model.parameters():
            parameter.grad = self.change(parameter.grad)
        return loss


def test_gradients_changed_behind_the_stream_are_not_called_the_true_gradient() -> None:
    model, (x, y) = SUBJECTS["resmlp"](), batch("resmlp", 16)

    def alignment(rule: object) -> Check:
        return check(audit_credit(model, x, y, rule=rule), "alignment")

    same = alignment(Afterwards(lambda gradient: 2 * gradient))
    assert same.verdict is Verdict.PASS and same.reason == "the rule sends the true gradient"
    signs = alignment(Afterwards(torch.sign))
    assert signs.verdict is Verdict.PASS and "than a random direction" in signs.reason
    assert alignment(Afterwards(torch.zeros_like)).verdict is Verdict.FAIL
    assert alignment(Afterwards(torch.neg)).verdict is Verdict.FAIL


class Planted:
    """Backprop with a defect: the gradient of the stream multiplied, detached or replaced by noise at one depth."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def backward(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        handle = model.blocks[1].register_forward_pre_hook(
            lambda m, args: args[0].register_hook(lambda g: self.factor * g) and None, prepend=True)
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        handle.remove()
        return loss.detach()


def test_a_reversed_signal_is_found_and_the_right_one_accepted(trained) -> None:
    model, x, y = trained
    assert check(audit_credit(model, x, y, rule=Planted(1.0)), "alignment").verdict is Verdict.PASS
    reversed_ = audit_credit(model, x, y, rule=Planted(-1.0))
    rows = {row[0]: row for row in reversed_.tables[1].rows}
    assert rows["h_2"][1] == pytest.approx(1.0) and rows["h_1"][1] == pytest.approx(-1.0) and rows["h_0"][1] < 0
    response = {row[0]: row for row in reversed_.tables[2].rows}
    assert response["h_1"][1] < -0.9 and response["h_1"][4] > 0
    assert response["h_2"][1] > 0.9 and response["h_2"][4] < 0


def test_feedback_that_never_trained_the_model_is_no_better_than_chance(trained) -> None:
    """The right verdict on a wrong claim: DFA matrices handed in with a model that backprop trained."""
    model, x, y = trained
    finding = audit_credit(model, x, y, rule=FeedbackAlignment(model, kind="dfa", level="block", seed=12), redraws=30)
    assert check(finding, "alignment").verdict in (Verdict.FAIL, Verdict.PARTIAL)
    healthy = assay.models.ResMLP(64, width=64, depth=4, seed=0)
    rule = FeedbackAlignment(healthy, kind="dfa", level="block", seed=12)
    assay.train(healthy, assay.tasks.digits(seed=0), rule, epochs=6, seed=0, batch_size=64)
    assert check(audit_credit(healthy, x, y, rule=rule, redraws=30), "alignment").verdict is Verdict.PASS


def arms(seeds: int, items: int, *, rule: float, backprop: float, frozen: float) -> Baselines:
    """Arms that answer items by chance with the given rates; the same items are hard for everyone."""
    generator = np.random.default_rng(0)
    hardness = generator.random(items)

    def rows(rate: float) -> dict[int, list[bool]]:
        return {s: list(hardness + 0.2 * generator.standard_normal(items) < rate) for s in range(seeds)}

    return Baselines({"rule": rows(rule), "backprop": rows(backprop), "frozen": rows(frozen)})


def test_useful_depth_passes_and_useless_depth_fails() -> None:
    assert judge_utility(arms(5, 4000, rule=0.5, backprop=0.6, frozen=0.4)).verdict is Verdict.PASS
    assert judge_utility(arms(5, 4000, rule=0.38, backprop=0.6, frozen=0.4)).verdict is Verdict.FAIL


def test_no_headroom_means_nobody_fails() -> None:
    found = judge_utility(arms(5, 4000, rule=0.41, backprop=0.41, frozen=0.4))
    assert found.verdict is Verdict.INCONCLUSIVE and "no headroom" in found.reason


def test_too_few_items_are_inconclusive_and_name_what_could_be_seen() -> None:
    found = judge_utility(arms(3, 150, rule=0.43, backprop=0.75, frozen=0.4))
    assert found.verdict is Verdict.INCONCLUSIVE and found.detectable > 0.04


def test_two_seeds_never_pass() -> None:
    found = judge_utility(arms(2, 4000, rule=0.6, backprop=0.6, frozen=0.4))
    assert found.verdict is Verdict.INCONCLUSIVE and "fewer than 3" in found.reason


def test_the_crossed_interval_covers_the_truth() -> None:
    """Items and seeds both random, shared items: 90 % intervals must cover the true gap about 90 % of the time."""
    generator = np.random.default_rng(1)
    covered = 0
    for _ in range(300):
        frozen = np.tile(generator.random(200) < 0.5, (4, 1))  # the same items at every seed: the gap is in the items
        gained = generator.random(200) < 0.2
        lucky = generator.random((4, 200)) < np.clip(0.05 + 0.02 * generator.standard_normal((4, 1)), 0, 1)
        data = Baselines({"rule": dict(enumerate(frozen | gained | lucky)), "frozen": dict(enumerate(frozen))})
        interval = crossed_gap(data, "rule", "frozen", 0.02).interval
        covered += interval.low <= 0.5 * (1 - 0.8 * 0.95) <= interval.high
    assert 0.85 <= covered / 300 <= 0.97


def test_digits_the_published_rule_fails_backprop_and_ours_says_no_headroom() -> None:
    """Backprop audited against frozen blocks where both are near the ceiling."""
    task = assay.tasks.digits(seed=0)
    options = {"batch_size": 128, "learning_rate": 5e-3}
    recipe = Recipe(build=lambda seed: assay.models.ResMLP(64, width=64, depth=2, seed=seed), epochs=15,
                    rule=lambda model, seed: assay.Backprop(), task=task, seeds=(0, 1, 2), options=options)
    model = recipe.build(0)
    assay.train(model, task, assay.Backprop(), epochs=15, seed=0, **options)
    finding = audit_credit(model, task.test.x[:64], task.test.y[:64], rule=assay.Backprop(), train=recipe)
    assert check(finding, "D3 depth utility").verdict is Verdict.FAIL
    assert finding.verdict is Verdict.INCONCLUSIVE and "no headroom" in finding.reason
