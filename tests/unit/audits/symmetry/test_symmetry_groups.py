"""Groups and representations obey their laws; sampling is Haar; what is not a group is refused."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay import symmetry as sym
from assay.audits.symmetry.spec import self_test
from assay.errors import InputError

CASES = [
    (sym.S(), sym.permuted(1), (2, 5, 3)),
    (sym.S(), sym.permuted(0, 1), (5, 5)),
    (sym.S(), sym.node_index(), None),
    (sym.C(4), sym.image(-2, -1), (2, 1, 6, 6)),
    (sym.D(4), sym.image(-2, -1), (2, 1, 5, 5)),
    (sym.D(4), sym.image(-2, -1) @ sym.vector(1), (2, 2, 6, 6)),
    (sym.D(4), sym.regular(1), (2, 8)),
    (sym.D(3), sym.regular(1), (2, 6)),
    (sym.D(4), sym.regular(1) @ sym.image(-2, -1), (2, 8, 4, 4)),
    (sym.C(6), sym.regular(1), (2, 6)),
    (sym.C(6), sym.vector(), (4, 2)),
    (sym.shifts(), sym.image(-2, -1), (2, 1, 6, 7)),
    (sym.shifts(1), sym.image(-1), (2, 7)),
    (sym.SO(2), sym.vector(), (4, 2)),
    (sym.O(2), sym.pseudoscalar(), (4,)),
    (sym.SO(3), sym.vector(), (4, 3)),
    (sym.O(3), sym.pseudovector(), (4, 3)),
    (sym.O(3), sym.tensor(2), (4, 3, 3)),
    (sym.SE(3), sym.point(), (4, 3)),
    (sym.E(3), sym.point(), (4, 3)),
    (sym.E(2), sym.point(1), (4, 2, 5)),
    (sym.Lorentz(), sym.vector(), (4, 4)),
    (sym.Scale(), sym.scaled(2), (4, 3)),
    (sym.sign(), sym.odd(), (4, 3)),
    (sym.time_reversal(), sym.backwards(1) @ sym.odd(of="time"), (4, 5)),
    (sym.E(3) * sym.S(), sym.point() @ sym.permuted(1), (2, 5, 3)),
    (sym.S() * sym.S(name="edges"), sym.permuted(1) @ sym.permuted(0, of="edges"), (2, 5)),
]


@pytest.mark.parametrize(("group", "rep", "shape"), CASES, ids=[f"{g}-{r}" for g, r, _ in CASES])
def test_every_representation_obeys_the_laws_of_its_group(group, rep, shape):
    if shape is None:
        x = torch.tensor([[0, 1, 2, -1], [3, 3, 4, 0]])
        bound = group.bind({"S": (5,)})
    else:
        x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        bound = group.bind(rep.sizes(shape))
    test = self_test(bound, rep, x, where="x", generator=torch.Generator().manual_seed(1))
    assert test.holds, test


@pytest.mark.parametrize(
    "group", [sym.SO(3), sym.E(3), sym.D(4), sym.Lorentz(), sym.S(4), sym.E(3) * sym.S(3)], ids=str
)
def test_inverse_and_identity_are_what_they_say(group):
    a = group.sample(10, torch.Generator().manual_seed(0))
    e, both = group.identity(10), group.compose(group.inverse(a), a)
    for part in group.parts:
        torch.testing.assert_close(both.parts[part].double(), e.parts[part].double(), atol=1e-10, rtol=0)


def test_rotations_are_haar_distributed():
    matrix = sym.SO(3).sample(20000, torch.Generator().manual_seed(0)).parts["linear"]
    assert torch.allclose(torch.linalg.det(matrix), torch.ones(20000, dtype=torch.float64))
    # Under Haar every entry has mean 0, variance 1/3, and the trace has second moment 1; 5 standard errors.
    assert float(matrix.mean(0).abs().max()) < 5 * (1 / 3 / 20000) ** 0.5
    assert float((matrix.square().mean(0) - 1 / 3).abs().max()) < 5 * (4 / 45 / 20000) ** 0.5
    trace = matrix.diagonal(dim1=1, dim2=2).sum(-1)
    assert abs(float(trace.square().mean()) - 1) < 5 * (2 / 20000) ** 0.5


def test_half_of_the_orthogonal_group_is_improper():
    determinant = torch.linalg.det(sym.O(3).sample(4000, torch.Generator().manual_seed(0)).parts["linear"])
    assert abs(float((determinant < 0).double().mean()) - 0.5) < 5 * 0.5 / 4000**0.5


@pytest.mark.parametrize(("group", "count"), [(sym.C(4), 4), (sym.D(4), 8), (sym.S(4), 24), (sym.C(4) * sym.sign(), 8)])
def test_small_groups_are_enumerated_completely_and_without_repetition(group, count):
    elements = group.elements()
    assert elements is not None and elements.count == count
    rows = torch.cat([elements.parts[p].double().reshape(count, -1) for p in group.parts], dim=1)
    assert len({tuple(row.tolist()) for row in rows}) == count


def test_large_groups_are_not_enumerated():
    assert sym.S(5).elements() is None and sym.SO(3).elements() is None


@given(st.integers(1, 4), st.integers(0, 3), st.integers(0, 1), st.integers(0, 3), st.integers(0, 1))
@settings(max_examples=30, deadline=None)
def test_dihedral_composition_matches_its_matrices(n, k, f, m, h):
    group = sym.D(n)
    a, b = group.of(torch.tensor([k % n]), torch.tensor([f])), group.of(torch.tensor([m % n]), torch.tensor([h]))
    product = group.compose(a, b).parts["linear"]
    torch.testing.assert_close(product, a.parts["linear"] @ b.parts["linear"], atol=1e-12, rtol=0)


def test_a_vector_field_turns_with_its_image():
    """The gradient of a rotated picture is the rotated gradient: fixes the convention of components against axes."""
    grid = torch.linspace(-1, 1, 9, dtype=torch.float64)
    rows, columns = torch.meshgrid(grid, grid, indexing="ij")
    picture = (rows + 0.3 * columns**2 + 0.5 * rows * columns)[None]
    field = torch.stack([1 + 0.5 * columns, 0.6 * columns + 0.5 * rows])[None]
    elements = sym.D(4).elements()
    image, vectors = sym.image(-2, -1), sym.image(-2, -1) @ sym.vector(1)
    turned = image.act(elements, picture.expand(8, 1, 9, 9))[:, 0]
    carried = vectors.act(elements, field.expand(8, 1, 2, 9, 9))[:, 0]
    spacing = float(grid[1] - grid[0])
    for axis in (0, 1):
        difference = (turned.roll(-1, 1 + axis) - turned.roll(1, 1 + axis)) / (2 * spacing)
        inner = (slice(None), slice(1, -1), slice(1, -1))
        torch.testing.assert_close(difference[inner], carried[:, axis][inner], atol=1e-9, rtol=0)


def test_permuting_nodes_and_relabelling_edges_gives_the_same_graph():
    x, edges = torch.arange(5), torch.tensor([[0, 1, 2], [3, 4, 0]])
    element = sym.S(5).sample(1, torch.Generator().manual_seed(3))
    moved = sym.permuted(0).act(element, x[None])[0]
    relabelled = sym.node_index().act(element, edges[None])[0]
    assert torch.equal(moved[relabelled], edges)


def test_a_set_of_matrices_that_is_not_closed_is_refused():
    with pytest.raises(InputError, match=r"expected a group; given 2 matrices"):
        sym.matrix_group("bad", torch.stack([torch.eye(2), 2 * torch.eye(2)]))


def test_a_set_of_matrices_without_identity_is_refused():
    with pytest.raises(InputError, match="the identity"):
        sym.matrix_group("bad", -torch.eye(2)[None])


def test_a_custom_group_takes_a_few_lines():
    swap = sym.matrix_group("exchange", torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]]))
    assert swap.elements().count == 2
    squeeze = sym.matrix_group("squeeze", draw=lambda n, g: torch.diag_embed(_pair(torch.rand(n, generator=g) + 0.5)))
    x = torch.randn(4, 2, dtype=torch.float64)
    for group in (swap, squeeze):
        assert self_test(group, sym.vector(), x, where="x", generator=torch.Generator().manual_seed(0)).holds


def test_a_finite_custom_group_is_tested_at_every_element():
    turns = sym.matrix_group("turns", sym.C(3).elements().parts["linear"])
    (draw,) = turns.generators().values()
    assert draw(50, torch.Generator().manual_seed(0)).count == 3


def test_products_refuse_two_parts_of_one_name():
    with pytest.raises(InputError, match=r"S\(name='edges'\)"):
        sym.S() * sym.S()


def test_rotations_by_45_degrees_of_a_pixel_grid_are_refused():
    with pytest.raises(InputError, match=r"C\(1\), C\(2\) or C\(4\)"):
        sym.image(-2, -1).act(sym.C(8).identity(), torch.zeros(1, 4, 4))


def test_irreps_are_exact_in_float64_and_leave_the_default_dtype_alone():
    pytest.importorskip("e3nn", reason="needs the [e3] extra")
    before = torch.get_default_dtype()
    rep = sym.irreps("2x0e + 1o + 1e + 2e + 3o")
    x = torch.randn(5, 2 + 3 + 3 + 5 + 7, dtype=torch.float64)
    test = self_test(sym.O(3), rep, x, where="x", generator=torch.Generator().manual_seed(0))
    # The float32 pitfall gives 1e-7 here.
    assert max(test.identity, test.product, test.inverse) < 1e-12
    rotation = sym.O(3).sample(5, torch.Generator().manual_seed(1)).parts["linear"]
    torch.testing.assert_close(sym.irreps("1o").matrix(rotation), rotation, atol=1e-12, rtol=0)
    assert torch.get_default_dtype() is before


def _pair(values):
    return torch.stack([values, 1 / values], dim=-1)
