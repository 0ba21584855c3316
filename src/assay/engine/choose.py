"""An executor by name, as the command line asks for it."""

from __future__ import annotations

from collections.abc import Iterable

from assay.engine.ray.executor import RayExecutor
from assay.engine.workers.local import LocalExecutor
from assay.errors import InputError, expected, unknown

ENGINES = ("local", "ray")


def choose_executor(
    engine: str = "local", *, workers: int | None = None, address: str | None = None, modules: Iterable[str] = ()
) -> LocalExecutor | RayExecutor:
    """The executor called ``engine``; ``address`` names a Ray cluster, ``modules`` the code that must travel to it.

    >>> choose_executor("local", workers=2)
    LocalExecutor(workers=2)
    """
    if engine not in ENGINES:
        raise InputError(unknown("engine", engine, ENGINES))
    if engine == "local":
        if address is not None:
            raise expected("--engine ray with --address", given=f"--engine local --address {address}")
        return LocalExecutor(workers)
    roots = dict.fromkeys(name.partition(".")[0] for name in modules)
    return RayExecutor(address=address, workers=workers, modules=tuple(name for name in roots if name != "assay"))
