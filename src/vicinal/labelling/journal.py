"""What has been answered and what it has cost, on the disk before an answer is used.

**What a kill can do.** A block's charges and its answers are written together, in one file that
replaces the one before it: after a kill the file is the old one or the new one, whole. If it is the
old one, the block's answers were seen by nobody, its charges are forgotten with them, and the block
is asked again with fresh noise. If it is the new one, the answers are used and the charges stay. So
no answer is lost or paid for twice, and a run that was killed costs what one that was not would
have. (The answers of a lost block existed in a process that is gone; whoever could read its memory
could read the records too.)

**What it cannot.** Restoring an old copy of the file would refill budgets. It is as private as the
records, and must be kept where they are.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from vicinal.errors import InvalidInput, MissingExtra, PrivacyRefused
from vicinal.labelling.labellers import State

_PRIVATE_FILE = 0o600
_VERSION = 1


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """One round so far.

    Attributes
    ----------
    questions : int64 (q,)
        Public examples that the round asks about, in this order.
    labels : int64 (a,)
        Answers to the first a of them.
    margins : float64 (a,) or None
        Their margins, if votes leave.
    """

    questions: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]
    margins: npt.NDArray[np.float64] | None

    @property
    def complete(self) -> bool:
        """Tell whether all questions are answered."""
        return len(self.labels) == len(self.questions)


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """All that a run must remember: rounds so far, and the labeller's state after them.

    Attributes
    ----------
    run : str
        Digest of everything that makes the run what it is; another run must not go on from here.
    rounds : tuple of Asked
        Rounds that were begun.
    state : dict of arrays
        See :data:`vicinal.labelling.labellers.State`. Private.
    """

    run: str
    rounds: tuple[Asked, ...]
    state: State


class Journal(Protocol):
    """Keeps the last entry of a run, durably.

    Attributes
    ----------
    folder : Path
        Where the run keeps its students.
    """

    folder: Path

    def read(self) -> Entry | None:
        """Return the last entry; None before the first."""
        ...

    def commit(self, entry: Entry) -> None:
        """Replace the entry; on return it is durable, and its answers may be used."""
        ...


class FileJournal:
    """The last entry in a file of a folder, which one process holds at a time.

    Parameters
    ----------
    folder : Path
        Is made if need be. Its file ``journal.npz`` is private.

    Raises
    ------
    InvalidInput
        If the folder cannot be used.
    PrivacyRefused
        If another process holds the folder: both would spend the same budgets.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._path = self.folder / "journal.npz"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, _PRIVATE_FILE)
        except OSError as error:
            raise InvalidInput(
                f"The folder {self.folder} cannot be used: {error.strerror}."
            ) from None
        _hold(self._lock, self.folder)

    def close(self) -> None:
        """Let others have the folder."""
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self) -> Entry | None:
        """Return the last entry; None before the first.

        Raises
        ------
        InvalidInput
            If the file is damaged, which a kill cannot do.
        """
        try:
            content = self._path.read_bytes()
            with np.load(io.BytesIO(content), allow_pickle=False) as stored:
                return _entry(dict(stored))
        except FileNotFoundError:
            return None
        except (OSError, EOFError, KeyError, ValueError, TypeError, zipfile.BadZipFile):
            raise InvalidInput(
                f"{self._path} is not a sound journal. What was paid for is in it: restore it, or "
                "take the budgets as spent."
            ) from None

    def commit(self, entry: Entry) -> None:
        """Replace the file, which is the old one or the new one at any time, whole."""
        content = io.BytesIO()
        np.savez(content, allow_pickle=False, **_arrays(entry))
        write_durably(self._path, content.getvalue())


def write_durably(path: Path, content: bytes) -> None:
    """Write a file so that after a crash it is the old one or the new one, whole.

    Raises
    ------
    InvalidInput
        If it cannot be written.
    """
    fresh = path.with_name(path.name + ".new")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _PRIVATE_FILE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}.") from None


def _hold(descriptor: int, folder: Path) -> None:
    """Lock an open file; the system takes the lock back when the process ends, however it ends."""
    try:
        import fcntl
    except ImportError:
        raise MissingExtra("A journal needs POSIX file locks: Linux or macOS.") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise PrivacyRefused(
            f"Another process is working in {folder}. Two of them would spend the same budgets."
        ) from None


def _arrays(entry: Entry) -> dict[str, npt.NDArray[Any]]:
    head = {"version": _VERSION, "run": entry.run, "rounds": len(entry.rounds)}
    arrays: dict[str, npt.NDArray[Any]] = {"head": np.array(json.dumps(head))}
    for number, asked in enumerate(entry.rounds):
        arrays[f"questions_{number}"] = asked.questions
        arrays[f"labels_{number}"] = asked.labels
        if asked.margins is not None:
            arrays[f"margins_{number}"] = asked.margins
    return arrays | {f"state_{name}": value for name, value in entry.state.items()}


def _entry(arrays: dict[str, npt.NDArray[Any]]) -> Entry:
    head = json.loads(str(arrays["head"]))
    if head["version"] != _VERSION:
        raise ValueError("another version")
    rounds = tuple(
        Asked(arrays[f"questions_{n}"], arrays[f"labels_{n}"], arrays.get(f"margins_{n}"))
        for n in range(head["rounds"])
    )
    prefix = "state_"
    state = {n.removeprefix(prefix): v for n, v in arrays.items() if n.startswith(prefix)}
    return Entry(head["run"], rounds, state)
