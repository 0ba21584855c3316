"""The plugin, seen from the outside: other people's tests run under it."""

import subprocess
import sys
from xml.etree import ElementTree

import pytest
import scipy.stats  # noqa: F401 - what is loaded before an inner run is not loaded again by each of them

from assay import stats  # noqa: F401

pytest_plugins = ("pytester",)

HEADER = """
    import pytest
    from assay import stats
    from assay.results import Check, Failure, Finding, Interval, Measurement, Region, Run, Table, Verdict

    def finding(verdict, **more):
        return Finding(subject="eqprop", claim="parity with backprop", verdict=Verdict(verdict),
                       reason="the gap is what it is", **more)
"""


@pytest.fixture
def run(pytester):
    """Run test code under the plugin; returns pytest's result."""

    def run_code(body: str, *options: str):
        pytester.makepyfile(HEADER + body)
        return pytester.runpytest("-p", "no:hypothesispytest", *options)  # it would import all of hypothesis each time

    return run_code


@pytest.mark.parametrize("options", [(), ("-n", "2", "-p", "xdist")], ids=["alone", "spread"])
def test_every_finding_checked_is_in_the_report(run, pytester, options):
    from assay.results import load_run

    result = run("""
    def test_one(assay_check):
        assay_check(finding("PASS"))

    def test_two(assay_check):
        assay_check(finding("FAIL"))

    def test_three(assay_check):
        assay_check(finding("INCONCLUSIVE"))
    """, "--assay-report=out", *options)
    result.stdout.fnmatch_lines(["*report of 3 findings: out*"])
    kept = load_run(pytester.path / "out")
    assert sorted(f.verdict.value for f in kept.findings) == ["FAIL", "INCONCLUSIVE", "PASS"]
    assert "FAIL" in (pytester.path / "out" / "index.html").read_text(encoding="utf-8")


def test_a_report_that_cannot_be_written_is_said_before_the_tests_run(run):
    result = run("""
    def test_one(assay_check):
        assay_check(finding("PASS"))
    """, "--assay-report=report.pdf")
    assert result.ret != 0 and "report.pdf" in "\n".join([*result.outlines, *result.errlines])


def test_pass_passes(run):
    run("""
    def test_it(assay_check):
        assert assay_check(finding("PASS")) is None
    """).assert_outcomes(passed=1)


@pytest.mark.parametrize("verdict", ["FAIL", "ERROR"])
def test_fail_and_error_fail_with_the_reason_and_the_table(run, verdict):
    result = run(f"""
    def test_it(assay_check):
        gap = Measurement(name="gap", value=-0.12, n=5, region=Region(low=-0.03, high=0.03),
                          interval=Interval(low=-0.14, high=-0.1, confidence=0.9, method="paired t"))
        table = Table(title="Accuracy", columns=("arm", "accuracy"), rows=(("backprop", 0.97), ("eqprop", 0.85)))
        assay_check(finding("{verdict}", measurements=(gap,), tables=(table,), rerun="assay verify 2 --seeds 5"))
    """)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            f"eqprop: {verdict}: the gap is what it is",
            "claim: parity with backprop",
            "measurement  value  n  interval*claimed",
            "gap          -0.12  5  [[]-0.14, -0.1[]] (90%, paired t)  -0.03 to 0.03",
            "Accuracy",
            "eqprop    0.85",
            "again: assay verify 2 --seeds 5",
        ]
    )
    result.stdout.no_fnmatch_line("*assay_pytest.py*")  # no traceback through the plugin


@pytest.mark.parametrize("verdict", ["INCONCLUSIVE", "PARTIAL", "STUB"])
def test_undecided_is_an_outcome_of_its_own(run, verdict):
    result = run(
        f"""
    def test_decided(assay_check):
        assay_check(finding("PASS"))

    def test_undecided(assay_check):
        assay_check(finding("{verdict}"))
    """,
        "-ra",
    )
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "* .I *",
            "*= inconclusive: neither passed nor failed =*",
            f"INCONCLUSIVE *::test_undecided - eqprop: {verdict}: the gap is what it is",
            "*= 1 passed, 1 inconclusive in *",
        ]
    )
    assert result.parseoutcomes() == {"passed": 1, "inconclusive": 1}


@pytest.mark.parametrize(("options", "shown"), [(("-rI",), True), (("-rA",), True), ((), False), (("-rf",), False)])
def test_reasons_are_listed_on_request(run, options, shown):
    result = run(
        """
    def test_it(assay_check):
        assay_check(finding("INCONCLUSIVE"))
    """,
        *options,
    )
    assert ("INCONCLUSIVE test_" in result.stdout.str()) is shown


