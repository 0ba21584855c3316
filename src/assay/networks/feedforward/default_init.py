"""PyTorch's default initialisation, drawn from a generator of one's own instead of the global one."""

from __future__ import annotations

import math

import torch
from torch import nn


def materialise(model: nn.Module, generator: torch.Generator) -> None:
    """Give a model built under ``torch.device("meta")`` storage and weights drawn from ``generator``.

    Linear and convolution weights and biases are uniform in +-1/sqrt(fan_in), normalisations start as the identity and
    embeddings are standard normal: what their ``reset_parameters`` would draw. Parameters a model holds itself are left
    for it to fill.
    """
    model.to_empty(device="cpu")
    for module in model.modules():
        default_init(module, generator)


@torch.no_grad()
def default_init(module: nn.Module, generator: torch.Generator) -> None:
    """Redraw the parameters this module itself owns."""
    if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
        bound = 1 / math.sqrt(module.weight[0].numel())
        module.weight.uniform_(-bound, bound, generator=generator)
        if module.bias is not None:
            module.bias.uniform_(-bound, bound, generator=generator)
    elif isinstance(module, nn.LayerNorm):
        if module.weight is not None:
            module.weight.fill_(1)
        if module.bias is not None:
            module.bias.fill_(0)
    elif isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
        module.reset_parameters()
    elif isinstance(module, nn.Embedding):
        module.weight.normal_(generator=generator)
