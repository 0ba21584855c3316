"""Localisation: the planted module is named, whichever way the defect hides."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from assay import symmetry as sym
from assay.audits.symmetry import subject
from assay.results import Verdict
from assay.seeding import torch_generator

NO_GRADIENTS = ["gradients", "differences", "sizes"]


class VectorLinear(nn.Module):
    """Mixes channels of vectors [batch, point, 3, channel]; a bias is a fixed direction."""

    def __init__(self, channels: int, *, bias: bool = False) -> None:
        super().__init__()
        self.mix = nn.Linear(channels, channels, bias=bias)
        if bias:
            nn.init.constant_(self.mix.bias, 0.05)

    def forward(self, h):
        return self.mix(h)


class Gate(nn.Module):
    def forward(self, h):
        return h * torch.sigmoid(h.norm(dim=-2, keepdim=True))


class VectorNet(nn.Module):
    """Four equivariant blocks on vectors; ``bug`` puts a defect into one of them."""

    def __init__(self, bug: str = "", at: int = 1) -> None:
        super().__init__()
        self.bug, self.at = bug, at
        self.lift = VectorLinear(8)
        blocks = [nn.Sequential(VectorLinear(8, bias=bug == "bias" and i == at), Gate()) for i in range(4)]
        if bug == "relu":
            blocks[at][1] = nn.ReLU()
        if bug == "norm":
            blocks[at].append(nn.LayerNorm([3, 8], elementwise_affine=False))
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x):
        h = self.lift(x.unsqueeze(-1).expand(*x.shape, 8))
        for number, block in enumerate(self.blocks):
            h = h + block(h)
            if self.bug == "functional" and number == self.at:
                h = h + 0.01 * h[..., :1, :].abs()
        return h.mean(-1)


SPEC = sym.Symmetry(sym.O(3) * sym.S(), inputs=sym.vector() @ sym.permuted(1), outputs=sym.vector() @ sym.permuted(1))


def points(n=8):
    return torch.randn(n, 4, 3, generator=torch.Generator().manual_seed(3))


def audit(model, x=None, spec=SPEC, **options):
    return sym.audit_symmetry(model, points() if x is None else x, spec, transforms=6, skip=NO_GRADIENTS, **options)


@pytest.mark.parametrize("at", [0, 2, 3])
@pytest.mark.parametrize(
    ("bug", "place", "title"),
    [
        ("bias", "blocks.{at}.0.mix", "Bias on vectors"),
        ("relu", "blocks.{at}.1", "Nonlinearity on components"),
        ("norm", "blocks.{at}.2", "Normalisation on components"),
    ],
)
def test_the_planted_module_is_named_at_every_depth(bug, place, title, at):
    finding = audit(VectorNet(bug, at))
    assert finding.verdict is Verdict.FAIL
    assert f"'{place.format(at=at)}'" in finding.reason
    assert finding.issues[0].title == title and finding.issues[0].location == place.format(at=at)


def test_code_outside_modules_is_blamed_on_the_module_that_runs_it():
    finding = audit(VectorNet("functional", 1))
    assert finding.issues[0].location == "(model) (its own code, before it calls blocks.2)"


def test_a_clean_network_names_nothing():
    finding = audit(VectorNet())
    assert finding.verdict is Verdict.PARTIAL and not finding.issues  # partial: gradients were switched off
    table = next(t for t in finding.tables if t.title == "Layers under rotation")
    assert all(row[5] == "fits" for row in table.rows)


def test_a_second_defect_behind_the_first_is_found_by_mending_the_first():
    model = VectorNet("bias", 0)
    model.blocks[3][1] = nn.ReLU()
    finding = audit(model)
    assert "'blocks.0.0.mix'" in finding.reason
    assert any(i.title == "Another module breaks it too" and i.location == "blocks.3.1" for i in finding.issues)


def test_restoring_the_guilty_module_restores_the_output():
    finding = audit(VectorNet("relu", 3))
    rows = {row[0]: row for t in finding.tables if t.title == "Layers under rotation" for row in t.rows}
    assert rows["blocks.3.1"][8] == pytest.approx(1.0, abs=1e-6)  # D: the whole error goes away
    spared = rows["blocks.1.1"][8]  # restoring it takes nothing away; by rounding it may add a little
    assert spared == "grows" or abs(spared) < 1e-6
    assert rows["blocks.3.1"][7] == "breaks" and rows["blocks.1.1"][7] == "holds"


class Twice(nn.Module):
    """The second call of one module is fed with absolute values."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = VectorLinear(1)

    def forward(self, x):
        return self.mix(self.mix(x.unsqueeze(-1)).abs())[..., 0]


