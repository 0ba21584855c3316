"""Models as people write them: with locks, memory, dropout called in ``forward``, padding masks, autocast, compiled."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from assay import symmetry as sym
from assay.errors import InputError
from assay.results import Finding, Verdict

pytestmark = pytest.mark.filterwarnings("ignore")
SMALL = {"inputs": 6, "transforms": 4}
ROTATIONS = sym.Symmetry(sym.SO(3), inputs=sym.vector(), outputs=sym.invariant())
SET = sym.Symmetry(sym.S(), inputs=sym.permuted(1), outputs=sym.invariant())


def audited(model: nn.Module, sample: Any, spec: sym.Symmetry = ROTATIONS, **options: Any) -> Finding:
    return sym.audit_symmetry(model, sample, spec, **{**SMALL, **options})


def labels(finding: Finding) -> dict[str, str]:
    return {check.name: check.label for check in finding.checks}


def verdict_of(broken: bool) -> Verdict:
    return Verdict.FAIL if broken else Verdict.PASS


class Locked(nn.Module):
    """Holds what cannot be copied."""

    def __init__(self, *, broken: bool) -> None:
        super().__init__()
        self.broken, self.head = broken, nn.Linear(1, 2)
        self.lock, self.files = threading.Lock(), {"log": [threading.Lock()]}

    def forward(self, x: Tensor) -> Tensor:
        with self.lock:
            return self.head(x[..., :1] if self.broken else x.norm(dim=-1, keepdim=True))


@pytest.mark.parametrize("broken", [False, True])
def test_what_cannot_be_copied_is_shared_with_the_copies(broken: bool) -> None:
    torch.manual_seed(0)
    model = Locked(broken=broken)
    before = model.lock
    assert audited(model, torch.randn(6, 3)).verdict is verdict_of(broken)
    assert model.lock is before and not before.locked()


class Dropping(nn.Module):
    """Dropout as a function, inside attention and inside a recurrent layer; ``normed`` adds batch statistics."""

    def __init__(self, *, normed: bool = False) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True)
        self.read, self.norm = nn.GRU(8, 4, num_layers=2, dropout=0.5), nn.BatchNorm1d(1) if normed else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        x = functional.dropout(self.attend(x, x, x)[0], 0.5, self.training).sum(1)
        return self.read(self.norm(x.mean(1, keepdim=True)).expand(-1, 8).unsqueeze(0))[0][0]


def test_dropout_called_in_forward_is_no_noise_of_training_mode() -> None:
    torch.manual_seed(0)
    finding = audited(Dropping().train(), torch.randn(6, 5, 8), SET)
    assert finding.verdict is Verdict.PASS, finding.reason
    assert labels(finding)["train mode"] == labels(finding)["train mode, rows moved apart"] == "EXACT"


class PerNode(nn.Module):
    """Batch statistics of every place for itself, and dropout: broken in training mode only."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(5)

    def forward(self, x: Tensor) -> Tensor:
        return functional.dropout(self.norm(x).relu(), 0.5, self.training).sum(1)


def test_dropout_hides_no_break_of_training_mode() -> None:
    torch.manual_seed(0)
    finding = audited(PerNode(), torch.randn(6, 5, 4), SET)
    assert finding.verdict is Verdict.PARTIAL and labels(finding)["train mode, rows moved apart"] == "BROKEN"


class Remembers(nn.Module):
    """Averages what it says with what it said last."""

    def __init__(self, *, broken: bool) -> None:
        super().__init__()
        self.broken, self.last = broken, torch.zeros(1)

    def forward(self, x: Tensor) -> Tensor:
        y = x[..., 0] if self.broken else x.square().sum(-1)
        y = y + 0.5 * (self.last if self.last.shape == y.shape else torch.zeros_like(y))
        self.last = y
        return y


@pytest.mark.parametrize("broken", [False, True])
def test_a_model_that_remembers_is_told_and_tested_with_its_memory_put_back(broken: bool) -> None:
    finding = audited(Remembers(broken=broken), torch.randn(6, 3), skip=("gradients", "differences"))
    assert finding.verdict is (Verdict.FAIL if broken else Verdict.PARTIAL), finding.reason
    assert finding.issues[0].title == "The model keeps state between calls"
    tested = [check for check in finding.checks if check.name == "rotation: output"]
    assert [check.label for check in tested] == ["BROKEN" if broken else "EXACT"]


