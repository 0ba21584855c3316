"""Feedback alignment reaches every weight, changes nothing else, and each variant is what its name says."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

from assay.errors import InputError
from assay.probe.samples import find_layout
from assay.rules.feedback.rule import FeedbackAlignment
from subjects import SUBJECTS, OwnProducts, backprop, batch, cosine, gradients


@pytest.mark.parametrize("name", SUBJECTS)
def test_weights_as_feedback_give_backprops_gradient(name: str) -> None:
    """B = W in float64: the same sums in the same order up to reassociation, so 1e-12 relative."""
    model, (x, y) = SUBJECTS[name]().double(), batch(name)
    x = x.double()
    wanted = backprop(model, x, y)
    FeedbackAlignment(model, feedback="weights").backward(model, x, y)
    found = gradients(model)
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        torch.testing.assert_close(found[key], value, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", SUBJECTS)
def test_exact_block_feedback_gives_backprops_gradient(name: str) -> None:
    model, (x, y) = SUBJECTS[name](), batch(name)
    wanted = backprop(model, x, y)
    FeedbackAlignment(model, level="block", feedback="weights").backward(model, x, y)
    found = gradients(model)
    assert all(torch.equal(found[key], wanted[key]) for key in wanted)


@pytest.mark.parametrize("kind", ["fa", "dfa"])
@pytest.mark.parametrize("name", SUBJECTS)
def test_every_weight_above_the_first_uses_feedback(name: str, kind: str) -> None:
    model, (x, y) = SUBJECTS[name](), batch(name)
    rule = FeedbackAlignment(model, kind=kind)
    rule.backward(model, x, y)
    assert rule.coverage.complete, str(rule.coverage)
    matrices = {n for n, p in model.named_parameters() if p.ndim > 1 and not n.startswith(("cls", "positions"))}
    first = {w.name for w in rule.coverage.weights if w.status == "first layer"}
    assert len(first) == 1 and set(rule.coverage.used) == matrices - first


def test_attention_weights_are_reached_in_every_encoder_layer() -> None:
    model, (x, y) = SUBJECTS["transformer"](), batch("transformer")
    rule = FeedbackAlignment(model)
    rule.backward(model, x, y)
    reached = [name for name in rule.coverage.used if name.startswith("encoder.layers.0.")]
    assert [name.removeprefix("encoder.layers.0.") for name in reached] == [
        "self_attn.in_proj_weight", "self_attn.out_proj.weight", "linear1.weight", "linear2.weight"]


@pytest.mark.parametrize("kind", ["fa", "dfa"])
@pytest.mark.parametrize("level", ["layer", "block"])
@pytest.mark.parametrize("name", SUBJECTS)
def test_random_feedback_keeps_the_head_exact_and_changes_what_lies_below(name: str, level: str, kind: str) -> None:
    model, (x, y) = SUBJECTS[name](), batch(name)
    wanted = backprop(model, x, y)
    FeedbackAlignment(model, kind=kind, level=level).backward(model, x, y)
    found = gradients(model)
    head = [key for key in wanted if key.endswith("weight")][-1]
    stem = next(key for key, value in wanted.items() if value.ndim > 1 and key not in ("cls", "positions"))
    assert torch.allclose(found[head], wanted[head], rtol=1e-5, atol=1e-8)
    assert abs(cosine(found[stem], wanted[stem])) < 0.8


def test_a_users_products_are_reached_an_einsum_among_them() -> None:
    model, (x, y) = OwnProducts(), batch("products")
    rule = FeedbackAlignment(model)
    rule.backward(model, x, y)
    status = {w.name: w.status for w in rule.coverage.weights}
    assert status == {"table.weight": "feedback", "places": "additive", "left": "feedback", "right": "feedback",
                      "mixed": "feedback"}
    assert rule.coverage.complete


def test_a_users_products_with_weights_as_feedback_are_backprop() -> None:
    model, (x, y) = OwnProducts().double(), batch("products")
    wanted = backprop(model, x, y)
    FeedbackAlignment(model, feedback="weights").backward(model, x, y)
    found = gradients(model)
    for key, value in wanted.items():
        torch.testing.assert_close(found[key], value, rtol=1e-12, atol=1e-14)


def test_linear_chain_matches_the_formula() -> None:
    """Two linear layers: the lower weight learns from (B e) x^T, by hand."""
    model = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Linear(4, 2, bias=False)).double()
    x, y = torch.randn(6, 3, dtype=torch.float64), torch.randint(2, (6,))
    rule = FeedbackAlignment(model, seed=7)
    rule.backward(model, x, y)
    matrix = rule.state_dict()["1.weight"]
    error = (torch.softmax(model(x), 1) - F.one_hot(y, 2)) / 6
    torch.testing.assert_close(model[0].weight.grad, ((error @ matrix).T @ x).detach())
    assert not torch.allclose(matrix, model[1].weight)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("kwargs", [{"stride": 2, "padding": 1}, {"padding": "same", "dilation": 2},
                                    {"padding": "same"}, {"padding": "valid", "groups": 2}])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_convolutions_of_every_setting_are_exact_with_their_own_weights(dimensions: int, kwargs: dict) -> None:
    layer = getattr(nn, f"Conv{dimensions}d")
    model = nn.Sequential(layer(2, 4, 3, padding=1), layer(4, 4, 4 if kwargs == {"padding": "same"} else 3, **kwargs),
                          nn.Flatten(), nn.LazyLinear(4))
    x, y = torch.randn(3, 2, *[6] * dimensions), torch.randint(4, (3,))
    model(x)
    model, x = model.double(), x.double()
    wanted = backprop(model, x, y)
    FeedbackAlignment(model, feedback="weights").backward(model, x, y)
    found = gradients(model)
    for key, value in wanted.items():
        torch.testing.assert_close(found[key], value, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("dimensions", [1, 2])
def test_transposed_convolutions_are_exact_with_their_own_weights(dimensions: int) -> None:
    layer = getattr(nn, f"ConvTranspose{dimensions}d")
    model = nn.Sequential(getattr(nn, f"Conv{dimensions}d")(2, 4, 3), layer(4, 3, 3, stride=2, output_padding=1),
                          nn.Flatten(), nn.LazyLinear(4))
    x, y = torch.randn(3, 2, *[5] * dimensions), torch.randint(4, (3,))
    model(x)
    model, x = model.double(), x.double()
    wanted = backprop(model, x, y)
    FeedbackAlignment(model, feedback="weights").backward(model, x, y)
    for key, value in gradients(model).items():
        torch.testing.assert_close(value, wanted[key], rtol=1e-10, atol=1e-13)


def test_sign_feedback_has_the_signs_of_the_weights() -> None:
    """uSF sends e sign(W) / sqrt(fan_in), frSF e (sign(W) * |M|) with the stored M; by hand on two linear layers."""
    model = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Linear(4, 2, bias=False)).double()
    x, y = torch.randn(6, 3, dtype=torch.float64), torch.randint(2, (6,))
    error = ((torch.softmax(model(x), 1) - F.one_hot(y, 2)) / 6).detach()
    signs = model[1].weight.detach().sign()
    FeedbackAlignment(model, feedback="sign").backward(model, x, y)
    torch.testing.assert_close(gradients(model)["0.weight"], (error @ signs / 2).T @ x)
    rule = FeedbackAlignment(model, feedback="sign-fixed")
    rule.backward(model, x, y)
    sizes = rule.state_dict()["1.weight"].abs()
    torch.testing.assert_close(gradients(model)["0.weight"], (error @ (signs * sizes)).T @ x)


def test_batch_random_sizes_are_redrawn_and_fixed_ones_are_not() -> None:
    model, (x, y) = SUBJECTS["plain mlp"](), batch("plain mlp")

    def twice(variant: str) -> tuple[torch.Tensor, torch.Tensor]:
        rule = FeedbackAlignment(model, feedback=variant)
        rule.backward(model, x, y)
        first = gradients(model)["0.weight"]
        rule.backward(model, x, y)
        return first, gradients(model)["0.weight"]

    assert torch.equal(*twice("sign-fixed"))
    assert not torch.equal(*twice("sign-batch"))


def test_kolen_pollack_keeps_no_matrix_that_it_does_not_use() -> None:
    """The first layer sends no error, so its matrix is emptied; one needed later is the one the optimiser has."""
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    x, y = torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])
    rule = FeedbackAlignment(model, feedback="kolen-pollack", seed=2)
    handed = dict(zip(("0.weight", "2.weight"), rule.parameters(), strict=True))
    first = handed["0.weight"].detach().clone()
    rule.backward(model, x, y)
    assert not handed["0.weight"].numel() and list(rule.state_dict()) == ["2.weight"]
    assert [p is handed["2.weight"] for p in rule.parameters()] == [True]
    assert handed["2.weight"].grad is not None
    again = rule.matrices.draw("0.weight", (6, 4), scale=0.5, like=first)
    assert rule.matrices.tensors["0.weight"] is handed["0.weight"] and torch.equal(again, first)
    asked = FeedbackAlignment(model, feedback="kolen-pollack", seed=2)
    asked.survey(model, x)
    assert len(list(asked.parameters())) == 1 and not FeedbackAlignment(model, feedback="kolen-pollack").state_dict()


@pytest.mark.parametrize("optimiser", [
    lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.5),
    lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=5.0),
])
def test_kolen_pollack_distance_decays_by_the_weight_decay(optimiser) -> None:
    """W and B take the same step, so W - B shrinks by (1 - lr * decay) = 0.95 each step, whatever the data."""
    model, (x, y) = SUBJECTS["plain mlp"](), batch("plain mlp")
    rule = FeedbackAlignment(model, feedback="kolen-pollack", seed=3)
    optim = optimiser([*model.parameters(), *rule.parameters()])
    weight, matrix = model[2].weight, rule.matrices.tensors["2.weight"]
    start = float((weight - matrix).detach().norm())
    for _ in range(20):
        optim.zero_grad()
        rule.backward(model, x, y)
        assert weight.grad.data_ptr() != matrix.grad.data_ptr() and torch.equal(weight.grad, matrix.grad)
        optim.step()
    assert float((weight - matrix).detach().norm()) == pytest.approx(start * 0.95**20, rel=1e-3)


def test_feedback_survives_a_safetensors_round_trip(tmp_path) -> None:
    model, (x, y) = SUBJECTS["vit"](), batch("vit")
    for kind, level in (("fa", "layer"), ("dfa", "layer"), ("fa", "block"), ("dfa", "block")):
        rule = FeedbackAlignment(model, kind=kind, level=level, seed=5)
        rule.backward(model, x, y)
        wanted = gradients(model)
        save_file(rule.state_dict(), tmp_path / "feedback.safetensors")
        other = FeedbackAlignment(model, kind=kind, level=level, seed=6)
        other.load_state_dict(load_file(tmp_path / "feedback.safetensors"))
        other.backward(model, x, y)
        assert all(torch.equal(value, wanted[key]) for key, value in gradients(model).items())


def test_the_seed_alone_decides_the_feedback() -> None:
    model, (x, y) = SUBJECTS["resmlp"](), batch("resmlp")
    before = torch.get_rng_state()

    def stem(seed: int) -> torch.Tensor:
        FeedbackAlignment(model, level="block", kind="dfa", seed=seed).backward(model, x, y)
        return gradients(model)["embed.weight"]

    assert torch.equal(stem(1), stem(1)) and not torch.equal(stem(1), stem(2))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_rule_serves_a_copy_of_its_model_in_another_precision() -> None:
    model, (x, y) = SUBJECTS["resmlp"](), batch("resmlp")
    rule = FeedbackAlignment(model, seed=1)
    rule.backward(model, x, y)
    single = gradients(model)["embed.weight"]
    double = copy.deepcopy(model).double()
    rule.backward(double, x.double(), y)
    torch.testing.assert_close(gradients(double)["embed.weight"].float(), single, rtol=1e-4, atol=1e-6)


def test_block_feedback_throws_the_skip_away() -> None:
    """Blocks that write nothing: backprop's error reaches the stem through the skips alone, block FA's does not."""
    model, (x, y) = SUBJECTS["resmlp"](), batch("resmlp")
    for block in model.blocks:
        nn.init.zeros_(block.w2.weight)
    wanted = backprop(model, x, y)["embed.weight"]
    FeedbackAlignment(model, level="layer").backward(model, x, y)
    kept = gradients(model)["embed.weight"]
    rule = FeedbackAlignment(model, level="block")
    rule.backward(model, x, y)
    lost = gradients(model)["embed.weight"]
    head = FeedbackAlignment(model, level="layer", feedback="weights")
    head.backward(model, x, y)
    assert cosine(gradients(model)["embed.weight"], wanted) > 0.999
    assert abs(cosine(lost, wanted)) < 0.6 and kept.norm() > 0


def test_penalty_adds_the_gradient_of_the_written_norm() -> None:
    model, (x, y) = SUBJECTS["resmlp"]().double(), batch("resmlp")
    x = x.double()
    FeedbackAlignment(model, level="block", kind="dfa").backward(model, x, y)
    plain = gradients(model)
    FeedbackAlignment(model, level="block", kind="dfa", penalty=0.3).backward(model, x, y)
    found = gradients(model)
    with torch.no_grad():
        h = model.blocks[1](model.blocks[0](model.embed(x)))
    (0.3 * model.blocks[2].write(h).pow(2).sum(1).mean()).backward()
    added = gradients(model)
    torch.testing.assert_close(found["blocks.2.w1.weight"] - plain["blocks.2.w1.weight"], added["blocks.2.w1.weight"])
    assert torch.equal(found["embed.weight"], plain["embed.weight"])


def test_functions_are_put_back_even_when_the_model_raises() -> None:
    before = (F.linear, F.conv2d, torch.matmul, torch.Tensor.__matmul__, torch.Tensor.mm)
    model = SUBJECTS["plain mlp"]()
    with pytest.raises(RuntimeError):
        FeedbackAlignment(model).backward(model, torch.zeros(2, 99), torch.zeros(2, dtype=torch.long))
    assert before == (F.linear, F.conv2d, torch.matmul, torch.Tensor.__matmul__, torch.Tensor.mm)
    assert "mm" not in torch.Tensor.__dict__


def test_a_scripted_model_is_refused_because_nothing_could_use_feedback() -> None:
    model = nn.Sequential(nn.Linear(6, 4), nn.Tanh())
    with pytest.raises(InputError, match="no weight of Sequential could use feedback"):
        FeedbackAlignment(model).backward(model, *batch("plain mlp"))


@pytest.mark.parametrize(("arguments", "message"), [
    ({"kind": "dfaa"}, "did you mean 'dfa'"),
    ({"level": "blocks"}, "did you mean 'block'"),
    ({"feedback": "sgn"}, "did you mean 'sign'"),
    ({"kind": "dfa", "feedback": "sign"}, "matrix of its own shape"),
    ({"kind": "dfa", "feedback": "weights"}, "no weight leads"),
    ({"penalty": 0.1}, "level='block' only"),
    ({"level": "block", "penalty": -1.0}, "penalty >= 0"),
])
def test_wrong_arguments_are_named(arguments: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        FeedbackAlignment(SUBJECTS["plain mlp"](), **arguments)


def test_direct_feedback_reaches_the_head_behind_experts_that_share_the_batch() -> None:
    """Sums over other rows round differently; that is not a sample reaching into others."""
    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.each = nn.ModuleList(nn.Linear(64, 64) for _ in range(2))

        def forward(self, h: torch.Tensor) -> torch.Tensor:
            out = torch.zeros_like(h)
            for number, expert in enumerate(self.each):
                rows = ((h[:, 0] > 0).long() == number).nonzero()[:, 0]
                out = out.index_copy(0, rows, expert(h.index_select(0, rows)))
            return h + out

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 64), Experts(), nn.Tanh(), nn.Linear(64, 3))
    x, y = torch.randn(40, 8), torch.arange(40) % 3
    rule = FeedbackAlignment(model, kind="dfa", seed=0)
    with pytest.warns(UserWarning, match="plain backprop"):  # a batch of an expert has no place for the error
        rule.backward(model, x, y)
    assert rule.coverage.used == ("3.weight",)
    before = torch.randn(4, 3)
    after = before.clone()
    after[0] += 1
    assert find_layout(before, after, 4) == find_layout(before, after * (1 + 1e-6), 4) == "batch first"
    assert find_layout(before, after * (1 + 1e-3), 4) is None
