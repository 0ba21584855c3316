"""The reproduction as engine cells: planned, resumable, cached by everything a result depends on, shared between
tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from assay.engine import cell_key
from assay.learning.names import with_level
from assay.protocols import Cell, Trial
from assay.results import Run
from assay.studies.reproduce.published import SEEDS
from assay.studies.reproduce.report import Record, report
from assay.studies.study import Place, Planned, Question, Study
from assay.tasks.files import content_digest

if TYPE_CHECKING:
    from assay.studies.reproduce.methods import ProtocolTrial

CELL = "assay.studies.reproduce.methods:train_cell"
METHODS = ("backprop", "fa-block", "dfa-block")
"""The published table: feedback alignment at block boundaries."""
SOURCE_NAMES = {"bp": "backprop", "fa": "fa-block", "dfa": "dfa-block"}
"""What the source calls them: its command lines run as they are."""
LAMBDAS = (0.0, 1e-4, 1e-3, 1e-2, 1e-1)
EPOCHS, PENALTY_EPOCHS = 100, 30
TIMEOUT = 24 * 3600.0


def methods_plan(
    arch: str = "resmlp",
    methods: Sequence[str] = METHODS,
    seeds: Sequence[int] = SEEDS,
    epochs: int = EPOCHS,
) -> list[ProtocolTrial]:
    """The main table: each of ``methods`` (names of ``assay.learning.names``, with their level) at each seed."""
    from assay.studies.reproduce.methods import ProtocolTrial

    settings = []
    for seed in seeds:
        for method in methods:
            kind, _, level = with_level(SOURCE_NAMES.get(method, method)).partition("-")
            options: dict[str, Any] = {"method": "bp" if kind == "backprop" else kind, "level": level or "block"}
            settings.append(ProtocolTrial(**options, arch=arch, seed=seed, epochs=epochs))
    return settings


def frozen_plan(
    arch: str = "resmlp", seeds: Sequence[int] = SEEDS, epochs: int = EPOCHS, *, ladder: bool = False,
    shallow: bool = False,
) -> list[ProtocolTrial]:
    """The frozen-blocks baseline; with ``ladder`` backprop and DFA on the last 1, 2 and 3 blocks; with ``shallow``
    backprop on the model without its blocks.
    """
    from assay.studies.reproduce.methods import ProtocolTrial

    settings = [ProtocolTrial(method="bp", arch=arch, seed=seed, epochs=epochs, trainable=0) for seed in seeds]
    if shallow:
        settings += [ProtocolTrial(method="bp", arch=f"{arch}-shallow", seed=seed, epochs=epochs) for seed in seeds]
    if ladder:
        settings += [
            ProtocolTrial(method=method, arch=arch, seed=seed, epochs=epochs, trainable=count)
            for seed in seeds
            for count in (1, 2, 3)
            for method in ("bp", "dfa")
        ]
    return settings


def penalty_plan(
    arch: str = "resmlp", lambdas: Sequence[float] = LAMBDAS, seeds: Sequence[int] = SEEDS, epochs: int = PENALTY_EPOCHS
) -> list[ProtocolTrial]:
    """DFA at every lambda, and backprop without and with the strongest one up to 0.01."""
    from assay.studies.reproduce.methods import ProtocolTrial

    strongest = max((value for value in lambdas if value <= 1e-2), default=0.0)
    return [
        *(
            ProtocolTrial(method="dfa", arch=arch, seed=s, epochs=epochs, penalty=value)
            for s in seeds for value in lambdas
        ),
        *(
            ProtocolTrial(method="bp", arch=arch, seed=s, epochs=epochs, penalty=value)
            for s in seeds
            for value in sorted({0.0, strongest})
        ),
    ]


def whole_plan(
    arch: str = "resmlp", seeds: Sequence[int] = SEEDS, epochs: int = EPOCHS, penalty_epochs: int = PENALTY_EPOCHS
) -> list[ProtocolTrial]:
    """Everything: main table with layer-level FA, frozen and shallow baselines with the depth ladder, penalty sweep,
    and beside the ResMLP also DFA without a terminal norm, ViT-Mini and SmallResNet. What decides most comes first.
    """
    plan = [
        *methods_plan(arch, (*METHODS, "fa-layer"), seeds, epochs),
        *frozen_plan(arch, seeds, epochs, ladder=True, shallow=arch in ("resmlp", "vit")),
        *penalty_plan(arch, seeds=seeds, epochs=penalty_epochs),
    ]
    if arch == "resmlp":
        plan += methods_plan("resmlp-without-ln", ("dfa-block",), seeds, epochs)
        for other in ("vit", "resnet"):
            plan += [*methods_plan(other, METHODS, seeds, epochs), *frozen_plan(other, seeds, epochs)]
    return list(dict.fromkeys(plan))


def reproduce(
    settings: Iterable[ProtocolTrial], *, data: str | None = None, artifacts: str | None = None,
    device: str | None = None, place: Place, command: str,
) -> tuple[Run, list[Record]]:
    """The run of all different settings, one question per arm, and their records in the order of the plan."""
    planned: dict[str, list[Planned]] = {}
    different = list(dict.fromkeys(settings))
    cells = make_cells(different, data=data, artifacts=artifacts, device=device)
    for setting, cell in zip(different, cells, strict=True):
        planned.setdefault(setting.arm, []).append(Planned(Trial(setting.arm, setting.seed), cell))
    answers = Study(tuple(Question(arm, arm, tuple(its)) for arm, its in planned.items())).answer(place)
    found = {(o.trial.arm, o.trial.seed): o for outcomes in answers.outcomes.values() for o in outcomes}
    ordered = [found[setting.arm, setting.seed] for setting in different if (setting.arm, setting.seed) in found]
    records = [outcome.record for outcome in ordered if outcome.record is not None]
    failures = [outcome.failure for outcome in ordered if outcome.failure is not None]
    return report(records, failures, command=command, seconds=answers.seconds), records


def make_cells(
    settings: Iterable[ProtocolTrial], *, data: str | None = None, artifacts: str | None = None,
    device: str | None = None,
) -> list[Cell]:
    """One cell per training run, keyed by the setting, the code, the data and the device, but not by where files live.
    """
    digest = content_digest("cifar10", root=data)
    return [
        Cell(
            key=cell_key(CELL, {"setting": asdict(setting), "data": digest, **({"device": device} if device else {})}),
            target=CELL,
            payload={**asdict(setting), "data": data, "artifacts": artifacts, "device": device},
            label=setting.name,
            group=f"{setting.arch}/{setting.method}/{setting.epochs}",
            timeout=TIMEOUT,
        )
        for setting in settings
    ]
