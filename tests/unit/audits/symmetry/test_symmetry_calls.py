"""The calls people use: the snippet of the guide, assertions, quick audits, comparisons, logging, template, command."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

import assay
from assay import symmetry as sym
from assay.errors import NotPassed
from assay.results import Finding, Verdict

BATCH_ORDER = sym.Symmetry(sym.S(), inputs=sym.permuted(0), outputs=sym.permuted(0))
QUARTERS = sym.Symmetry(sym.C(4), inputs=sym.image(-2, -1), outputs=sym.invariant())


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)
    )


class OrbitMean(nn.Module):
    """The mended network: the mean over the four quarter turns."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x):
        return sum(self.body(torch.rot90(x, k, (-2, -1))) for k in range(4))


def images(n=8, size=12):
    return torch.randn(n, 1, size, size, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def finding() -> Finding:
    return assay.audit_symmetry(cnn(), images(), QUARTERS, seed=0)


def test_the_snippet_names_the_first_module_that_breaks_it(finding):
    assert finding.verdict is Verdict.FAIL
    assert "first module that breaks rotation is '0' (Conv2d)" in finding.reason
    assert finding.issues[0].title == "Kernel is not symmetric"


def test_batch_order_passes():
    sym.assert_equivariant(cnn(), images(), BATCH_ORDER)
    assert sym.audit_symmetry(cnn(), images(4), BATCH_ORDER, transforms=4).passed


def test_a_finding_survives_json(finding):
    assert Finding.model_validate_json(finding.model_dump_json()) == finding


def test_the_pictures_are_there(finding):
    assert {"depth-rotation", "two-precisions", "edge-map-rotation"} <= {figure.key for figure in finding.figures}
    spec = sym.Symmetry(sym.SO(2), inputs=sym.vector(), outputs=sym.vector())
    turned = sym.audit_symmetry(nn.Tanh(), torch.randn(8, 2), spec, transforms=4)
    angles = next(figure for figure in turned.figures if figure.key == "error-against-angle")
    y = angles.series[0].y
    assert y[6] < 1e-12 < y[1]  # tanh knows the axes: exact at 90 degrees, broken between


def test_every_issue_has_a_script_a_fix_and_a_place(finding):
    for issue in finding.issues:
        assert issue.location and issue.cause and issue.fix
        compile(issue.script, "issue", "exec")


def test_the_text_template_has_every_section(finding):
    text = sym.original_template(finding)
    assert sym.seed_template is sym.original_template, "the older name is read for one release"
    for section in ("Intended Symmetry: C(4)", "Symmetry Type: Invariant", "END-TO-END TESTS", "LAYER-WISE ANALYSIS",
                    "GRADIENT TEST", "IDENTIFIED ISSUES", "OVERALL VERDICT: FAIL", "Recommendations:"):  # fmt: skip
        assert section in text
    assert "- Layer: 0 (Conv2d" in text and "Severity: High" in text
    # It is a rendering: a finding that went through JSON gives the same text.
    assert sym.original_template(Finding.model_validate_json(finding.model_dump_json())) == text


def test_the_template_says_untested_where_nothing_was_tested():
    skip = ["gradients", "differences", "localise"]
    found = sym.audit_symmetry(
        nn.Tanh(), torch.randn(4, 5), sym.Symmetry(sym.S(), inputs=sym.permuted(1), outputs=sym.permuted(1)), skip=skip
    )
    text = sym.original_template(found)
    assert "- RESULT: UNTESTED" in text and "OVERALL VERDICT: NEEDS_ATTENTION" in text


def test_an_assertion_raises_with_the_place():
    with pytest.raises(AssertionError, match=r"'0' \(Conv2d\)") as caught:
        sym.assert_equivariant(cnn(), images(), QUARTERS)
    assert isinstance(caught.value, NotPassed) and caught.value.finding.verdict is Verdict.FAIL


@pytest.mark.parametrize("value", [float("nan"), 0.0])
def test_an_assertion_does_not_pass_nan_or_a_constant(value):
    class Constant(nn.Module):
        def forward(self, x):
            return x.sum((1, 2, 3)) * 0 + value

    with pytest.raises(AssertionError):
        sym.assert_equivariant(Constant(), images(), QUARTERS)


def test_quick_audits_agree_with_the_core():
    options = {"transforms": 4, "skip": ["differences", "training"]}
    norm, points = _Norm(), torch.randn(8, 5, 3)
    assert sym.audit_so3(norm, points, **options).verdict is Verdict.PARTIAL
    assert sym.audit_se3(norm, points, **options).verdict is Verdict.FAIL
    assert sym.audit_permutations(norm, points, outputs_as=sym.permuted(1), **options).verdict is Verdict.PARTIAL
    assert sym.audit_images(cnn(), images(), **options).verdict is Verdict.FAIL
    assert sym.audit_invariance(norm, points, sym.O(3), inputs_as=sym.vector(), **options).verdict is Verdict.PARTIAL
    found = sym.audit_equivariance(
        norm, points, sym.O(3), inputs_as=sym.vector(), outputs_as=sym.pseudoscalar(), **options
    )
    assert found.verdict is Verdict.FAIL


class _Norm(nn.Module):
    def forward(self, x):
        return x.norm(dim=-1)


def test_a_mended_model_is_told_from_one_that_is_only_better():
    broken, x = cnn(), images()
    mended = sym.against(broken, OrbitMean(broken), x, QUARTERS)
    assert mended.verdict is Verdict.PASS and mended.measurements[0].value < -8
    assert sym.against(OrbitMean(broken), broken, x, QUARTERS).verdict is Verdict.FAIL
    assert sym.against(broken, broken, x, QUARTERS).verdict is Verdict.FAIL
    assert sym.against(broken, _Softer(broken), x, QUARTERS).verdict is Verdict.PARTIAL
    assert sym.against(OrbitMean(broken), OrbitMean(broken), x, QUARTERS).reason == "both models hold"


class _Softer(nn.Module):
    """A thousandth of the defect is left."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body, self.mean = body, OrbitMean(body)

    def forward(self, x):
        return self.mean(x) + 1e-3 * self.body(x)


def test_the_logger_sees_training_break_a_symmetry_and_changes_nothing():
    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(3))

        def forward(self, x):
            return x + self.bias

    logged: list[tuple[dict[str, float], int]] = []
    spec = sym.Symmetry(sym.SO(3), inputs=sym.vector(), outputs=sym.vector())
    logger = sym.EquivarianceLogger(
        torch.randn(8, 3), spec, every=2, log=lambda values, step: logged.append((values, step))
    )
    model = Shifted().train()
    for step in range(4):
        logger(model, step)
        with torch.no_grad():
            model.bias.add_(0.1)
    assert [entry.step for entry in logger.history] == [0, 2]
    assert [entry.broken for entry in logger.history] == [False, True]
    assert model.training and model.bias.grad is None
    assert [step for _, step in logged] == [0, 2] and logger.figure().series[0].x == (0.0, 2.0)


def test_importing_the_facade_does_not_import_torch():
    code = "import sys; from assay import symmetry; dir(symmetry); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(AttributeError, match="did you mean 'permuted'"):
        sym.permute


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "symmetry_project.py").write_text(
        "import torch\nfrom torch import nn\nfrom assay import symmetry as sym\n"
        "def broken():\n    return nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.AdaptiveAvgPool2d(1))\n"
        "def good():\n    return nn.AdaptiveAvgPool2d(1)\n"
        "def sample(n, generator):\n    return torch.randn(n, 1, 8, 8, generator=generator)\n"
        "spec = sym.Symmetry(sym.C(4), inputs=sym.image(-2, -1), outputs=sym.invariant())\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "symmetry_project"
    sys.modules.pop("symmetry_project", None)


def test_the_command_audits_a_model_by_import_path(project, capsys):
    import typer
    from typer.testing import CliRunner

    from assay.cli.audits.symmetry import audit_symmetry

    app = typer.Typer()
    app.command()(audit_symmetry)
    result = CliRunner().invoke(app, [f"{project}:broken", "--symmetry", f"{project}:spec", "--inputs", "4"])
    assert result.exit_code == 1 and "FAIL" in result.output
    args = [f"{project}:good", "--symmetry", f"{project}:spec", "--against", f"{project}:broken", "--inputs", "4"]
    assert CliRunner().invoke(app, args).exit_code == 0
