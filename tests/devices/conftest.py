"""Lets the tests here import the device that is played."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
