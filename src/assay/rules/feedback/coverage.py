"""Which weights used feedback, which needed none, and which could not be reached and why."""

from __future__ import annotations

from dataclasses import dataclass

from assay.results import Table


@dataclass(frozen=True)
class WeightCoverage:
    """One weight: ``reached`` is False when its transpose may have carried the error, and ``reason`` says why."""

    name: str
    status: str
    reached: bool
    reason: str


@dataclass(frozen=True)
class Coverage:
    """Every parameter with two or more axes and what became of it, read from the graph of a forward pass.

    Products of data with data (attention, gates) send their errors exactly, as activations do. Where a weight alone
    stands in such a product, or makes one factor out of what the other comes from, it is not reached.

    ``leaks`` names parameters behind a weight that still receive an error when all feedback is zero: the proof that the
    graph was read rightly leaves none.
    """

    weights: tuple[WeightCoverage, ...]
    leaks: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """True when no parameter's transpose can have carried the error; matrices that are no parameters have no
        feedback and do not count (``constants``)."""
        return all(weight.reached for weight in self.weights) and not self.leaks

    @property
    def missed(self) -> tuple[str, ...]:
        """Names of the weights whose own values carry the error: plain backprop."""
        return tuple(weight.name for weight in self.weights if not weight.reached) or self.leaks

    @property
    def constants(self) -> tuple[str, ...]:
        """Names of fixed matrices (buffers, tables) whose exact transpose carries the error.

        Nothing trains them, so they hide no learning. Who wants feedback there too, as for a random projection, makes
        them ``nn.Parameter(matrix, requires_grad=False)``.
        """
        return tuple(weight.name for weight in self.weights if weight.status == "constant")

    def warning(self) -> str:
        """One sentence on what is plain backprop and why."""
        first = next((weight for weight in self.weights if not weight.reached), None)
        why = f" ({first.name} is {first.reason})" if first is not None else ""
        return (f"feedback does not reach {len(self.missed)} of {len(self.weights)} weights: through "
                f"{', '.join(self.missed[:5])} the error travels as in plain backprop{why}")

    def notice(self) -> str:
        """One sentence on fixed matrices, which may stand for weights that somebody trained before."""
        return (f"the error goes exactly through what is fixed (a buffer, a table) and has no feedback: "
                f"{', '.join(self.constants[:5])}; if it is a weight, make it nn.Parameter(..., "
                "requires_grad=False)")

    @property
    def used(self) -> tuple[str, ...]:
        """Names of the weights that sent an error through feedback."""
        return tuple(weight.name for weight in self.weights if weight.status == "feedback")

    def __str__(self) -> str:
        width = max((len(weight.name) for weight in self.weights), default=0)
        lines = [f"{w.name:<{width}}  {w.status}{': ' + w.reason if w.reason else ''}" for w in self.weights]
        lines += [f"{name}  still receives an error when all feedback is zero" for name in self.leaks]
        parameters = len(self.weights) - len(self.constants)
        exact = f"; the error goes exactly through {len(self.constants)} fixed" if self.constants else ""
        return "\n".join([f"feedback on {len(self.used)} of {parameters} weights{exact}", *lines])

    def table(self) -> Table:
        """The same for a report."""
        rows = tuple((w.name, w.status, w.reason) for w in self.weights)
        return Table(title="Which weights used feedback", columns=("weight", "status", "reason"), rows=rows)
