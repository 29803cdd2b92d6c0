"""How often audits are wrong, and how soon they catch what is broken on purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from vicinal.audit import AuditTrial, proved, try_control

Makers = Mapping[str, Callable[[], AuditTrial]]


@dataclass(frozen=True)
class Wrong:
    """How many small audits of an honest mechanism were above its claim."""

    attack: str
    audits: int
    above: int
    allowed: float
    mean_ratio: float

    def text(self) -> str:
        """Return it as a line of a table."""
        return (
            f"{self.attack:20}{self.audits:>10}{self.above:>10}{self.above / self.audits:>10.4f}"
            f"{self.allowed:>10.4f}{self.mean_ratio:>12.2f}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return asdict(self)


WRONG_HEAD = (
    f"{'attack':20}{'audits':>10}{'above':>10}{'share':>10}{'allowed':>10}{'mean ratio':>12}"
)


def wrong(makers: Makers, audits: int, runs: int, confidence: float) -> Iterator[Wrong]:
    """Carry out so many audits of `runs` runs of each world, attack by attack."""
    for name, make in makers.items():
        trial, done = make(), 0
        above, ratios = 0, []
        while done < audits:
            worlds = [_scores(trial, there, runs) for there in (True, False)]
            for present, absent in list(zip(*worlds, strict=True))[: audits - done]:
                rates, epsilon = proved(trial.claim, present, absent, confidence)
                claim = trial.claim.allowed(rates)
                above += rates.mu > claim or epsilon > trial.claim.epsilon()
                ratios.append(rates.mu / claim if claim > 0 else 0.0)
                done += 1
        yield Wrong(name, done, above, 1 - confidence, float(np.mean(ratios)))


def _scores(trial: AuditTrial, present: bool, runs: int) -> np.ndarray[Any, Any]:
    """Return scores of one world for some audits, (audits, runs)."""
    found = trial.play(present)
    while len(found) < runs:
        found = np.concatenate([found, trial.play(present)])
    return found[: len(found) // runs * runs].reshape(-1, runs)


@dataclass(frozen=True)
class Caught:
    """How soon a broken version was put above its claim."""

    attack: str
    control: str
    audits: int
    caught: int
    median_runs: int
    most_runs: int
    median_seconds: float
    most_seconds: float

    def text(self) -> str:
        """Return it as a line of a table."""
        return (
            f"{self.attack:20}{self.control:28}{self.caught:>5} of {self.audits:<4}"
            f"{self.median_runs:>10}{self.most_runs:>10}{self.median_seconds:>9.2f}"
            f"{self.most_seconds:>9.2f}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return asdict(self)


CAUGHT_HEAD = (
    f"{'attack':20}{'broken on purpose':28}{'caught':>11}{'runs':>10}{'most':>10}"
    f"{'s':>9}{'most':>9}"
)


def caught(makers: Makers, audits: int, seconds: float, confidence: float) -> Iterator[Caught]:
    """Try every broken version of every attack so often, each time for some seconds at most."""
    for name, make in makers.items():
        for damage, control in make().controls().items():
            control.play(present=True)  # compiles what has to be
            tries = [try_control(damage, control, seconds, confidence) for _ in range(audits)]
            runs, took = [t.runs for t in tries], [t.seconds for t in tries]
            yield Caught(
                name, damage, audits, sum(t.caught for t in tries), int(np.median(runs)),
                max(runs), float(np.median(took)), max(took),
            )  # fmt: skip
