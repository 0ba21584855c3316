"""The dependence audit as a user meets it: its page, its cost, what it leaves behind, what it refuses."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import assay
import assay.reports.save
from assay import dependence as dep
from assay.errors import InputError
from assay.results import Verdict
from assay.seeding import torch_generator


class TinyGPT(nn.Module):
    """One head, two blocks; ``shift`` is where the mask begins above the diagonal."""

    def __init__(self, shift: int = 1) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(7, 8), nn.Linear(8, 7)
        self.blocks = nn.ModuleList([Head(1), Head(shift)])

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


class Head(nn.Module):
    def __init__(self, shift: int) -> None:
        super().__init__()
        self.qkv, self.shift = nn.Linear(8, 24), shift

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(self.shift)
        return (q @ k.mT / 8**0.5).masked_fill(hidden, -torch.inf).softmax(-1) @ v


def tokens(rows: int = 3, length: int = 10) -> Tensor:
    return torch.randint(0, 7, (rows, length), generator=torch_generator(0, "tokens"))


def test_a_shifted_mask_is_found_named_and_explained_on_the_page() -> None:
    finding = assay.audit_dependence(TinyGPT(shift=2), tokens(), dep.causal())
    assert finding.verdict is Verdict.FAIL
    (issue,) = finding.issues
    assert issue.location == "blocks.1" and "shifted by one" in issue.cause and "triu(diagonal=1)" in issue.fix
    page = assay.reports.save.RENDERERS[".md"](assay.reports.save.as_run(finding))
    assert "blocks.1" in page and "shifted by one" in page
    (picture,) = finding.figures
    assert picture.kind == "heatmap" and len(picture.grid) == 10
    future = [picture.grid[t][s] for t in range(10) for s in range(10) if s == t + 1]
    beyond = [picture.grid[t][s] for t in range(10) for s in range(10) if s > t + 1]
    assert min(future) > 1 and max(beyond) == 0, "decades above the floor of the picture"


def test_the_script_of_the_issue_shows_the_leak() -> None:
    model = TinyGPT(shift=2)
    script = assay.audit_dependence(model, tokens(), dep.causal()).issues[0].script
    printed: list[Tensor] = []
    code = script.replace("model, x = ..., ...", "")
    exec(code, {"model": model, "x": tokens(), "print": printed.append})
    assert float(printed[0]) > 1e-4


@pytest.mark.parametrize("depends", [dep.causal(), dep.rows()], ids=str)
def test_a_clean_audit_takes_at_most_ten_passes_and_leaves_the_model_bit_identical(depends: Any) -> None:
    model = TinyGPT().train()
    next(model.parameters()).grad = torch.ones_like(next(model.parameters()))
    before, random = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    calls = []

    def call(model: nn.Module, inputs: Any) -> Any:
        calls.append(1)
        return model(inputs)

    finding = assay.audit_dependence(model, tokens(), depends, call=call)
    assert finding.passed, finding.reason
    assert len(calls) <= 10 and finding.measurement("passes of the model").value == len(calls)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training and bool((next(model.parameters()).grad == 1).all())
    assert torch.equal(random, torch.get_rng_state())
    assert not any(module._forward_hooks for module in model.modules())


def test_float_inputs_have_derivatives_taken_within_ten_passes() -> None:
    calls = []

    def call(model: nn.Module, inputs: Any) -> Any:
        calls.append(1)
        return model(inputs)[0]

    x = torch.randn(3, 8, 4, generator=torch_generator(0, "x"))
    finding = assay.audit_dependence(nn.GRU(4, 4, batch_first=True), x, dep.causal(), call=call)
    assert finding.passed and len(calls) <= 10
    assert next(c for c in finding.checks if c.name == "derivatives").verdict is Verdict.PASS


def test_a_mask_that_hides_everything_is_a_failure_too() -> None:
    class Hidden(TinyGPT):
        def forward(self, tokens: Tensor) -> Tensor:
            return self.head(self.tokens(tokens))

    finding = assay.audit_dependence(Hidden(), tokens(), dep.causal())
    assert finding.verdict is Verdict.FAIL and "hides everything" in finding.reason
    constant = assay.audit_dependence(Hidden(), tokens(), dep.rows(), call=lambda m, x: 0 * m(x))
    assert constant.verdict is Verdict.FAIL and "reacts" in constant.reason


def test_a_leak_only_in_the_derivative_is_found() -> None:
    class Straight(nn.Module):
        """Rounds x in the forward pass and lets a straight-through gradient of the future pass."""

        def forward(self, x: Tensor) -> Tensor:
            mixed = x + x.flip(1)
            return x.cumsum(1) + (mixed - mixed.detach())

    finding = assay.audit_dependence(Straight(), torch.randn(2, 6, 3), dep.causal())
    assert finding.verdict is Verdict.FAIL and "derivatives" in finding.reason


def test_a_stochastic_model_is_undecided_not_blamed() -> None:
    noisy = assay.audit_dependence(nn.Identity(), torch.randn(3, 6, 2), dep.causal(),
                                   call=lambda m, x: x.cumsum(1) + torch.randn_like(x))  # fmt: skip
    assert noisy.verdict is Verdict.INCONCLUSIVE and "evaluation mode" in noisy.reason


def test_nan_is_never_a_pass() -> None:
    finding = assay.audit_dependence(nn.Identity(), torch.randn(3, 6, 2), dep.causal(),
                                     call=lambda m, x: torch.full_like(x, torch.nan))  # fmt: skip
    assert finding.verdict is not Verdict.PASS


@pytest.mark.parametrize(
    "sample, depends, words",
    [
        (torch.randn(2, 5), dep.causal(3, 1), "axis 3"),
        (torch.randn(2, 1, 3), dep.causal(), "length"),
        (torch.randn(2, 5, 3), dep.never("z"), "unknown input 'z'"),
        (torch.randn(1, 5, 3), dep.rows(), "two rows"),
        (torch.randn(2, 5, 3), dep.local(1, 9), "forbids something"),
        (torch.randn(2, 5, 3), "causal", "declaration"),
    ],
)
def test_misuse_is_told_in_one_line(sample: Tensor, depends: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        assay.audit_dependence(nn.Identity(), sample, depends)


def test_the_assertion_is_an_assertion_error_with_the_module() -> None:
    with pytest.raises(AssertionError, match=r"blocks\.1"):
        assay.assert_depends(TinyGPT(shift=2), tokens(), dep.causal())
    assert assay.assert_depends(TinyGPT(), tokens(), dep.causal()).passed


class Recurrent(nn.Module):
    """Tags and the state of an LSTM, whose rows lie along its second axis; ``leaky`` centres it over the rows."""

    def __init__(self, leaky: bool) -> None:
        super().__init__()
        self.rnn, self.leaky = nn.LSTM(3, 4, num_layers=2, batch_first=True), leaky

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        y, (hidden, cell) = self.rnn(x)
        return y, (hidden - hidden.mean(1, keepdim=True) if self.leaky else hidden, cell)


@pytest.mark.parametrize("leaky", [False, True])
def test_rows_are_found_along_whatever_axis_an_output_has_them(leaky: bool) -> None:
    x = torch.randn(6, 5, 3, generator=torch.Generator().manual_seed(0))
    finding = assay.audit_dependence(Recurrent(leaky), x, dep.rows())
    assert finding.verdict is (Verdict.FAIL if leaky else Verdict.PASS), finding.reason
    compared = {check.name.partition(": ")[2] for check in finding.checks}
    assert {"output 0", "output 1.0", "output 1.1"} <= compared, "the state is tested too"
    if leaky:
        assert "output 1.0" in finding.reason
