"""The journal of a labelling run: answers and spent budgets, written before an answer is used.

**Crash safety.** The charges and answers of a block are written together to a file that atomically
replaces the previous one, so that after a crash either file is complete. If it is the previous one,
no answer of the block has been used: its charges are lost too, and the block is queried again with
fresh noise. If it is the new one, both answers and charges are kept. No answer is therefore lost or
charged twice, and a killed run costs as much as an uninterrupted one. (The answers of a lost block
existed only in the memory of the killed process, which also held the private records.)

**Rollback protection.** Restoring an old journal would refill the budgets. A witness file beside
the folder therefore stores the number of entries and the token of the last one. A token is 32
random bytes, and each entry appends a new one to the list in the journal. The journal is refused if
it has fewer entries than the witness, another token at that position, or no witness. A copy of both
files can be run separately with its own budgets, which cannot be detected, but neither copy can
continue with the witness of the other. Both files are as private as the records.
"""

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn, Self

import numpy as np

from vicinal import checks
from vicinal.arrays import AnyArray, Floats, Floats32, Ints
from vicinal.errors import PrivacyRefused
from vicinal.labelling.labellers import State
from vicinal.ledger.files import PRIVATE_FOLDER, Lock, translate_os_errors
from vicinal.ledger.rollback_guard import RollbackGuard, WitnessState, default_witness_path
from vicinal.ledger.sealed_files import parse_json, read_arrays, translate_damage, write_arrays
from vicinal.mechanisms.noise_sources import fresh_key

_FORMAT = 1  # version of the file format
_IDENTITY_BYTES = 16  # size of the journal's random identity in the witness file
_TOKEN_BYTES = 32  # size of an entry's random token in the witness file


@dataclass(frozen=True, slots=True, eq=False)
class RoundAnswers:
    """The queries of a round and their answers so far.

    `queries`, int64 (q,): row indices of the public examples to query, in this order. `labels`,
    int64 (a,): class indices that answer the first a queries. `margins`, float64 (a,): the noisy
    leads of these answers; None where votes are not released. `soft_labels`, float32 (m, c): class
    probabilities of all public examples, by the private model and the answers so far; None without
    a model.
    """

    queries: Ints
    labels: Ints
    margins: Floats | None
    soft_labels: Floats32 | None = None

    @property
    def complete(self) -> bool:
        """Whether all queries are answered."""
        return len(self.labels) == len(self.queries)


@dataclass(frozen=True, slots=True, eq=False)
class JournalEntry:
    """The state from which a run resumes: the rounds that have begun, and the spent budgets.

    `input_digest`: digest of the data, labeller and plan; a run with another digest must not resume
    from this entry. `state`: spent budgets of the labeller; private.
    """

    input_digest: str
    rounds: tuple[RoundAnswers, ...]
    state: State


class _Contents(NamedTuple):
    """The content of a journal file."""

    entry: JournalEntry
    identity: bytes  # 16 random bytes, which identify the journal
    entry_tokens: list[bytes]  # the 32-byte token of each entry so far