class Padded(nn.Module):
    """An encoder with a padding mask: in evaluation mode torch hands nested tensors from layer to layer."""

    def __init__(self, *, placed: bool) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encode = nn.TransformerEncoder(layer, 2)
        self.places = nn.Parameter(torch.randn(6, 8) * 0.1) if placed else None

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x if self.places is None else x + self.places
        return self.encode(x, src_key_padding_mask=mask).masked_fill(mask.unsqueeze(-1), 0.0).sum(1)


@pytest.mark.parametrize("placed", [False, True])
def test_an_encoder_with_a_padding_mask_is_seen_inside(placed: bool) -> None:
    torch.manual_seed(0)
    spec = sym.Symmetry(sym.S(), inputs=(sym.permuted(1), sym.permuted(1)), outputs=sym.invariant())
    mask = torch.arange(6) >= torch.tensor([2, 3, 4, 5, 6, 6]).unsqueeze(1)
    finding = audited(Padded(placed=placed).eval(), (torch.randn(6, 6, 8), mask), spec)
    assert finding.verdict is verdict_of(placed), finding.reason
    assert "localise" not in labels(finding)
    if placed:
        assert finding.issues[0].title == "Index leak"


class Slopes(nn.Module):
    """A derivative by vmap and jacrev in the forward pass."""

    def __init__(self, *, broken: bool) -> None:
        super().__init__()
        self.broken, self.head = broken, nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x: Tensor) -> Tensor:
        def energy(one: Tensor) -> Tensor:
            return self.head(one[:1] if self.broken else one.square().sum(-1, keepdim=True))[0]

        return torch.func.vmap(torch.func.jacrev(energy))(x)


@pytest.mark.parametrize("broken", [False, True])
def test_derivatives_by_vmap_do_not_stop_the_search_for_the_place(broken: bool) -> None:
    torch.manual_seed(0)
    spec = sym.Symmetry(sym.SO(3), inputs=sym.vector(), outputs=sym.vector())
    finding = audited(Slopes(broken=broken), torch.randn(6, 3), spec)
    assert finding.verdict is verdict_of(broken) and "localise" not in labels(finding), finding.reason


class Lowered(nn.Module):
    """Half precision by autocast inside a float32 model."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.out = nn.Linear(3, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.out(self.inner(x).cumsum(1).tanh().sum(1))


def test_a_step_in_half_precision_is_not_called_a_discontinuity() -> None:
    torch.manual_seed(0)
    finding = audited(Lowered(), torch.randn(6, 5, 3), SET)
    assert finding.verdict is Verdict.FAIL
    assert "discontinuous" not in finding.reason + " ".join(issue.title for issue in finding.issues)


class Cutoff(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        apart = (x.unsqueeze(2) - x.unsqueeze(1)).square().sum(-1)
        return (torch.exp(-apart) * (apart < 2.25)).sum((1, 2))


def test_a_cutoff_at_the_distance_of_a_lattice_is_called_discontinuous() -> None:
    corners = torch.stack(torch.meshgrid(*[torch.arange(2.0)] * 3, indexing="ij"), dim=-1).reshape(8, 3)
    finding = audited(Cutoff(), (1.5 * corners).expand(6, 8, 3).clone())
    assert finding.verdict is not Verdict.PASS
    assert not finding.issues or finding.issues[0].title == "The output is discontinuous"
    assert audited(Cutoff(), torch.randn(6, 8, 3)).verdict is Verdict.PASS


@pytest.mark.slow
@pytest.mark.parametrize("broken", [False, True])
def test_a_compiled_model_is_audited_by_the_code_it_was_compiled_from(broken: bool) -> None:
    torch.manual_seed(0)
    model = torch.compile(Locked(broken=broken), backend="eager")
    finding = audited(model, torch.randn(6, 3))
    assert finding.verdict is verdict_of(broken), finding.reason
    assert "compiled" in labels(finding)


@pytest.mark.parametrize(("model", "message"), [
    (lambda x: x.square().sum(-1), "a function of the inputs needs a torch.nn.Module"),
    (type("Arrays", (nn.Module,), {"forward": lambda self, x: x.norm(dim=-1).detach().numpy()})(), "returns ndarray"),
])
def test_what_is_no_model_is_refused_with_what_to_do(model: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        audited(model, torch.randn(6, 3))
