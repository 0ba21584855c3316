"""Fault tests import their misbehaving cells by name, as worker processes do."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("RAY_raylet_start_wait_time_s", "150")  # a busy machine is no fault to be tested
sys.path.insert(0, str(Path(__file__).parent))
