"""What the symmetry audit of a network people use costs, beside the loop of 100 transformations that it replaces.

    OMP_NUM_THREADS=1 python benchmarks/symmetry_resnet.py

A ResNet-18 as it is usually written, untrained, four images of 64 x 64: not invariant to shifts (it has strides) nor to
quarter turns and reflections, so that everything is looked for; and equivariant to the order of the images, so that
nothing is found and every condition is tried. CPU seconds of one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from assay import audit_symmetry
from assay import symmetry as sym
from assay.seeding import torch_generator


class Block(nn.Module):
    """Two convolutions and the way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None if stride == 1 and inputs == outputs else nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        around = x if self.downsample is None else self.downsample(x)
        return self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))) + around)


class ResNet18(nn.Sequential):
    """Four stages of two blocks."""

    def __init__(self) -> None:
        stages = [nn.Sequential(Block(a, b, stride), Block(b, b, 1))
                  for a, b, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2))]
        super().__init__(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
                         nn.MaxPool2d(3, 2, 1), *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def seconds(job: Callable[[], object]) -> float:
    began = time.process_time()
    job()
    return time.process_time() - began


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, x = ResNet18().eval(), torch.randn(4, 3, 64, 64, generator=torch_generator(0, "images"))

    def loop() -> None:
        with torch.no_grad():
            for step in range(100):
                model(x)
                model(x.roll(step, -1))

    whole = seconds(loop)
    print(f"loop of 100 transformations: {whole:.1f} s")
    images = {"inputs": sym.image(-2, -1), "outputs": sym.invariant()}
    order = sym.Symmetry(sym.S(), inputs=sym.permuted(0), outputs=sym.permuted(0), batch=None)
    claims = [(sym.Symmetry(group, **images), True) for group in (sym.Shifts(2), sym.D(4))]
    for spec, broken in [*claims, (order, False)]:

        def asserted(spec: sym.Symmetry = spec, broken: bool = broken) -> None:
            try:
                sym.assert_equivariant(model, x, spec)
            except AssertionError:
                if not broken:
                    raise
            else:
                if broken:
                    raise SystemExit("a broken model passed")

        audit = seconds(lambda spec=spec: audit_symmetry(model, x, spec))  # type: ignore[misc]
        once = seconds(asserted)
        kind = "broken" if broken else "holds"
        print(f"{spec.group.name} ({kind}): audit {audit:.1f} s, assert_equivariant {once:.1f} s, "
              f"{once / whole:.2f} of the loop", flush=True)


if __name__ == "__main__":
    main()
