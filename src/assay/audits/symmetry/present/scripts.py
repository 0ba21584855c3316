"""Small scripts that show an issue again with the user's own model: the part of the audit that found it, as it ran."""

from __future__ import annotations

from assay.audits.symmetry.facts import Facts

_HEAD = """import torch
from assay import symmetry as sym
{imports}
# what was audited in this session; in another one put yours in place of it
given = sym.audited("{key}")
model = given.model         # {model}
sample = given.sample       # {sample}
symmetry = given.symmetry   # {symmetry}
{call}
finding = sym.audit_symmetry(model, sample, symmetry, {how})
print(finding.verdict, finding.reason)
for check in finding.checks:
    if check.label == "BROKEN":
        print(check.name, check.label, check.reason)
"""

_LAYERS = """for table in finding.tables:
    if table.title.startswith("Layers"):
        for row in table.rows:
            print(*row)
"""

_SKIPPED = {
    "forward": ("gradients", "differences"),
    "gradient": ("localise", "differences"),
    "differences": ("localise", "gradients"),
    "self-test": (),
}


def script(facts: Facts, kind: str, location: str) -> str:
    """A script that shows the issue: it runs as it is in the session of the audit."""
    subject = facts.subject
    called = subject.own_call is not None
    home = type(subject.model)
    importable = home.__module__ not in ("__main__", "builtins") and "<locals>" not in home.__qualname__
    imports = f"from {home.__module__} import {home.__qualname__.partition('.')[0]}" if importable else ""
    shapes = ", ".join(
        f"{name or 'x'} {tuple(leaf.shape)}"
        for name, leaf in zip(subject.input_names, subject.cases[0], strict=True)
        if hasattr(leaf, "shape")
    )
    options = facts.options
    how = [f"seed={options.seed}", f"inputs={options.inputs}", f"transforms={options.transforms}"]
    how += [f"budget={options.budget}"] if options.budget is not None else []
    how += [f"skip={_SKIPPED[kind]}"] if _SKIPPED[kind] else []
    how += ["call=call"] if called else []
    text = _HEAD.format(
        imports=imports,
        model=facts.name,
        sample=shapes,
        symmetry=subject.symmetry,
        call="call = given.call           # (model, inputs) -> outputs\n" if called else "",
        key=subject.recalled,
        how=", ".join(how),
    )
    text += _LAYERS if kind == "forward" else ""
    if location and location in dict(subject.model.named_modules()):
        text += f'print(model.get_submodule("{location}"))   # the module to look at\n'
    return text
