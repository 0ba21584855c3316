"""Subjects to try the audit on: ``assay audit symmetry demo:leaky-cnn`` and its healthy twin ``demo:sound-cnn``.

Both claim that quarter turns of an image change nothing. In the sound network every kernel is the mean of its four
turns, so that each convolution commutes with them; the leaky one forgot to do so in its second convolution.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.audits.symmetry.groups.discrete import C
from assay.audits.symmetry.representations.base import invariant
from assay.audits.symmetry.representations.images import image
from assay.audits.symmetry.spec import Symmetry
from assay.seeding import torch_generator

SIZE = 16


class Convolution(nn.Module):
    """A convolution of width 3, with kernels as they were drawn."""

    def __init__(self, inputs: int, outputs: int, *, seed: int) -> None:
        super().__init__()
        drawn = torch.randn(outputs, inputs, 3, 3, generator=torch_generator(seed, "demo", "kernel"))
        self.weight = nn.Parameter(drawn / (9 * inputs) ** 0.5)

    def kernel(self) -> Tensor:
        """What the image is convolved with."""
        return self.weight

    def forward(self, x: Tensor) -> Tensor:
        return functional.conv2d(x, self.kernel(), padding=1)


class TurnedConvolution(Convolution):
    """A convolution whose kernels are the mean of their four quarter turns."""

    def kernel(self) -> Tensor:
        return torch.stack([torch.rot90(self.weight, k, (-2, -1)) for k in range(4)]).mean(0)


class Classifier(nn.Module):
    """Two convolutions, the mean over all pixels, ten classes."""

    def __init__(self, second: type[Convolution]) -> None:
        super().__init__()
        self.first = TurnedConvolution(1, 8, seed=1)
        self.second = second(8, 8, seed=2)
        self.classes = nn.Linear(8, 10)
        with torch.no_grad():
            self.classes.weight.copy_(torch.randn(10, 8, generator=torch_generator(3, "demo", "classes")))
            self.classes.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.second(torch.relu(self.first(x))))
        scores: Tensor = self.classes(hidden.mean((-2, -1)))
        return scores


def leaky_cnn() -> nn.Module:
    """The planted defect: the second convolution does not turn its kernels."""
    return Classifier(Convolution)


def sound_cnn() -> nn.Module:
    """The healthy twin: both convolutions do."""
    return Classifier(TurnedConvolution)


def sample(count: int, generator: torch.Generator) -> Tensor:
    """Images of smooth blobs: something a person recognises when it is turned."""
    grid = torch.linspace(-1, 1, SIZE)
    rows, columns = grid.reshape(1, 1, SIZE, 1), grid.reshape(1, 1, 1, SIZE)
    centres = 1.2 * torch.rand(count, 3, 2, 1, 1, generator=generator) - 0.6
    widths = 0.08 + 0.1 * torch.rand(count, 3, 1, 1, generator=generator)
    squared = (rows - centres[:, :, 0]) ** 2 + (columns - centres[:, :, 1]) ** 2
    return torch.exp(-squared / widths).sum(1, keepdim=True)


symmetry = Symmetry(C(4), inputs=image(-2, -1), outputs=invariant())
