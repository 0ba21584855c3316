"""The base of all results: immutable, strict about unknown fields, and the same after a JSON round trip."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict


def _finite_or_text(value: object) -> object:
    # In a table a NaN is shown, not computed with; as text it survives JSON and compares equal.
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


Scalar = Annotated[bool | int | float | str | None, BeforeValidator(_finite_or_text)]


class Frozen(BaseModel):
    """Base of all results: immutable, strict about unknown fields, NaN and infinity kept in JSON as text."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")