class FileJournal:
    """A folder with the last journal entry of a run, locked by one process at a time.

    Raises StorageFailed if the folder cannot be used; PrivacyRefused if another process holds the
    folder: both would spend the same budgets.

    Parameters
    ----------
    folder : Path
        Created if it does not exist. Its file ``journal.npz`` is private.

    Examples
    --------
    >>> from vicinal.labelling import FileJournal
    >>> journal = FileJournal("run")
    >>> journal.read() is None  # no query has been answered yet
    True
    >>> journal.close()
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._path = self.folder / "journal.npz"
        self._entry_tokens: list[bytes] = []
        self._witness: RollbackGuard | None = None
        with translate_os_errors(self.folder):
            self._is_new_folder = not self.folder.exists()
            self.folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            owner = self._path.stat().st_uid if self._path.exists() else None
        self._lock = Lock(self.folder / "lock", owner=owner)

    def close(self) -> None:
        """Release the locks on the folder and on its witness file.

        If there is no entry, because the run was refused, remove what this object has created.
        """
        try:
            if self._witness is not None:
                self._witness.close()
        finally:
            if os.path.lexists(self._path):
                self._lock.release()
            else:
                self._lock.remove()
                if self._is_new_folder:
                    with suppress(OSError):  # the folder may hold other files by now
                        self.folder.rmdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self) -> JournalEntry | None:
        """Return the last entry, or None if there is none yet.

        Raises InvalidInput if the file is damaged, which a crash cannot cause; TooLittleMemory if
        the content needs more memory than there is; PrivacyRefused if the witness has counted more
        entries or holds another token, or if only one of the journal and its witness exists.
        """
        witness_path = default_witness_path(self.folder)
        contents = self._read_file()
        if contents is None:
            if witness_path.exists() and WitnessState.read(witness_path).clock > 0:
                self._refuse("is gone")
            return None
        entry, identity, self._entry_tokens = contents
        if not witness_path.exists():
            self._refuse("has lost its witness")
        self._witness = self._witness or RollbackGuard(witness_path, identity)
        witnessed = self._witness.state
        if len(self._entry_tokens) < witnessed.clock:
            self._refuse("is an earlier one")
        if witnessed.clock:
            matches_witness = self._entry_tokens[witnessed.clock - 1] == witnessed.head
        else:
            # A crash came between writing the first entry and counting it.
            matches_witness = len(self._entry_tokens) == 1
        if not matches_witness:
            self._refuse("comes from a copy that ran elsewhere")
        return entry

    def commit(self, entry: JournalEntry) -> None:
        """Replace the stored entry by `entry` atomically, and count it in the witness."""
        if self._witness is None and self.read() is None:
            # The witness is created before the journal file. A crash between the two leaves a
            # witness that counts no entries, which read() accepts.
            identity = fresh_key()[:_IDENTITY_BYTES]
            self._witness = RollbackGuard.create(
                default_witness_path(self.folder), identity, replace_existing=True
            )
        assert self._witness is not None  # noqa: S101 (narrows the type: set by read() or above)
        self._entry_tokens.append(fresh_key())
        contents = _Contents(entry, self._witness.state.identity, self._entry_tokens)
        write_arrays(self._path, _pack_contents(contents))
        self._witness.record_commit(len(self._entry_tokens), self._entry_tokens[-1])
        if len(self._entry_tokens) == 1:
            self._witness.sync()

    def _read_file(self) -> _Contents | None:
        """Return the content of the journal file; None if there is none.

        Raises InvalidInput if it is damaged.
        """
        damage = (
            f"{self._path} is damaged. It holds what was paid for: restore it, or take the "
            "budgets as spent."
        )
        try:
            with translate_damage(damage):
                return _unpack_contents(self._path, read_arrays(self._path))
        except FileNotFoundError:
            return None

    def _refuse(self, problem: str) -> NoReturn:
        """Raise PrivacyRefused because the journal is not the last one of its run.

        `problem`: the end of the sentence "The journal FILE ...", for the message.
        """
        witness = default_witness_path(self.folder)
        raise PrivacyRefused(
            f"The journal {self._path} {problem}: going on could spend the same budgets again. Put "
            f"the last journal and {witness} back, or choose another folder and take these budgets "
            "as spent."
        )


def _pack_contents(contents: _Contents) -> dict[str, AnyArray]:
    """Return the arrays of a journal file with these `contents`, by name."""
    entry, identity, entry_tokens = contents
    header = {
        "format": _FORMAT,
        "identity": identity.hex(),
        "run": entry.input_digest,
        "rounds": len(entry.rounds),
    }
    arrays: dict[str, AnyArray] = {"head": np.array(json.dumps(header))}
    arrays["heads"] = np.frombuffer(b"".join(entry_tokens), np.uint8).reshape(-1, _TOKEN_BYTES)
    for number, round_answers in enumerate(entry.rounds):
        for name in RoundAnswers.__slots__:
            values = getattr(round_answers, name)
            if values is not None:
                arrays[f"{name}_{number}"] = values
    return arrays | {f"state_{name}": value for name, value in entry.state.items()}


def _unpack_contents(path: Path, arrays: dict[str, AnyArray]) -> _Contents:
    """Return the contents of a journal file from its `arrays` by name.

    `path`: of the file, for error messages.
    """
    header = parse_json(str(arrays["head"]))
    checks.check_file_format(path, header["format"], _FORMAT)
    rounds = tuple(
        RoundAnswers(
            arrays[f"queries_{number}"],
            arrays[f"labels_{number}"],
            arrays.get(f"margins_{number}"),
            arrays.get(f"soft_labels_{number}"),
        )
        for number in range(header["rounds"])
    )
    prefix = "state_"
    state_names = [name for name in arrays if name.startswith(prefix)]
    state = {name.removeprefix(prefix): arrays[name] for name in state_names}
    entry_tokens = [row.tobytes() for row in arrays["heads"]]
    entry = JournalEntry(header["run"], rounds, state)
    return _Contents(entry, bytes.fromhex(header["identity"]), entry_tokens)