def test_calls_of_one_module_are_told_apart():
    finding = audit(Twice())
    assert finding.issues[0].location == "(model) (its own code, before it calls mix (call 2))"


def test_an_inplace_nonlinearity_does_not_blame_the_layer_before_it():
    model = VectorNet("relu", 1)
    model.blocks[1][1] = nn.ReLU(inplace=True)
    assert "'blocks.1.1'" in audit(model).reason


class Cross(nn.Module):
    def forward(self, x):
        return x + 0.1 * torch.linalg.cross(x, x.roll(1, dims=1))


def test_reflections_alone_point_to_parity():
    spec = sym.Symmetry(sym.O(3), inputs=sym.vector(), outputs=sym.vector())
    finding = audit(nn.Sequential(Cross()), spec=spec)
    assert "'0'" in finding.reason and finding.issues[0].title == "Parity"


class Absolute(nn.Module):
    def forward(self, x):
        return x - x.mean(1, keepdim=True) + 0.1 * (x - x.mean(1, keepdim=True)) * x.norm(dim=-1, keepdim=True)


def test_translations_alone_point_to_absolute_position():
    spec = sym.Symmetry(sym.SE(3), inputs=sym.point(), outputs=sym.vector())
    finding = audit(nn.Sequential(Absolute()), spec=spec)
    assert finding.issues[0].title == "Absolute position" and finding.issues[0].cause.startswith("translation:")


class Indexed(nn.Module):
    def forward(self, x):
        return x * (1 + 0.1 * torch.arange(x.shape[1]).to(x)).view(1, -1, 1)


def test_permutations_alone_point_to_an_index_leak():
    finding = audit(nn.Sequential(nn.Identity(), Indexed()))
    assert "'1'" in finding.reason and finding.issues[0].title == "Index leak"


CIRCULAR = sym.Symmetry(sym.shifts(), inputs=sym.image(-2, -1), outputs=sym.image(-2, -1))


@pytest.mark.parametrize(
    ("first", "verdict", "title"),
    [
        ({"padding_mode": "circular"}, Verdict.PARTIAL, None),
        ({"padding_mode": "zeros"}, Verdict.FAIL, "Padding"),
        ({"padding_mode": "replicate"}, Verdict.FAIL, "Padding"),
        ({"padding_mode": "circular", "stride": 2}, Verdict.FAIL, "Stride"),
    ],
)
def test_padding_and_stride_under_shifts(first, verdict, title):
    # A stride shrinks the map: only an invariant output can be claimed then.
    spec = (
        CIRCULAR
        if "stride" not in first
        else sym.Symmetry(sym.shifts(), inputs=sym.image(-2, -1), outputs=sym.invariant())
    )
    tail = [nn.ReLU()] if "stride" not in first else [nn.ReLU(), nn.AdaptiveAvgPool2d(1)]
    model = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1, **first), *tail)
    x = torch.randn(4, 1, 9 if "stride" not in first else 8, 9 if "stride" not in first else 8)
    finding = audit(model, x=x, spec=spec)
    assert finding.verdict is verdict, finding.reason
    assert [issue.title for issue in finding.issues][:1] == ([title] if title else [])


def test_zero_padding_is_exact_inside_the_margin():
    spec = sym.Symmetry(
        sym.shifts(wrap=False, reach=2), inputs=sym.image(-2, -1, margin=3), outputs=sym.image(-2, -1, margin=3)
    )
    finding = audit(nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.ReLU()), x=torch.randn(4, 1, 14, 14), spec=spec)
    assert not any(check.label == "BROKEN" for check in finding.checks)


