"""What has been answered and what it has cost, on the disk before an answer is used.

**What a kill can do.** A block's charges and its answers are written together, in one file that
replaces the one before it: after a kill the file is the old one or the new one, whole. If it is the
old one, the block's answers were seen by nobody, its charges are forgotten with them, and the block
is asked again with fresh noise. If it is the new one, the answers are used and the charges stay. So
no answer is lost or paid for twice, and a run that was killed costs what one that was not would
have. (The answers of a lost block existed in a process that is gone; whoever could read its memory
could read the records too.)

**What a backup can do.** Nothing: beside the folder lies its witness, which counts entries and
knows the last one's head, 32 random bytes that each entry adds to those before. A journal that is
behind its witness, has another head there, or has no witness, is refused, for its budgets would be
refilled. Whoever copies both and runs both has two sets of budgets, which nothing here can see; but
neither goes on beside the other's witness. Both files are as private as the records.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Self

import numpy as np

from vicinal import checks
from vicinal.arrays import AnyArray, Floats, Floats32, Ints
from vicinal.errors import InvalidInput, OtherFormat, PrivacyRefused
from vicinal.labelling.labellers import State
from vicinal.ledger.files import PRIVATE_FOLDER, Lock, translate_os_errors
from vicinal.ledger.rollback_guard import RollbackGuard, WitnessState, default_witness_path
from vicinal.ledger.sealed_files import parse_json, read_arrays, write_arrays
from vicinal.mechanisms.noise_sources import fresh_key

_FORMAT = 1
_IDENTITY, _HEAD = 16, 32


@dataclass(frozen=True, slots=True, eq=False)
class AskedRound:
    """One round so far.

    `queries`, int64 (q,): public examples that the round asks about, in this order. `labels`,
    int64 (a,): answers to the first a of them. `margins`, float64 (a,): theirs, if votes leave.
    `soft_labels`, float32 (m, c): beside a private model, how likely every class is for all public
    examples, by the model and by the votes so far.
    """

    queries: Ints
    labels: Ints
    margins: Floats | None
    soft_labels: Floats32 | None = None

    @property
    def complete(self) -> bool:
        return len(self.labels) == len(self.queries)


@dataclass(frozen=True, slots=True, eq=False)
class JournalEntry:
    """All that a run must remember: rounds so far, and the labeller's state after them.

    `run`: digest of everything that makes the run what it is; another run must not go on from here.
    `rounds`: those that were begun. `state`: the labeller's; private.
    """

    run: str
    rounds: tuple[AskedRound, ...]
    state: State


class FileJournal:
    """The last entry in a file of a folder, which one process holds at a time.

    Parameters
    ----------
    folder : Path
        Is made if need be. Its file ``journal.npz`` is private.

    Raises
    ------
    StorageFailed
        If the folder cannot be used.
    PrivacyRefused
        If another process holds the folder: both would spend the same budgets.

    Examples
    --------
    >>> from vicinal.labelling import FileJournal
    >>> journal = FileJournal("run")
    >>> journal.read() is None  # nothing was asked yet
    True
    >>> journal.close()
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._path = self.folder / "journal.npz"
        self._heads: list[bytes] = []
        self._witness: RollbackGuard | None = None
        with translate_os_errors(self.folder):
            self.folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        self._lock = Lock(self.folder / "lock")

    def close(self) -> None:
        """Let others have the folder."""
        try:
            if self._witness is not None:
                self._witness.close()
        finally:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self) -> JournalEntry | None:
        """Return the last entry; None before the first.

        Raises
        ------
        InvalidInput
            If the file is damaged, which a kill cannot do.
        PrivacyRefused
            If the witness knows of a later entry or of another one, or there is but one of the two.
        """
        place = default_witness_path(self.folder)
        stored = self._read()
        if stored is None:
            if place.exists() and WitnessState.read(place).clock > 0:
                self._refuse("is gone")
            return None
        entry, identity, self._heads = stored
        if not place.exists():
            self._refuse("has lost its witness")
        self._witness = self._witness or RollbackGuard(place, identity)
        seen = self._witness.state
        if len(self._heads) < seen.clock:
            self._refuse("is an earlier one")
        # Before the first entry is noted, there can be but this one.
        same = self._heads[seen.clock - 1] == seen.head if seen.clock else len(self._heads) == 1
        if not same:
            self._refuse("comes from a copy that ran elsewhere")
        return entry

    def commit(self, entry: JournalEntry) -> None:
        """Replace the file, which is the old one or the new one at any time, whole."""
        if self._witness is None and self.read() is None:
            # Before the file: a kill between the two leaves a witness of nothing.
            identity = fresh_key()[:_IDENTITY]
            self._witness = RollbackGuard.create(
                default_witness_path(self.folder), identity, over=True
            )
        assert self._witness is not None  # noqa: S101 (narrows the type: read, or made just now)
        self._heads.append(fresh_key())
        write_arrays(self._path, _arrays(entry, self._witness.state.identity, self._heads))
        self._witness.advance(len(self._heads), self._heads[-1])
        if len(self._heads) == 1:
            self._witness.sync()

    def _read(self) -> tuple[JournalEntry, bytes, list[bytes]] | None:
        try:
            return _entry(self._path, read_arrays(self._path))
        except FileNotFoundError:
            return None
        except OtherFormat:
            raise
        except Exception as error:  # whatever an archive of a stranger makes
            raise InvalidInput(
                f"{self._path} is damaged. It holds what was paid for: restore it, or take the "
                "budgets as spent."
            ) from error

    def _refuse(self, fault: str) -> NoReturn:
        witness = default_witness_path(self.folder)
        raise PrivacyRefused(
            f"The journal {self._path} {fault}: going on could spend the same budgets again. Put "
            f"the last journal and {witness} back, or choose another folder and take these budgets "
            "as spent."
        )


def _arrays(entry: JournalEntry, identity: bytes, heads: list[bytes]) -> dict[str, AnyArray]:
    head = {
        "format": _FORMAT,
        "identity": identity.hex(),
        "run": entry.run,
        "rounds": len(entry.rounds),
    }
    arrays: dict[str, AnyArray] = {"head": np.array(json.dumps(head))}
    arrays["heads"] = np.frombuffer(b"".join(heads), np.uint8).reshape(-1, _HEAD)
    for number, asked_round in enumerate(entry.rounds):
        for name in AskedRound.__slots__:
            if (values := getattr(asked_round, name)) is not None:
                arrays[f"{name}_{number}"] = values
    return arrays | {f"state_{name}": value for name, value in entry.state.items()}


def _entry(path: Path, arrays: dict[str, AnyArray]) -> tuple[JournalEntry, bytes, list[bytes]]:
    head = parse_json(str(arrays["head"]))
    checks.file_format(path, head["format"], _FORMAT)
    rounds = tuple(
        AskedRound(
            arrays[f"queries_{n}"],
            arrays[f"labels_{n}"],
            arrays.get(f"margins_{n}"),
            arrays.get(f"soft_labels_{n}"),
        )
        for n in range(head["rounds"])
    )
    prefix = "state_"
    state = {n.removeprefix(prefix): v for n, v in arrays.items() if n.startswith(prefix)}
    heads = [one.tobytes() for one in arrays["heads"]]
    return JournalEntry(head["run"], rounds, state), bytes.fromhex(head["identity"]), heads
