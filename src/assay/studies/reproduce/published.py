"""The figures of the published audit, as data: arXiv 2606.21126, CIFAR-10, ResMLP of width 256 and depth 4.

Accuracies are mean and standard deviation over three seeds. Sizes are given to their order of magnitude in the
source, so they are compared as logarithms. ``epochs`` says after how many epochs the source reports the figure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SEEDS = (42, 123, 456)
ACCURACY_MARGIN = 0.02
"""Two points: the margin of the published D3 itself."""
DECADE_MARGIN = 0.5
"""Half a decade: figures printed as powers of ten are no more exact."""
COSINE_MARGIN = 0.1


@dataclass(frozen=True)
class PublishedNumber:
    """One published number of one arm; ``depth`` is an index into h_0 ... h_L where the quantity has one."""

    arm: str
    quantity: Literal[
        "accuracy", "gain over frozen", "|h_L|", "|g_L|", "largest growth", "cosine", "mean cosine", "mean null cosine"
    ]
    value: float
    sd: float | None = None
    epochs: int = 100
    depth: int | None = None
    below: bool = False
    """True when the source gives an upper bound instead of a value."""

    @property
    def logarithmic(self) -> bool:
        """Whether agreement is judged in decades."""
        return self.quantity in ("|h_L|", "|g_L|", "largest growth") and not self.below


FIGURES = (
    PublishedNumber("bp", "accuracy", 0.615, 0.004),
    PublishedNumber("bp", "accuracy", 0.585, epochs=30),
    PublishedNumber("bp", "|h_L|", 2e2),
    PublishedNumber("bp", "|g_L|", 4e-4),
    PublishedNumber("bp", "largest growth", 5.0, below=True),
    PublishedNumber("frozen", "accuracy", 0.349, 0.003),
    PublishedNumber("fa-block", "accuracy", 0.401, 0.009),
    PublishedNumber("fa-block", "|h_L|", 1e5),
    PublishedNumber("fa-block", "|g_L|", 9e-7),
    *(PublishedNumber("fa-block", "cosine", value, depth=d)
      for d, value in enumerate((0.016, 0.072, -0.085, 0.997), start=1)),
    PublishedNumber("fa-block", "gain over frozen", 0.052),
    PublishedNumber("dfa-block", "accuracy", 0.306, 0.008),
    PublishedNumber("dfa-block", "accuracy", 0.308, epochs=30),
    PublishedNumber("dfa-block", "accuracy", 0.301, epochs=30),
    PublishedNumber("dfa-block", "gain over frozen", -0.043),
    PublishedNumber("dfa-block", "|h_L|", 4e8),
    PublishedNumber("dfa-block", "|g_L|", 4e-9),
    PublishedNumber("dfa-block", "largest growth", 1.9e3),
    PublishedNumber("dfa-block", "cosine", 0.0, depth=4),
    PublishedNumber("bp-lambda0.01", "accuracy", 0.532, epochs=30),
    PublishedNumber("dfa-block-lambda0.0001", "accuracy", 0.359, epochs=30),
    PublishedNumber("dfa-block-lambda0.0001", "|h_L|", 2.2e4, epochs=30),
    PublishedNumber("dfa-block-lambda0.01", "accuracy", 0.36, epochs=30),
    PublishedNumber("dfa-block-lambda0.01", "|h_L|", 4e4, epochs=30),
    PublishedNumber("dfa-block-lambda0.01", "mean cosine", 0.1627, epochs=30),
    PublishedNumber("dfa-block-lambda0.01", "mean null cosine", 0.0022, epochs=30),
    PublishedNumber("dfa-block-lambda0.1", "accuracy", 0.349, epochs=30),
    PublishedNumber("dfa-block-lambda0.1", "|h_L|", 1.2e4, epochs=30),
    PublishedNumber("ep", "accuracy", 0.316, 0.037),
    PublishedNumber("ep", "|g_L|", 2e-4),
    PublishedNumber("vit-dfa-block", "accuracy", 0.237),
    PublishedNumber("resmlp-without-ln-dfa-block", "accuracy", 0.327),
)

PUBLISHED_VERDICTS = {"bp": ("PASS", "nothing"), "fa-block": ("PASS", "nothing"), "dfa-block": ("FAIL", "D1, D2, D3")}
"""What the source concludes of each arm by its own rule, and which diagnostics fired."""
VIT_FROZEN = (0.255, 0.261)
"""The frozen baseline of ViT-Mini, published as a range."""
LADDER_CLIMB = (0.22, 0.23)
"""How much backprop gains from no trained block to all, published as a range; DFA is best with none."""