class OrbitMean(nn.Module):
    """Invariant under C(4) by construction, if its body is applied to whole images."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x):
        return sum(self.body(torch.rot90(x, k, (-2, -1))) for k in range(4)).mean((-1, -2))


def test_zero_padding_is_no_defect_under_quarter_turns():
    spec = sym.Symmetry(sym.C(4), inputs=sym.image(-2, -1), outputs=sym.invariant())
    model = OrbitMean(nn.Conv2d(1, 3, 3, padding=1))
    assert sym.audit_symmetry(model, torch.randn(8, 1, 9, 9), spec).passed


def symmetric_blur(**options) -> nn.Module:
    model = nn.Sequential(nn.Conv2d(1, 1, 3, bias=False, **options), nn.AdaptiveAvgPool2d(1))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, 2.0, 1.0], [2.0, 5.0, 2.0], [1.0, 2.0, 1.0]])[None, None])
    return model


def test_a_stride_that_fits_odd_sizes_only_is_found_by_the_size_sweep():
    """A symmetric kernel with stride 2: (size - 3) must be even, so odd images hold and even ones break."""
    spec = sym.Symmetry(sym.C(4), inputs=sym.image(-2, -1), outputs=sym.invariant())
    skip = ["gradients", "differences", "jitter", "training", "train-mode"]
    finding = sym.audit_symmetry(symmetric_blur(stride=2), torch.randn(4, 1, 9, 9), spec, skip=skip)
    sizes = next(check for check in finding.checks if check.name == "image sizes")
    assert sizes.reason == "breaks at sizes 8, 10, holds at 7, 9, 11"
    assert any(issue.title == "Breaks at one parity of the image size" for issue in finding.issues)
    assert finding.verdict is Verdict.FAIL


def test_an_e3nn_network_is_exact_and_a_component_wise_nonlinearity_in_it_is_named():
    o3 = pytest.importorskip("e3nn.o3", reason="needs the [e3] extra")

    class Net(nn.Module):
        def __init__(self, middle: nn.Module) -> None:
            super().__init__()
            self.first, self.middle, self.last = o3.Linear("1o", "4x1o"), middle, o3.Linear("4x1o", "2x1o")

        def forward(self, x):
            return self.last(self.middle(self.first(x)))

    spec = sym.Symmetry(sym.O(3), inputs=sym.vector(), outputs=sym.irreps("2x1o"))
    x = torch.randn(8, 3)
    clean = audit(Net(nn.Identity()), x=x, spec=spec)
    assert not any(check.label == "BROKEN" for check in clean.checks)
    assert "'middle'" in audit(Net(nn.Tanh()), x=x, spec=spec).reason


def test_a_bias_on_vectors_of_centred_points_is_named_though_it_keeps_inner_products():
    class Points(nn.Module):
        """The sum over centred points of a bias times the points is zero: every inner product is kept."""

        def __init__(self):
            super().__init__()
            self.mix, self.gate = nn.Linear(1, 4), nn.Linear(4, 4)

        def forward(self, x):
            vectors = self.mix((x - x.mean(1, keepdim=True)).unsqueeze(-1)).transpose(-1, -2)
            return (vectors * torch.sigmoid(self.gate(vectors.square().sum(-1))).unsqueeze(-1)).sum(2)

    spec = sym.Symmetry(sym.SO(3), inputs=sym.vector(), outputs=sym.vector())
    skip = ("gradients", "differences", "jitter", "train-mode", "training")
    finding = sym.audit_symmetry(Points(), torch.randn(8, 5, 3), spec, transforms=6, skip=skip)
    issue = finding.issues[0]
    assert (issue.location, issue.title) == ("mix", "Bias on vectors")


class Ring(nn.Module):
    """A linear layer over pixels whose weights are those of every turned and mirrored square; not so if ``broken``."""

    def __init__(self, size: int, *, broken: bool) -> None:
        super().__init__()
        weight = torch.randint(-8, 9, (3, size, size), generator=torch_generator(0, "ring")).float()  # sums are exact
        turned = [torch.rot90(one, k, (-2, -1)) for k in range(4) for one in (weight, weight.flip(-1))]
        self.register_buffer("weight", (weight if broken else torch.stack(turned).sum(0)).flatten(1))

    def forward(self, x):
        return x.square() @ self.weight.T


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("size", [8, 12, 16])
def test_a_flattened_image_is_known_as_one(size, broken):
    model = nn.Sequential(nn.Tanh(), nn.Flatten(), Ring(size, broken=broken))
    spec = sym.Symmetry(sym.D(4), inputs=sym.image(-2, -1), outputs=sym.invariant())
    x = torch.randn(6, 1, size, size, generator=torch_generator(0, "images"))
    finding = sym.audit_symmetry(model, x, spec, inputs=6, transforms=8, skip=NO_GRADIENTS)
    assert [issue.location for issue in finding.issues] == (["2"] if broken else [])
    rows = {row[0]: row for t in finding.tables if t.title == "Layers under rotation" for row in t.rows}
    assert rows["1"][5] == "fits" and rows["1"][2].startswith("image")


@pytest.mark.parametrize(("bug", "at"), [("bias", 0), ("relu", 3)])
def test_a_model_too_large_to_trace_whole_is_traced_at_less_and_named_the_same(bug, at, monkeypatch):
    whole = audit(VectorNet(bug, at))
    monkeypatch.setattr(subject, "LARGE_BYTES", 1)
    less = audit(VectorNet(bug, at))
    assert [issue.location for issue in less.issues] == [issue.location for issue in whole.issues]
    assert next(m.value for m in less.measurements if m.name == "inputs sent through the model") < next(
        m.value for m in whole.measurements if m.name == "inputs sent through the model")
    clean = audit(VectorNet())
    assert not clean.issues


class Typed:
    """A tensor and what it is of, as steerable networks hand it on."""

    def __init__(self, tensor, kind):
        self.tensor, self.kind = tensor, kind


class Lifted(nn.Module):
    """A module on typed tensors."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, h):
        return Typed(self.inner(h.tensor), h.kind)


