"""From measurements to checks and a verdict: the published diagnostics beside the better ones, and where they differ.
"""

from __future__ import annotations

from collections.abc import Sequence

from assay.audits.credit.alignment import is_gradient
from assay.audits.credit.measure import Credit
from assay.audits.credit.published import GRADIENT_LIMIT, GROWTH_LIMIT, UTILITY_MARGIN
from assay.audits.credit.reference import AGREES, MOST_NOISE
from assay.audits.credit.scale import ABSORPTION
from assay.results import Check, Control, Issue, Verdict

PUBLISHED = "published"
ASSAY = "assay"


def make_checks(credit: Credit) -> tuple[Check, ...]:
    """Every check of the audit: first the choice of blocks, then published and better ones side by side."""
    return (
        Check(name="blocks", verdict=Verdict.PASS, reason=str(credit.blocks), label="what was audited"),
        *_coverage(credit),
        *_published(credit),
        _scale(credit),
        _reference(credit),
        _alignment(credit),
        Check(name="depth utility", verdict=credit.utility.verdict, reason=credit.utility.reason, label=ASSAY),
        *credit.utility.checks,
    )


def decide(credit: Credit, checks: Sequence[Check], controls: Sequence[Control]) -> tuple[Verdict, str]:
    """The verdict from our own checks; published ones are shown, not obeyed.

    FAIL if the stream or the reference is broken or trained blocks do not pay. Without baselines nothing is known of
    depth utility: at best PARTIAL. Useful depth whose credit is no better than chance is PARTIAL too.
    """
    found = {check.name: check for check in checks}
    scale, reference = found["input survives"], found["reference"]
    alignment, utility = found["alignment"], found["depth utility"]
    not_told_apart = [control.name for control in controls if not control.separated]
    if not_told_apart and reference.verdict is not Verdict.FAIL:
        return Verdict.INCONCLUSIVE, f"controls not told apart: {', '.join(not_told_apart)}"
    broken = [check for check in (scale, reference, utility) if check.verdict is Verdict.FAIL]
    if broken:
        return Verdict.FAIL, "; ".join(check.reason for check in broken)
    partly = found.get("feedback coverage")
    if partly is not None and partly.verdict is Verdict.FAIL:
        return Verdict.PARTIAL, f"part of this rule is backprop: {partly.reason}"
    if utility.verdict is Verdict.STUB:
        if alignment.verdict is Verdict.FAIL:
            return Verdict.FAIL, alignment.reason
        return Verdict.PARTIAL, f"stream and reference are sound; {alignment.reason}; depth utility {utility.reason}"
    if utility.verdict is Verdict.INCONCLUSIVE:
        return Verdict.INCONCLUSIVE, utility.reason
    if alignment.verdict is Verdict.FAIL:
        return Verdict.PARTIAL, f"{utility.reason}; but {alignment.reason}"
    return Verdict.PASS, f"{utility.reason}; {alignment.reason}"


def make_controls(credit: Credit) -> tuple[Control, ...]:
    """The true gradient and a random signal, which the response of the loss must tell apart at every depth."""
    if not credit.response:
        return ()
    good = min(response.true_rho for response in credit.response)
    bad = max(abs(response.random_rho) for response in credit.response)
    separated = all(response.separated for response in credit.response)
    return (
        Control(
            name="the true gradient",
            kind="known-good",
            expected="rho near 1 and a falling loss at every depth",
            observed=f"smallest rho {good:.3f}",
            separated=separated,
        ),
        Control(
            name="a random signal",
            kind="known-bad",
            expected="rho near 0",
            observed=f"largest |rho| {bad:.3f}",
            separated=separated,
        ),
    )


def make_issues(credit: Credit) -> tuple[Issue, ...]:
    """Where a published diagnostic and the better one disagree, and why."""
    issues = []
    _, gradient_fires, utility_fires = credit.published.flags
    if gradient_fires and credit.reference.valid:
        issues.append(
            Issue(
                title="Published D2 fires on a sound reference",
                location=credit.places[-1],
                severity="low",
                cause=f"|g| = {credit.published.gradient:.2g} is small in the units of the stream (|h| = "
                f"{credit.scale.norms[-1]:.2g}); the gauge-invariant size |g| |h| / loss is "
                f"{credit.reference.invariant[-1]:.2g}. Rescaling the stream silences D2 and changes nothing else.",
                fix="read the reference check instead; compute cosines in float64 without a clamp",
            )
        )
    if not gradient_fires and not credit.reference.valid:
        issues.append(
            Issue(
                title="Published D2 misses a reference that is noise",
                location=_worst_depth(credit),
                severity="high",
                cause=f"{max(credit.reference.noise):.0%} of the samples have no gradient left in the model's own "
                "precision (saturated softmax), while the mean gradient is far from 1e-7",
                fix="compute the reference in float64, with 1 - p_y as the sum of the other probabilities",
            )
        )
    if credit.reference.clamp_corrupts:
        worst = min(credit.reference.clamped_self_cosine)
        issues.append(
            Issue(
                title="The usual cosine clamp would corrupt the comparison",
                location=credit.places[-1],
                severity="medium",
                cause=f"with eps = 1e-8 the gradient's cosine with itself reads {worst:.3f}, because |g| is near eps",
                fix="scale both vectors before the cosine, as this audit does",
            )
        )
    if utility_fires and credit.utility.verdict is Verdict.INCONCLUSIVE:
        issues.append(
            Issue(
                title="Published D3 fires where nothing can be decided",
                location="depth utility",
                severity="medium",
                cause=credit.utility.reason,
                fix="use a task with headroom, or more seeds and test items",
            )
        )
    return tuple(issues)


