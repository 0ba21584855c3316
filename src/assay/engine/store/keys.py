"""Who wrote a cell: digests under a key that lives outside the store, so that whoever can write there cannot forge.

The key of a person is ``~/.config/assay/key`` (made on first use, readable by its owner alone) or the text in
``ASSAY_KEY``. Keys of others lie beside it as ``keys/NAME``; their cells are used only when NAME is trusted.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from assay.errors import AssayError, unknown

VARIABLE = "ASSAY_KEY"
UNKNOWN = "unknown key "
"""What stands before the name of a signer whose key is not here, where its cells are read all the same."""
LEAST = 16
"""Characters of a key, at least."""


@dataclass(frozen=True, repr=False)
class Key:
    """A secret that signs; ``signer`` names it and gives nothing away."""

    secret: bytes

    @property
    def signer(self) -> str:
        return hashlib.sha256(b"assay signer " + self.secret).hexdigest()[:12]

    def sign(self, text: str) -> str:
        return hmac.new(self.secret, text.encode(), hashlib.sha256).hexdigest()

    def signed(self, text: str, digest: str) -> bool:
        # Not ==: it is the sooner done the earlier the two differ, which tells a forger how much is right.
        return hmac.compare_digest(self.sign(text), digest)

    def __repr__(self) -> str:
        return f"Key({self.signer})"


@dataclass(frozen=True, repr=False)
class Unchecked(Key):
    """Stands for a key that is not here: takes every signature, so that whoever uses it must doubt what it signed."""

    def signed(self, text: str, digest: str) -> bool:
        del text, digest
        return True


@dataclass(frozen=True)
class Keyring:
    """One's own key, and the keys of others whose cells are used, by name.

    ``doubting`` is for audits: what an unknown key has signed is read too, under a name that says so.
    """

    own: Key
    trusted: Mapping[str, Key]
    doubting: bool = False

    def find(self, signer: str) -> tuple[str, Key] | None:
        """The name (empty for one's own) and key of a signer; None if it is nobody's who is trusted."""
        if signer == self.own.signer:
            return "", self.own
        known = next(((name, key) for name, key in self.trusted.items() if key.signer == signer), None)
        if known is None and self.doubting:
            return f"{UNKNOWN}{signer}", Unchecked(b"")
        return known


_always: list[str] = []


def trust(names: Iterable[str]) -> None:
    """Trust these names in every store this process opens from now on, as the settings of a command ask."""
    _always[:] = names


def keyring(trusted: Iterable[str] = (), *, doubting: bool = False) -> Keyring:
    """One's own key, made if there is none, and those of the trusted names."""
    return Keyring(own_key(), {name: _trusted(name) for name in dict.fromkeys([*trusted, *_always])}, doubting)


def own_key() -> Key:
    """The key in the environment or the user's configuration folder; made if there is none."""
    if (text := os.environ.get(VARIABLE)) is not None:
        return _key(text, f"${VARIABLE}")
    file = folder() / "key"
    try:
        return _key(file.read_text(encoding="ascii"), str(file))
    except FileNotFoundError:
        return _make(file)
    except (OSError, UnicodeDecodeError) as error:
        raise AssayError(f"cannot read the key in {file}: {error}; repair it or set {VARIABLE}") from None


def folder() -> Path:
    """Where keys live: ``$XDG_CONFIG_HOME/assay``, else ``~/.config/assay``."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()
    return Path(base) / "assay"


def _trusted(name: str) -> Key:
    file = folder() / "keys" / name
    known = sorted(path.name for path in file.parent.glob("*")) if file.parent.is_dir() else []
    if name not in known:
        raise AssayError(f"{unknown('trusted key', name, known)}; put the key of {name} into {file}")
    try:
        return _key(file.read_text(encoding="ascii"), str(file))
    except (OSError, UnicodeDecodeError) as error:
        raise AssayError(f"cannot read the key of {name} in {file}: {error}") from None


def _make(file: Path) -> Key:
    text = secrets.token_hex(32)
    temporary = file.with_name(f".key-{secrets.token_hex(8)}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as opened:
            opened.write(f"{text}\n")
        try:
            os.link(temporary, file)  # of two that start at once, one key stays
        finally:
            temporary.unlink()
    except FileExistsError:
        return own_key()
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise AssayError(
            f"cannot make a key in {file.parent}: {error.strerror}; results are signed with it: set {VARIABLE} to a "
            f"secret text of {LEAST} characters or more"
        ) from None
    return _key(text, str(file))


def _key(text: str, where: str) -> Key:
    if len(text.strip()) < LEAST:
        raise AssayError(f"expected a key of {LEAST} characters or more in {where}; given {len(text.strip())}")
    return Key(hashlib.sha256(text.strip().encode()).digest())