class Steerable(nn.Module):
    def __init__(self, *, broken):
        super().__init__()
        bad = nn.Linear(3, 3) if broken else nn.Identity()
        self.layers = nn.Sequential(Lifted(Turned(Gate())), Lifted(bad), Lifted(Turned(Gate())))

    def forward(self, x):
        return self.layers(Typed(x, "vectors")).tensor


class Turned(nn.Module):
    """A module on [..., 3, channel] for tensors [..., 3]."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x.unsqueeze(-1))[..., 0]


@pytest.mark.parametrize("broken", [False, True])
def test_modules_that_hand_on_wrapped_tensors_are_seen(broken):
    torch.manual_seed(0)
    finding = audit(Steerable(broken=broken))
    rows = {row[0]: row for t in finding.tables if t.title == "Layers under rotation" for row in t.rows}
    assert rows["layers.0"][5] == "fits" and rows["layers.2"][5] == ("breaks" if broken else "fits")
    assert {issue.location for issue in finding.issues} == ({"layers.1.inner"} if broken else set())


def test_the_tables_say_where_modules_alone_stand_and_at_how_many_elements_gradients_were_compared():
    finding = sym.audit_symmetry(VectorNet("relu", 1), points(), SPEC, transforms=6, skip=["sizes", "differences"])
    tables = {table.title: table for table in finding.tables}
    first, second = tables["Layers under rotation"], tables["Layers under reflection"]
    said = "C and D stand under rotation"
    assert said in second.note and said not in first.note
    assert any(row[8] is not None for row in first.rows) and all(row[8] is None for row in second.rows)
    compared = {row[0]: row[1] for row in tables["Gradients"].rows}
    assert compared == {"rotation": 1, "reflection": 1, "permutation": 4}
