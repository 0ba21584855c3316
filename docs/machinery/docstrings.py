"""Docstrings as Markdown: examples become code, equations stay as they are set."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^( *)>>> .*(?:\n(?!\s*$).*)*", flags=re.M)


class Doctests(griffe.Extension):
    """Puts every doctest of a docstring into a fence, so that ``>>>`` is not read as a quotation."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """The docstring with fences around its examples.

    >>> print(fenced("One.\\n\\n>>> 1 + 1\\n2").replace("`", "'"))
    One.
    <BLANKLINE>
    '''pycon
    >>> 1 + 1
    2
    '''
    """
    return EXAMPLE.sub(lambda found: f"```pycon\n{_dedented(found[0], len(found[1]))}\n```", text)


def _dedented(block: str, indent: int) -> str:
    return "\n".join(line[indent:] for line in block.splitlines())
