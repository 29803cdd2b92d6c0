"""Attacks on refusals: what is refused, undone or fitted again must not tell of a record.

Every attack plays two worlds that differ in one subject, or in one draw, and compares all that an
analyst sees. `ATTACKS` lists (name, function that returns a verdict in one line); a verdict begins
with "stopped" or "BROKEN". Each takes a world without its defence as a control, and says "BROKEN"
too if it does not catch that.
"""

from collections.abc import Callable
from contextlib import suppress
from unittest.mock import patch

import numpy as np

from vicinal import IndKNNClassifier, PrivateKNNClassifier
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.interactions.fit_registry import FitRegistry, Interaction
from vicinal.mechanisms import DeltaSlackAccountant
from vicinal.mechanisms.private_knn import PrivateKNNRelease
from vicinal.planning.engine_factory import EnginePlanner
from vicinal.progress import show_progress

_RNG = np.random.default_rng(7)
_X = _RNG.normal(size=(300, 4))
_Y = _RNG.integers(0, 3, 300)
_R = _RNG.normal(size=(80, 4))
_Q = _RNG.normal(size=(60, 4))
_MAX_HITS = 300 * 200


def _verdict(attack: Callable[[], str], control: Callable[[], str]) -> str:
    """Return what came of an attack, given what it found ("" for nothing), and its control."""
    found, caught = attack(), control()
    if found:
        return f"BROKEN: {found}"
    return f"stopped; the control is caught: {caught}" if caught else "BROKEN: control not caught"


def _counting(near: bool) -> IndKNNClassifier:
    """Return a classifier whose queries have many neighbours, or few, with little slack left."""
    rows = _X if near else _X + 100.0
    asked = IndKNNClassifier(
        range(3), 4.0, n_queries=60, neighbor_count="private", n_neighbors=100, n_records=300,
        noise_multiplier=1.5, interactions="public",
    ).fit(rows, _Y, public=_R)  # fmt: skip
    engine = asked._engine
    wide = engine.votes.bound_slack(1.5 * np.sqrt(80))
    engine.slack._limit = len(_Q) * (engine.counter.slack_per_count + wide)
    return asked


def _refused_by_count() -> str:
    """Ask queries for which the slack is enough at a large count only; compare who is refused."""
    seen = []
    for near in (True, False):
        asked = _counting(near)
        before = asked._engine.shard.ledger.remaining.copy()
        outcome = "answered"
        try:
            asked.predict(_Q)
        except PrivacyRefused:
            charged = (asked._engine.shard.ledger.remaining != before).any()
            outcome = "refused after charges" if charged else "refused"
        seen.append(outcome)
    return "" if seen[0] == seen[1] == "refused" else f"many near {seen[0]}, none near {seen[1]}"


def _late(_: DeltaSlackAccountant, more: float) -> None:
    """Refuse when the price of what was counted is known, not before."""
    if more == np.inf:
        raise PrivacyRefused("late")


def refusals_by_noisy_counts() -> str:
    """A refusal must not follow the noisy count of neighbours."""

    def control() -> str:
        with patch.object(DeltaSlackAccountant, "check_slack", _late):
            return _refused_by_count()

    return _verdict(_refused_by_count, control)


def _steps(size: int) -> list[int]:
    done: list[int] = []
    asked = PrivateKNNClassifier(range(3), 5, 0.01, n_queries=300, interactions="public")
    with patch("vicinal.mechanisms.private_knn._MAX_HITS", _MAX_HITS):
        asked.fit(_X[:size], _Y[:size])
        with show_progress(lambda *_: done.append):
            asked.predict(np.tile(_Q, (5, 1)))
    return done


def progress_by_records() -> str:
    """Progress must not show whether there is one record more."""

    def differ() -> str:
        return "" if _steps(200) == _steps(230) else "steps follow the number of records"

    def control() -> str:
        def split_blocks(self, queries):
            self.choose_kernel_and_encode(queries, margin=1.25)
            size = _MAX_HITS // int(self.nearest.knn.n_expected_candidates)
            return (queries[start : start + size] for start in range(0, len(queries), size))

        with patch.object(PrivateKNNRelease, "split_blocks", split_blocks):
            return differ()

    return _verdict(differ, control)


def _sizes() -> str:
    """Fit, and be refused after the noisy size was drawn, again and again; count the sizes."""
    told: list[int] = []

    def refused(planner: EnginePlanner) -> None:
        told.append(planner.plan.size)
        raise InvalidInput("refused")

    tired = IndKNNClassifier(range(3), n_neighbors=40, noise_multiplier=1.5)
    with (
        patch("vicinal.interactions.fit_registry.REGISTRY._claims", []),
        patch.object(EnginePlanner, "create_radius", refused),
    ):
        for _ in range(30):
            with suppress(InvalidInput):
                tired.fit(_X, _Y, public=_R)
    return "" if len(set(told)) == 1 else f"{len(set(told))} draws of one size in 30 refusals"


def sizes_of_refused_fits() -> str:
    """A fit that is refused again must not tell a second noisy size."""

    def control() -> str:
        with patch.object(Interaction, "keep_first_noisy_count", lambda _, estimate: estimate):
            return _sizes()

    return _verdict(_sizes, control)


def _fits() -> str:
    """Answer from overlapping halves of the same people, three times."""
    given = 0
    with patch("vicinal.interactions.fit_registry.REGISTRY._claims", []):
        for start in range(0, 150, 50):
            rows = slice(start, start + 150)
            asked = IndKNNClassifier(range(3), n_records=150, noise_multiplier=1.5)
            with suppress(PrivacyRefused):
                asked.fit(_X[rows], _Y[rows], public=_R).predict(_Q[:1])
                given += 1
    return "" if given == 1 else f"{given} interactions with the same people for the price of one"


def fits_on_the_same_people() -> str:
    """Fitting again, on other folds too, must not refill budgets."""

    def control() -> str:
        with patch.object(FitRegistry, "_find_refusal_reason", lambda *_: ""):
            return _fits()

    return _verdict(_fits, control)


ATTACKS = [
    ("a refusal follows the noisy count", refusals_by_noisy_counts),
    ("progress follows the number of records", progress_by_records),
    ("refused fits tell the size again and again", sizes_of_refused_fits),
    ("the same people are fitted again", fits_on_the_same_people),
]


def main() -> None:
    """Print every verdict."""
    for name, attack in ATTACKS:
        print(f"{name}: {attack()}")


if __name__ == "__main__":
    main()
