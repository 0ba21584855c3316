"""Feedback matrices: drawn once from their own generator, kept by name, saved with the model they trained."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn

from assay.errors import expected
from assay.seeding import torch_generator


class Matrices:
    """Named feedback matrices; a name gives the same matrix under the same seed, in whatever order they are drawn."""

    def __init__(self, seed: int, *, learned: bool = False) -> None:
        self.seed, self.learned = seed, learned
        self.tensors: dict[str, Tensor] = {}
        self.released: dict[str, nn.Parameter] = {}
        """Learned matrices that an optimiser was given and no weight uses: empty until one does."""

    def draw(self, name: str, shape: tuple[int, ...], *, scale: float, like: Tensor) -> Tensor:
        """The matrix called ``name``: N(0, scale^2), drawn at first use, on the device and in the dtype of ``like``."""
        if name not in self.tensors:
            drawn = self.fresh(name, shape, scale=scale, like=like)
            if name in self.released:  # the optimiser knows this very one
                self.tensors[name] = self.released.pop(name)
                self.tensors[name].data = drawn
            else:
                self.tensors[name] = nn.Parameter(drawn) if self.learned else drawn
        found = self.tensors[name]
        if tuple(found.shape) != shape:
            raise expected(f"feedback '{name}' of shape {shape}", given=f"a stored one of shape {tuple(found.shape)}",
                           do="use a rule made for this model and input shape")
        return found.to(device=like.device, dtype=like.dtype)

    def fresh(self, name: str, shape: tuple[int, ...], *, scale: float, like: Tensor, step: int = 0) -> Tensor:
        """A matrix that is not kept; ``step`` tells redraws apart."""
        generator = torch_generator(self.seed, "feedback", name, *((step,) if step else ()))
        precise = torch.complex128 if like.is_complex() else torch.float64
        values = torch.randn(shape, generator=generator, dtype=precise) * scale
        return values.to(device=like.device, dtype=like.dtype)

    def learn(self, loss: Tensor, weights: Mapping[str, nn.Parameter], used: Collection[str]) -> None:
        """Runs the backward pass of ``loss``; each matrix then in ``used`` takes the whole gradient of its weight.

        The whole one, also of a weight that is used a second time without feedback (tied to an embedding): only equal
        steps bring a weight and its matrix together.
        """
        before = {name: gradient for name in self.tensors
                  if name in weights and (gradient := weights[name].grad) is not None}
        for name in before:
            weights[name].grad = None
        try:
            loss.backward()  # type: ignore[no-untyped-call]
            for name in used:
                _add(self.tensors[name], weights[name].grad)
        finally:
            for name, gradient in before.items():
                weights[name].grad = gradient if (new := weights[name].grad) is None else gradient.add_(new)

    def release(self, used: Collection[str]) -> None:
        """Give back the memory of learned matrices that no weight in ``used`` has; one that is needed after all is
        drawn again, the same."""
        for name in [name for name in self.tensors if name not in used]:
            unused = self.tensors.pop(name)
            if isinstance(unused, nn.Parameter):
                unused.data, unused.grad = unused.data.new_empty(0), None
                self.released[name] = unused

    def state_dict(self) -> dict[str, Tensor]:
        """Copies of all matrices drawn so far, ready for ``safetensors.torch.save_file``."""
        return {name: tensor.detach().clone().contiguous() for name, tensor in sorted(self.tensors.items())}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take the matrices of ``state``; one that was already drawn keeps its shape and stays the same object."""
        for name, tensor in state.items():
            known = self.tensors.get(name)
            if known is not None and known.shape != tensor.shape:
                raise expected(f"feedback '{name}' of shape {tuple(known.shape)}", given=tuple(tensor.shape))
        for name, tensor in state.items():
            if name in self.tensors:
                with torch.no_grad():
                    self.tensors[name].copy_(tensor)
            else:
                copy = tensor.detach().clone()
                self.tensors[name] = nn.Parameter(copy) if self.learned else copy


def _add(matrix: Tensor, gradient: Tensor | None) -> None:
    """Adds to ``matrix.grad``, as a backward pass would."""
    if gradient is None:
        return
    if matrix.grad is not None:
        matrix.grad.add_(gradient.to(matrix))
        return
    try:
        matrix.grad = gradient.clone()
    except RuntimeError:  # of another precision or device; asking first takes as long as the copy
        matrix.grad = gradient.to(matrix)
