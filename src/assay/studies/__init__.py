"""Studies: arms x seeds -> cells -> outcomes -> findings -> Run. Verification, benchmark, tuning, reproduction."""
