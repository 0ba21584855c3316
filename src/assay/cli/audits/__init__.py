"""``assay audit``: one file per audit of your own model."""
