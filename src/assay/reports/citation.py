"""How to cite a run: one sentence and one BibTeX entry that name the exact file."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from assay import __version__
from assay.reports import words
from assay.results import Run


@dataclass(frozen=True)
class Citation:
    """A run as a reference."""

    sentence: str
    bibtex: str
    fingerprint: str

    def __str__(self) -> str:
        return f"{self.sentence}\n\n{self.bibtex}\n"


def citation(run: Run) -> Citation:
    """The reference of ``run``; its fingerprint is the SHA-256 of its run.json."""
    fingerprint = hashlib.sha256(run.to_json().encode("utf-8", errors="replace")).hexdigest()
    version = run.environment.packages.get("assay", __version__)
    revision = f", code revision {run.environment.git_revision[:12]}" if run.environment.git_revision else ""
    date = run.created[:10]
    name = words.run_title(run).rstrip(".")
    sentence = f"{words.ended(name)} Assay {version}, run {run.id}, {date}{revision}, SHA-256 {fingerprint[:16]}."
    year = date[:4] if re.fullmatch(r"\d{4}", date[:4]) else ""
    fields = {
        "title": f"{{{_braced(name)}}}",
        "year": year,
        "howpublished": f"Assay {_braced(version)}, run {_braced(run.id)}",
        "note": f"{_braced(words.summary(run))} SHA-256 {fingerprint}{_braced(revision)}",
    }
    lines = "\n".join(f"  {key:<12} = {{{value}}}," for key, value in fields.items() if value)
    return Citation(sentence, f"@misc{{assay-{fingerprint[:10]},\n{lines}\n}}", fingerprint)


def _braced(text: str) -> str:
    # Braces and backslashes are the only characters that could end a BibTeX field early; the rest is LaTeX's business.
    text = " ".join(text.split()).replace("\\", " ").replace("{", "(").replace("}", ")")
    return re.sub(r"([%&$#_])", r"\\\1", text)
