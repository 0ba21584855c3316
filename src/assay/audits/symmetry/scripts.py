"""Small scripts that reproduce an issue with the user's own model, without Assay's machinery where possible."""

from __future__ import annotations

from assay.audits.symmetry.facts import Facts

_HEAD = """import torch
from assay import symmetry as sym
{imports}
# model, sample and symmetry: the ones that were audited
model = ...      # {model}
sample = ...     # {sample}
symmetry = ...   # {symmetry}
"""

_BODIES = {
    "forward": """
finding = sym.audit_symmetry(model, sample, symmetry, seed={seed}, skip=("gradients", "differences"))
print(finding.verdict, finding.reason)
for table in finding.tables:
    if table.title.startswith("Layers"):
        for row in table.rows:
            print(*row)
{module}""",
    "gradient": """
finding = sym.audit_symmetry(model, sample, symmetry, seed={seed}, skip=("localise", "differences"))
for check in finding.checks:
    if "gradient" in check.name:
        print(check.name, check.label, check.reason)
""",
    "differences": """
finding = sym.audit_symmetry(model, sample, symmetry, seed={seed}, skip=("localise", "gradients"))
for check in finding.checks:
    if check.name.startswith("finite differences"):
        print(check.name, check.label, check.reason)
""",
    "self-test": """
group = symmetry.group        # bind sizes with group.bind({{...}}) where the group leaves them open
a, b = (group.sample(1, torch.Generator().manual_seed(i)) for i in (0, 1))
x = torch.randn(1, *sample.shape, dtype=torch.float64)
rep = symmetry.inputs         # and symmetry.outputs
print((rep.act(a, rep.act(b, x)) - rep.act(group.compose(a, b), x)).abs().max())   # must be 0 up to rounding
""",
}


def script(facts: Facts, kind: str, location: str) -> str:
    """A script that shows the issue; three lines are for the reader to fill in."""
    subject = facts.subject
    home = type(subject.model)
    imports = (
        f"from {home.__module__} import {home.__qualname__}" if home.__module__ not in ("__main__", "builtins") else ""
    )
    shapes = ", ".join(
        f"{name or 'x'} {tuple(leaf.shape)}"
        for name, leaf in zip(subject.input_names, subject.cases[0], strict=True)
        if hasattr(leaf, "shape")
    )
    modules = dict(subject.model.named_modules())
    module = ""
    if location in modules and location:
        module = f'print(model.get_submodule("{location}"))   # the module to look at\n'
    head = _HEAD.format(imports=imports, model=facts.name, sample=shapes, symmetry=subject.symmetry)
    return head + _BODIES[kind].format(seed=facts.options.seed, module=module)
