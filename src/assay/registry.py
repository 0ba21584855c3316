"""Tracks by number or name: numbered claims, each with its measurement, its decision and its controls."""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

from assay.errors import FOREIGN, InputError, expected, unknown
from assay.protocols import TrackBody
from assay.results import Failure

ENTRY_POINT_GROUP = "assay.tracks"
BUILT_IN = "assay.tracks"

Body = TypeVar("Body", bound=type)


@dataclass(frozen=True)
class Track:
    """A numbered, named claim and how it is tested.

    ``kind`` says what evidence means: a statistical claim needs seeds, a deterministic one inputs and precisions.
    The content hash of every cell covers all code that the track's module can import (``assay.engine.identity``) and
    the versions of the packages it imports; ``sources`` adds modules that cannot be seen there (loaded by a computed
    name), ``extras`` distributions that are used without an import. ``also`` are further numbers it answers to. One
    ``on_request`` is run when it is named or when all are asked for, not by default.
    """

    number: int
    name: str
    claim: str
    body: TrackBody
    title: str
    experiment: str
    kind: Literal["statistical", "deterministic"]
    version: int
    sources: tuple[str, ...]
    extras: tuple[str, ...]
    module: str
    timeout: float
    also: tuple[int, ...] = ()
    on_request: bool = False

    @property
    def numbers(self) -> tuple[int, ...]:
        """Every number it answers to, its own first."""
        return (self.number, *self.also)


MOVED: Mapping[int, int] = {31: 131, 32: 132, 34: 134}
"""Old numbers of tracks that moved out of the way of the original's numbering; read for one release.

33 is not among them: it is the original's number of the convolutional claim (13) now, and 133 what 33 used to be."""


@dataclass
class Registry:
    """Tracks by number and name; a broken plugin is kept as a failure, never dropped."""

    tracks: dict[int, Track] = field(default_factory=dict)
    broken: dict[str, Failure] = field(default_factory=dict)
    loaded: bool = False

    def add(self, track: Track) -> None:
        """Register a track; a number or name already taken by another module is refused."""
        for known in self.tracks.values():
            same_place = (known.module, known.number, known.name) == (track.module, track.number, track.name)
            if not same_place and (set(known.numbers) & set(track.numbers) or known.name == track.name):
                raise InputError(
                    f"track {track.number} '{track.name}' ({track.module}) clashes with track {known.number} "
                    f"'{known.name}' ({known.module}); choose another number and name"
                )
        self.tracks[track.number] = track

    def load(self) -> Registry:
        """Import the built-in tracks and every ``assay.tracks`` entry point, once."""
        if not self.loaded:
            self.loaded = True
            for module in _built_in():
                self._import(module, f"{BUILT_IN}.{module}")
            for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
                self._import(point.name, point.value)
        return self

    def load_module(self, name: str) -> None:
        """Import a module that defines tracks, as configuration or a test asks for; failures are kept."""
        self._import(name, name)

    def find(self, key: str | int) -> Track:
        """The track with this number or name; InputError with the nearest name otherwise."""
        self.load()
        text = str(key).strip()
        if text.lstrip("-").isdigit():
            for number in (int(text), MOVED.get(int(text))):
                for track in self.tracks.values():
                    if number in track.numbers:
                        return track
        else:
            for track in self.tracks.values():
                if track.name == text:
                    return track
        known = [f"{t.number} ({t.name})" for t in self.ordered()]
        names = [t.name for t in self.ordered()]
        if text.lstrip("-").isdigit():
            raise InputError(f"unknown track {text}; known: {', '.join(known)}{self._not_loaded()}; see: assay tracks")
        raise InputError(f"{unknown('track', text, names)}{self._not_loaded()}; see: assay tracks")

    def _not_loaded(self) -> str:
        """The track asked for may be one of those that could not be loaded."""
        return "".join(f"; {failure.message}" for failure in self.broken.values())

    def ordered(self) -> list[Track]:
        """All tracks by number."""
        self.load()
        return [self.tracks[number] for number in sorted(self.tracks)]

    def standing(self) -> list[Track]:
        """The tracks that are run when none is named, by number."""
        return [track for track in self.ordered() if not track.on_request]

    def _import(self, name: str, module: str) -> None:
        try:
            importlib.import_module(module.partition(":")[0])
        except FOREIGN as error:
            self.broken[name] = Failure(
                label=f"plugin {name}",
                kind=type(error).__name__,
                message=f"tracks of '{module}' could not be loaded: {error}",
                traceback=traceback.format_exc(),
            )


def _built_in() -> Iterator[str]:
    """Every module of the built-in tracks and of their rooms; what a room keeps in folders of its own is no track."""
    house = importlib.import_module(BUILT_IN).__path__
    for found in pkgutil.iter_modules(house):
        if not found.ispkg:
            yield found.name
            continue
        for module in pkgutil.iter_modules([str(Path(place) / found.name) for place in house]):
            if not module.ispkg:
                yield f"{found.name}.{module.name}"


registry = Registry()
"""The one registry of this process."""


def track(
    number: int,
    name: str,
    *,
    claim: str,
    title: str | None = None,
    experiment: str = "",
    kind: Literal["statistical", "deterministic"] = "statistical",
    version: int = 1,
    sources: Iterable[str] = (),
    extras: Iterable[str] = (),
    timeout: float = 3600.0,
    also: Iterable[int] = (),
    on_request: bool = False,
) -> Callable[[Body], Body]:
    """Register the decorated class as a track; see ``assay.protocols.TrackBody`` for what it provides.

    >>> from assay.protocols import known_bad, known_good
    >>> @track(9000, "example", claim="two and two are four", kind="deterministic", sources=())
    ... class Example:
    ...     controls = (known_good("control: four", "sum"), known_bad("control: five", "sum"))
    ...     def trials(self, budget, seeds): ...
    ...     def measure(self, trial): ...
    ...     def decide(self, outcomes): ...
    """
    also = tuple(also)
    for each in (number, *also):
        if isinstance(each, bool) or not isinstance(each, int) or each < 0:
            raise expected("a track number >= 0", given=repr(each))
    if not name or not name.replace("-", "").isalnum() or name != name.lower() or name.isdigit():
        raise expected("a track name of lower-case letters, digits and dashes", given=repr(name))
    if isinstance(timeout, bool) or not 0 < float(timeout) < float("inf"):
        raise expected("a finite timeout > 0, in seconds", given=f"timeout={timeout!r}")

    def register(body: Body) -> Body:
        for needed in ("controls", "trials", "measure", "decide"):
            if needed not in dir(body):
                see = "see assay.protocols.TrackBody"
                raise expected(f"a track class with '{needed}'", given=body.__qualname__, do=see)
        if not tuple(getattr(body, "controls", ())):
            raise expected(
                "at least one control arm",
                given=f"{body.__qualname__}.controls = ()",
                do="a check nobody has seen fail cannot be trusted: known_bad('control: ...', 'the arm it replaces')",
            )
        doc = (sys.modules[body.__module__].__doc__ or "").strip()
        registry.add(
            Track(
                number=number,
                name=name,
                claim=claim,
                body=body(),
                title=title or name.replace("-", " ").capitalize(),
                experiment=experiment or doc,
                kind=kind,
                version=version,
                sources=tuple(sources),
                extras=tuple(extras),
                module=body.__module__,
                timeout=timeout,
                also=also,
                on_request=on_request,
            )
        )
        return body

    return register
