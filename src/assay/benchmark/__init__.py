"""The multi-task benchmark: rules x tasks x seeds, each rule judged against backprop, with intervals and floors."""

from assay.benchmark.run import bench

__all__ = ["bench"]
