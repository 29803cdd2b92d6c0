"""Results of a long table, a line each, so that an interrupted run goes on where it stopped."""

import json
import math
import os
from collections.abc import ItemsView, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from vicinal.errors import InvalidInput

SUFFIX = ".cells.jsonl"


class Place(NamedTuple):
    """Where a cell stands: all that tells one result from another.

    - `data`: name of the data set, or of what was done to it.
    - `n_records`, `n_reference`: private records, and public rows.
    - `method`: name of the contender.
    - `epsilon`: the guarantee simulated; None without privacy.
    - `n_queries`: queries planned and answered.
    - `run`: number of the public split, and seed of the noise.
    """

    data: str
    n_records: int
    n_reference: int
    method: str
    epsilon: float | None
    n_queries: int
    run: int


@dataclass(frozen=True, slots=True)
class Score:
    """What came of one cell.

    - `accuracy`: right answers among all queries; who got no answer counts as wrong.
    - `answered`, `asked`: shares of queries that were answered, and that private records were
      asked.
    - `seconds`: wall clock of fitting and answering.
    - `detail`: public parameters.
    """

    accuracy: float
    answered: float
    asked: float
    seconds: float
    detail: Mapping[str, float] = field(default_factory=dict)


class Cells:
    """All results of a table, kept in a file as they come.

    - `path`: the file; made with the first result.
    - `found`: what is there already.
    """

    def __init__(self, path: Path, found: Mapping[Place, Score]) -> None:
        self._path = path
        self._found = dict(found)

    @classmethod
    def at(cls, path: Path, *, resume: bool) -> Self:
        """Open a file of results.

        A last line that was cut off by an interruption is taken out.

        Raises InvalidInput if it holds something else; or if it is there and `resume` is not
        wanted, so that hours of work are not overwritten by mistake.
        """
        if not path.exists():
            return cls(path, {})
        if not resume:
            raise InvalidInput(
                f"{path} holds results of an earlier run. Give --resume to go on from there, or "
                "another folder."
            )
        return cls(path, dict(_read(path)))

    def __contains__(self, place: Place) -> bool:
        return place in self._found

    def __len__(self) -> int:
        return len(self._found)

    def put(self, place: Place, score: Score) -> None:
        """Keep a result, in memory and on the disk.

        Raises InvalidInput if it cannot be written.
        """
        line = json.dumps({**place._asdict(), **asdict(score)}, allow_nan=False)
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError as error:
            raise InvalidInput(f"{self._path} cannot be written: {error.strerror}.") from None
        self._found[place] = score

    def items(self) -> ItemsView[Place, Score]:
        """Return all results by their place."""
        return self._found.items()

    def runs(self) -> dict[Place, list[Score]]:
        """Return the scores of all runs by their place, whose own run is set to -1."""
        together: dict[Place, list[Score]] = {}
        for place, score in self._found.items():
            together.setdefault(place._replace(run=-1), []).append(score)
        return together


def _read(path: Path) -> Iterator[tuple[Place, Score]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise _spoiled(path) from None
    whole, _, cut = text.rpartition("\n")
    if cut:
        _shorten(path, len(text.encode()) - len(cut.encode()))
    for line in whole.splitlines():
        yield _cell(path, line)


def _shorten(path: Path, size: int) -> None:
    try:
        os.truncate(path, size)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}.") from None


def _cell(path: Path, line: str) -> tuple[Place, Score]:
    try:
        fields: dict[str, Any] = json.loads(line)
        place = Place(**{name: fields.pop(name) for name in Place._fields})
        score = Score(**fields)
        sound = all(math.isfinite(v) for v in (score.accuracy, score.answered, score.asked))
    except (ValueError, TypeError, KeyError, AttributeError):
        raise _spoiled(path) from None
    if not sound:
        raise _spoiled(path)
    return place, score


def _spoiled(path: Path) -> InvalidInput:
    return InvalidInput(f"{path} holds no results of this kind. Delete it to start again.")
