"""The multi-task benchmark: rules x tasks x seeds, each rule judged against backprop, with intervals and floors."""

from assay.studies.bench.run import bench

__all__ = ["bench"]
