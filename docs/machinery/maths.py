"""Formulas of the pages, written in LaTeX between dollars, as MathML, which browsers draw without a script."""

from __future__ import annotations

import html as escaping
import re

from latex2mathml.converter import convert

INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', flags=re.S)
BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', flags=re.S)


def typeset(html: str) -> str:
    r"""A page with its formulas drawn; what LaTeX calls an error is an error here.

    >>> typeset('<span class="arithmatex">\\(x^2\\)</span>')[:5]
    '<math'
    """
    html = BLOCK.sub(lambda found: f'<div class="formula">{_mathml(found[1], "block")}</div>', html)
    return INLINE.sub(lambda found: _mathml(found[1], "inline"), html)


def _mathml(latex: str, display: str) -> str:
    return convert(escaping.unescape(latex).strip(), display=display)
