"""Audits: each looks at one subject of the user's own and returns a Finding, with the controls that calibrate it."""
