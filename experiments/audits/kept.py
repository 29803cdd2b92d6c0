"""Runs of attacks, kept on the disk: several tables share them, and an interrupted one goes on."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal.audit.schedule import Attack
from vicinal.errors import InvalidInput

_WORLDS = {True: "present", False: "absent"}


class KeptTrial(Attack):
    """Hands out the runs of a trial a stretch at a time; those on the disk come first.

    A run is handed out once, whatever blocks it was made in, so stretches are independent samples.

    - `trial`: which makes more runs where those on the disk are used up.
    - `folder`: where scores lie, float64, in the order in which they were made; None keeps nothing.
    - `stretch`: runs that :meth:`play` returns.
    """

    def __init__(self, trial: Attack, folder: Path | None, stretch: int) -> None:
        self.mechanism, self.scenario, self.claim = trial.mechanism, trial.scenario, trial.claim
        self.total_shift_mu = trial.total_shift_mu
        self._trial, self._folder, self._stretch = trial, folder, stretch
        self._left = {there: _read(folder, name) for there, name in _WORLDS.items()}
        self.seconds = _seconds(folder)

    def compute_scores(self, present: bool) -> npt.NDArray[np.float64]:
        """Return the scores of the next runs of one world."""
        left = [self._left[present]]
        while sum(map(len, left)) < self._stretch:
            left.append(self._played(present))
        scores = np.concatenate(left) if len(left) > 1 else left[0]
        self._left[present] = scores[self._stretch :]
        return scores[: self._stretch]

    def _played(self, present: bool) -> npt.NDArray[np.float64]:
        """Return a fresh block, and keep it; processor seconds add up over all calls."""
        start = process_time()
        scores = np.asarray(self._trial.compute_scores(present), dtype=np.float64)
        self.seconds += process_time() - start
        if self._folder is not None:
            with (self._folder / f"{_WORLDS[present]}.f8").open("ab") as file:
                file.write(scores.tobytes())
            (self._folder / "seconds").write_text(f"{self.seconds:.3f}\n")
        return scores


class RunFolder:
    """Where the runs of all attacks of one setting are kept; None for nowhere.

    - `folder`: made if it is missing.
    - `settings`: what the runs were made with: runs of other settings are never mixed in.

    Raises InvalidInput if the folder holds runs of other settings.
    """

    def __init__(self, folder: Path | None, settings: Mapping[str, Any]) -> None:
        self._folder = folder
        if folder is None:
            return
        place = folder / "settings.json"
        folder.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            place.write_text(json.dumps(dict(settings)) + "\n")
        if json.loads(place.read_text()) != dict(settings):
            raise InvalidInput(f"{folder} holds runs of other settings. Choose another folder.")

    def kept(self, name: str, trial: Attack, stretch: int) -> KeptTrial:
        """Return a trial whose runs are kept under `name`."""
        folder = None if self._folder is None else self._folder / name.replace(" ", "-")
        if folder is not None:
            folder.mkdir(exist_ok=True)
        return KeptTrial(trial, folder, stretch)


def _read(folder: Path | None, name: str) -> npt.NDArray[np.float64]:
    path = None if folder is None else folder / f"{name}.f8"
    if path is None or not path.exists():
        return np.zeros(0)
    # An interruption may have cut the last score off.
    whole = path.stat().st_size // 8
    with path.open("r+b") as file:
        file.truncate(8 * whole)
    return np.fromfile(path, dtype=np.float64)


def _seconds(folder: Path | None) -> float:
    path = None if folder is None else folder / "seconds"
    return float(path.read_text()) if path is not None and path.exists() else 0.0


Makers = Mapping[str, Callable[[], Attack]]
"""Attacks by name, made when they are wanted."""