def test_verbose_names_the_outcome(run):
    result = run(
        """
    def test_it(assay_check):
        assay_check(finding("INCONCLUSIVE"))
    """,
        "-v",
    )
    result.stdout.fnmatch_lines(["*::test_it INCONCLUSIVE*"])


def test_strict_makes_undecided_fail(run, pytester):
    body = """
    def test_it(assay_check):
        assay_check(finding("INCONCLUSIVE"))
    """
    result = run(body, "--assay-strict")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*undecided, and --assay-strict is set*"])
    pytester.makeini("[pytest]\nassay_strict = true\n")
    run(body).assert_outcomes(failed=1)


def test_a_later_failure_outweighs_an_undecided_finding(run):
    run("""
    def test_finding(assay_check):
        assay_check(finding("INCONCLUSIVE"))
        assay_check(finding("FAIL"))

    def test_assertion(assay_check):
        assay_check(finding("INCONCLUSIVE"))
        assert 1 == 2
    """).assert_outcomes(failed=2)


def test_a_run_is_checked_finding_by_finding(run):
    result = run("""
    def test_all_pass(assay_check):
        assay_check(Run(id="r", created="", findings=(finding("PASS"), finding("PASS"))))

    def test_one_crashed(assay_check):
        crash = Failure(label="seed 43", kind="RuntimeError", message="boom", traceback="Traceback ...")
        assay_check(Run(id="r", created="", findings=(finding("INCONCLUSIVE"), finding("ERROR", failures=(crash,)))))

    def test_empty(assay_check):
        assay_check(Run(id="r", created=""))
    """)
    assert result.parseoutcomes() == {"passed": 1, "failed": 1, "inconclusive": 1}
    result.stdout.fnmatch_lines(["failed: seed 43: RuntimeError: boom"])


def test_a_decision_of_the_statistics_can_be_asserted(run):
    result = run("""
    def test_one_seed(assay_check):
        assay_check(stats.parity([0.9], [0.9], margin=0.03))

    def test_five(assay_check):
        assay_check(stats.parity([0.90, 0.91, 0.92, 0.90, 0.91], [0.91, 0.90, 0.92, 0.91, 0.90], margin=0.03))
    """)
    assert result.parseoutcomes() == {"passed": 1, "inconclusive": 1}


def test_something_else_is_refused_clearly(run):
    result = run("""
    def test_it(assay_check):
        assay_check(True)
    """)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*expected a Finding, a Run or a Decision; given bool*"])


def test_junit_keeps_verdict_and_reason(run, pytester):
    run(
        """
    def test_it(assay_check):
        assay_check(finding("INCONCLUSIVE"))
    """,
        "--junitxml=out.xml",
    )
    case = ElementTree.parse(pytester.path / "out.xml").getroot().find(".//testcase")
    assert case is not None
    skipped = case.find("skipped")
    assert skipped is not None
    assert skipped.get("message") == "inconclusive: eqprop: INCONCLUSIVE: the gap is what it is"
    assert {"assay", "assay_inconclusive"} <= {p.get("name") for p in case.iter("property")}


def test_the_outcome_survives_the_way_between_processes(run):
    result = run(
        """
    def test_it(assay_check):
        assay_check(finding("INCONCLUSIVE"))
    """,
        "-n1",
        "-rI",
    )
    assert result.parseoutcomes() == {"inconclusive": 1}
    result.stdout.fnmatch_lines(["INCONCLUSIVE *::test_it - eqprop: INCONCLUSIVE: *"])


def test_assert_equivariant_defers_to_the_library_when_used(run):
    run("""
    @pytest.fixture(autouse=True)
    def symmetry(monkeypatch):
        import sys, types
        module = types.ModuleType("assay.symmetry")
        module.assert_equivariant = lambda model: f"looked at {model}"
        monkeypatch.setitem(sys.modules, "assay.symmetry", module)

    def test_it(assert_equivariant):
        assert assert_equivariant("model") == "looked at model"
    """).assert_outcomes(passed=1)


def test_loading_the_plugin_imports_neither_assay_nor_torch():
    code = "import sys, assay_pytest; print([m for m in ('assay', 'torch', 'scipy', 'pydantic') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_options_are_documented_in_the_help(pytester):
    result = pytester.runpytest("--help")
    result.stdout.fnmatch_lines(["assay:", "*--assay-strict*", "*assay_strict (bool)*"])
