"""The suite is a module beside its tests, so that ``benchmarks/same.py`` runs the very same subjects."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
