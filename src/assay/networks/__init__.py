"""Networks and the kernels that relax them, neighbours by network; ``assay.models`` is their public face."""