def _coverage(credit: Credit) -> tuple[Check, ...]:
    if credit.coverage is None:
        return ()
    whole = credit.coverage.complete
    reason = f"feedback carries the error past all {len(credit.coverage.used)} weights that send one"
    if credit.coverage.constants:
        reason += f"; fixed matrices send it through their exact transpose ({', '.join(credit.coverage.constants[:3])})"
    return (Check(name="feedback coverage", verdict=Verdict.PASS if whole else Verdict.FAIL, label="what was audited",
                  reason=reason if whole else credit.coverage.warning()),)


def _published(credit: Credit) -> tuple[Check, ...]:
    values = credit.published
    growth, gradient, utility = values.flags
    three = (
        "not run: no frozen-blocks baseline"
        if values.utility is None
        else f"{100 * values.utility:+.1f} pp over frozen"
    )
    return (
        _flag(
            "D1 scale growth", growth, f"largest growth of a block {values.growth:.3g} (fires above {GROWTH_LIMIT:g})"
        ),
        _flag(
            "D2 reference validity",
            gradient,
            f"|dL/dh| behind the last block {values.gradient:.2g} (fires below {GRADIENT_LIMIT:g})",
        ),
        _flag("D3 depth utility", utility, f"{three} (fires below {100 * UTILITY_MARGIN:g} pp)"),
        Check(
            name="published verdict",
            verdict=Verdict.FAIL if values.verdict.startswith("FAIL") else
            Verdict.PASS if values.verdict == "PASS" else Verdict.STUB,
            reason=f"{values.verdict}: (D1 and D2) or D3",
            label=PUBLISHED,
        ),
    )


def _flag(name: str, fires: bool | None, reason: str) -> Check:
    verdict = Verdict.STUB if fires is None else Verdict.FAIL if fires else Verdict.PASS
    return Check(name=name, verdict=verdict, reason=reason, label=PUBLISHED)


def _scale(credit: Credit) -> Check:
    ratio = credit.scale.absorption
    if credit.scale.absorbed:
        reason = f"|h_L| / |h_0| = {ratio:.2g} exceeds 2^24: in float32 nothing of the input is left in the stream"
        return Check(name="input survives", verdict=Verdict.FAIL, reason=reason, label=ASSAY)
    return Check(
        name="input survives",
        verdict=Verdict.PASS,
        label=ASSAY,
        reason=f"|h_L| / |h_0| = {ratio:.3g}, limit 2^24 = {ABSORPTION:.3g}",
    )


def _reference(credit: Credit) -> Check:
    share, place = max(credit.reference.noise), _worst_depth(credit)
    told = (
        f"at {place} {share:.0%} of the samples have a gradient that disagrees with the exact one (cosine < {AGREES})"
    )
    verdict = Verdict.PASS if credit.reference.valid else Verdict.FAIL
    limit = f"limit {MOST_NOISE:.0%}"
    reason = f"{told}, {limit}" if credit.reference.valid else f"the reference is noise: {told}, {limit}"
    return Check(name="reference", verdict=verdict, reason=reason, label=ASSAY)


def _alignment(credit: Credit) -> Check:
    known = [(site, a) for site, a in zip(credit.sites, credit.alignment, strict=True) if a is not None]
    if not known:
        return Check(name="alignment", verdict=Verdict.STUB, reason="not measured: no rule was given", label=ASSAY)
    judged = [(site, a) for site, a in known if not a.exact]
    if all(is_gradient(a) for _, a in judged):
        return Check(name="alignment", verdict=Verdict.PASS, reason="the rule sends the true gradient", label=ASSAY)
    above = [site for site, a in judged if a.aligned]
    null = "fresh random feedback" if credit.has_null else "a random direction"
    reason = f"the signal is better aligned than {null} at {len(above)} of {len(judged)} places"
    if len(known) > len(judged):
        reason += f" ({len(known) - len(judged)} exact by construction)"
    verdict = Verdict.PASS if 2 * len(above) > len(judged) else Verdict.PARTIAL if above else Verdict.FAIL
    return Check(name="alignment", verdict=verdict, reason=reason, label=ASSAY)


def _worst_depth(credit: Credit) -> str:
    noise = credit.reference.noise
    return credit.places[noise.index(max(noise))]
