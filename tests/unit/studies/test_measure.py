"""What a cell keeps of a trial: JSON values, whether the track measured a mapping or a record of its own."""

from __future__ import annotations

import json
import math

from assay.frozen import Frozen
from assay.studies.measure import stored


class Told(Frozen):
    error: float
    parts: tuple[int, ...]


def test_a_record_is_kept_as_the_mapping_of_its_fields_and_read_back_as_itself() -> None:
    record = Told(error=0.25, parts=(1, 2))
    kept = stored(record)
    assert kept == stored({"error": 0.25, "parts": [1, 2]}) and Told.model_validate(kept) == record
    lost = json.loads(json.dumps(stored(Told(error=math.nan, parts=()))))
    assert math.isnan(Told.model_validate(lost).error), "a NaN comes back as one"
