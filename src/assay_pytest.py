"""The pytest plugin of Assay, beside the package so that pytest stays fast."""
