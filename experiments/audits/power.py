"""How often audits are wrong, and how soon they catch what is broken on purpose."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from time import process_time
from typing import Any

import numpy as np

from experiments.audits.kept import KeptTrial, Makers, RunFolder
from vicinal.audit.claims import compute_lower_rate_bounds
from vicinal.audit.schedule import bound_best_test, run_control

SURE = 0.95
"""Confidence of what the tables say of a rate."""

STRETCH = 512
"""Runs of each world before the first look at a broken version."""


@dataclass(frozen=True)
class Wrong:
    """How many small audits of an honest mechanism were above its claim."""

    attack: str
    audits: int
    above: int
    allowed: float
    mean_ratio: float

    @property
    def at_most(self) -> float:
        """The rate of wrong audits at most, at 95 % (Clopper and Pearson)."""
        return 1 - float(compute_lower_rate_bounds(self.audits - self.above, self.audits, 1 - SURE))

    def text(self) -> str:
        """Return it as a line of a table."""
        return (
            f"{self.attack:20}{self.audits:>10}{self.above:>10}{self.above / self.audits:>10.4f}"
            f"{self.at_most:>10.4f}{self.allowed:>10.4f}{self.mean_ratio:>12.2f}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return {**asdict(self), "at_most": self.at_most}


WRONG_HEAD = (
    f"{'attack':20}{'audits':>10}{'above':>10}{'share':>10}{'at most':>10}{'allowed':>10}"
    f"{'mean ratio':>12}"
)


def wrong(
    makers: Makers, audits: int, runs: int, confidence: float, folder: RunFolder
) -> Iterator[Wrong]:
    """Carry out so many audits of `runs` runs of each world, attack by attack.

    Every audit has runs of its own.
    """
    for name, make in makers.items():
        trial = folder.kept(name, make(), runs)
        found = [_small(trial, confidence) for _ in range(audits)]
        ratios = [ratio for _, ratio in found]
        above = sum(passed for passed, _ in found)
        yield Wrong(name, audits, above, 1 - confidence, float(np.mean(ratios)))


def _small(trial: KeptTrial, confidence: float) -> tuple[bool, float]:
    """Return whether one audit was above the claim, and its ratio."""
    rates, epsilon = bound_best_test(
        trial.claim,
        trial.compute_scores(present=True),
        trial.compute_scores(present=False),
        confidence,
    )
    claim = trial.claim.compute_max_mu(rates)
    above = rates.mu > claim or epsilon > trial.claim.compute_epsilon()
    return above, rates.mu / claim if claim > 0 else 0.0


@dataclass(frozen=True)
class Caught:
    """How soon a broken version was put above its claim; seconds are a processor's, per audit."""

    attack: str
    control: str
    audits: int
    caught: int
    median_runs: int
    most_runs: int
    mean_seconds: float

    @property
    def at_least(self) -> float:
        """The rate at which it is caught at least, at 95 % (Clopper and Pearson)."""
        return float(compute_lower_rate_bounds(self.caught, self.audits, 1 - SURE))

    def text(self) -> str:
        """Return it as a line of a table."""
        return (
            f"{self.attack:20}{self.control:28}{self.caught:>5} of {self.audits:<4}"
            f"{self.at_least:>9.3f}{self.median_runs:>10}{self.most_runs:>10}"
            f"{self.mean_seconds:>9.2f}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return {**asdict(self), "at_least": self.at_least}


CAUGHT_HEAD = (
    f"{'attack':20}{'broken on purpose':28}{'caught':>11}{'at least':>9}{'runs':>10}{'most':>10}"
    f"{'s':>9}"
)


def caught(
    makers: Makers, audits: int, runs: int, confidence: float, folder: RunFolder
) -> Iterator[Caught]:
    """Audit every broken version of every attack so often, each time with so many runs at most.

    Every audit has runs of its own, and looks at them whenever they have doubled, as
    ``vicinal audit`` does. What a block of runs leaves over is the next audit's.
    """
    for name, make in makers.items():
        for damage, control in make().create_controls().items():
            trial = folder.kept(f"{name}-{damage}", control, STRETCH)
            start, before = process_time(), trial.seconds
            tries = [run_control(damage, trial, np.inf, confidence, runs) for _ in range(audits)]
            # Runs that lay on the disk count with what they took when they were made.
            looking = process_time() - start - (trial.seconds - before)
            took = [t.runs for t in tries]
            yield Caught(
                name, damage, audits, sum(t.caught for t in tries), int(np.median(took)),
                max(took), (trial.seconds + looking) / audits,
            )  # fmt: skip
