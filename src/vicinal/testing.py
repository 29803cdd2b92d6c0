"""For tests and audits of private predictions: budgets in the open, known noise, two worlds.

Everything here looks behind the guarantee. It is for made-up records, or for a curator who checks
their own system: what it returns is as private as the records, and nothing seen with it may leave.

>>> import numpy as np
>>> from vicinal import IndKNNClassifier, testing
>>> rng = np.random.default_rng(0)
>>> world = testing.World(rng.normal(size=(300, 4)), rng.integers(0, 2, 300), np.arange(300))
>>> with testing.noise_from(testing.no_noise()):
...     clf = IndKNNClassifier(range(2), n_queries=5, n_records=300, model_share=0)
...     clf = clf.fit(*world, public=rng.normal(size=(100, 4)))
>>> votes = clf.decision_function(world.X[:5])
>>> min(testing.remaining_budgets(clf).values()) < 1
True
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal._arrays import AnyArray, Ints
from vicinal._checks import SubjectId
from vicinal.accounting import UNITS
from vicinal.errors import InvalidInput
from vicinal.mechanisms import NoiseSource, randomness
from vicinal.store import DEFAULT, Store


def remaining_budgets(owner: Any, audience: str = DEFAULT) -> dict[SubjectId, float]:
    """Return what every subject has left, as a share of a full budget. Private.

    Parameters
    ----------
    owner : fitted Ind-KNN estimator, or Store
        Whose subjects are meant; those who were erased are not there.
    audience : str
        The audience of a store.

    Raises
    ------
    InvalidInput
        If `owner` keeps no budgets in this process: a cluster, say, or an estimator before `fit`.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import IndKNNClassifier, testing
    >>> X, who = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60)
    >>> clf = IndKNNClassifier(range(2), n_queries=5, n_records=60, model_share=0)
    >>> clf = clf.fit(X, who % 2, who, public=X[:40] + 1)
    >>> testing.remaining_budgets(clf)[17]
    1.0
    """
    places, units = _places_and_units(owner, audience)
    return {subject: int(units[slot]) / UNITS for subject, slot in places.items()}


def _places_and_units(owner: Any, audience: str) -> tuple[Any, Ints]:
    """Return the slot of every subject, and units left by slot: the array that is charged."""
    if isinstance(owner, Store):
        ledger = owner._parts.ledger
        return ledger.slot_table.slot_of, ledger.audiences[audience].account.remaining
    if not hasattr(owner, "_engine"):
        raise InvalidInput("Budgets can be read of a fitted Ind-KNN estimator or a Store.")
    account = owner._engine.shard.ledger
    return account._slot_of, account.remaining


class _Silence(NoiseSource):
    """A source of zeros: what is released is the sum itself."""

    exact = False

    def discrete_gaussian(self, scale: int, size: int) -> Ints:  # noqa: ARG002 (whatever the scale)
        return np.zeros(size, dtype=np.int64)


class _WeakNoise(NoiseSource):
    """A part of the noise that was paid for."""

    exact = False

    def __init__(self, divisor: int) -> None:
        self._divisor = divisor
        self._noise = randomness()

    def discrete_gaussian(self, scale: int, size: int) -> Ints:
        return self._noise.discrete_gaussian(max(1, scale // self._divisor), size)


def no_noise() -> NoiseSource:
    """Return a source of zeros, to see the sums that charges paid for.

    Examples
    --------
    >>> from vicinal import testing
    >>> testing.no_noise().discrete_gaussian(100, 2)
    array([0, 0])
    """
    return _Silence()


def weak_noise(divisor: int = 2) -> NoiseSource:
    """Return exact noise at scales divided by `divisor`: a broken version, for audits to catch.

    Examples
    --------
    >>> from vicinal import testing
    >>> testing.weak_noise(4).exact
    False
    """
    return _WeakNoise(divisor)


def seeded_noise(seed: int) -> NoiseSource:
    """Return noise that is the same for the same seed and calls; it carries no guarantee.

    Examples
    --------
    >>> from vicinal import testing
    >>> one, two = testing.seeded_noise(3), testing.seeded_noise(3)
    >>> bool((one.discrete_gaussian(9, 5) == two.discrete_gaussian(9, 5)).all())
    True
    """
    return randomness(seed)


@contextmanager
def noise_from(source: NoiseSource) -> Iterator[None]:
    """Let everything that is planned inside draw its noise from `source`.

    Estimators fitted and stores made or opened inside keep it afterwards. For one thread.

    Examples
    --------
    >>> from vicinal import testing
    >>> with testing.noise_from(testing.no_noise()):
    ...     pass  # what is fitted here releases its sums as they are
    """
    # Mechanisms are given their noise; whoever makes it above them does so by one name.
    with _replaced("randomness", lambda _=None: source, ("vicinal.mechanisms", "vicinal.noise")):
        yield


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Let searches and charges inside run on `number` threads: it must not change an answer.

    Examples
    --------
    >>> from vicinal import testing
    >>> with testing.threads(3):
    ...     pass  # what is asked here is asked by three threads
    """
    with _replaced("THREADS", number):
        yield


@contextmanager
def _replaced(name: str, value: Any, but: tuple[str, ...] = ()) -> Iterator[None]:
    """Replace a global in all loaded modules of vicinal that have it, but in packages `but`."""
    places = [
        vars(module)
        for path, module in list(sys.modules.items())
        if path.startswith("vicinal.") and not path.startswith((*but, __name__))
        if name in vars(module)
    ]
    before = [place[name] for place in places]
    for place in places:
        place[name] = value
    try:
        yield
    finally:
        for place, old in zip(places, before, strict=True):
            place[name] = old


def draw_from(owner: Any, source: NoiseSource) -> None:
    """Let one fitted estimator draw from `source` instead of its own noise, from now on.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import IndKNNClassifier, testing
    >>> X, who = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60)
    >>> clf = IndKNNClassifier(range(2), n_queries=5, n_records=60, model_share=0)
    >>> clf = clf.fit(X, who % 2, who, public=X[:40] + 1)
    >>> testing.draw_from(clf, testing.no_noise())
    """
    engine = owner._engine
    engine.votes.noise = source
    if engine.count is not None:
        engine.count._noise = source


@dataclass(frozen=True)
class World:
    """Records to fit on: features (n, d), what they carry (n, ...), and subjects (n,).

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import testing
    >>> world = testing.World(np.eye(3), np.zeros(3), np.array([1, 2, 2]))
    >>> len(world.without(2).X)
    1
    """

    X: AnyArray
    y: AnyArray
    subjects: AnyArray

    def __iter__(self) -> Iterator[AnyArray]:
        return iter((self.X, self.y, self.subjects))

    def without(self, subject: SubjectId) -> World:
        """Return the neighbouring world: all records but those of one subject."""
        stays = np.asarray(self.subjects) != subject
        return World(self.X[stays], self.y[stays], np.asarray(self.subjects)[stays])

    def only(self, subject: SubjectId) -> World:
        """Return the records of one subject alone."""
        own = np.asarray(self.subjects) == subject
        return World(self.X[own], self.y[own], np.asarray(self.subjects)[own])


@dataclass(frozen=True)
class ChargedBlock:
    """A block of queries before noise: its release, and the sums it charged for. Private.

    Examples
    --------
    >>> from vicinal.testing import ChargedBlock
    >>> ChargedBlock(release=None, sums=None).release is None
    True
    """

    release: Any
    sums: Ints


def charged_block(owner: Any, queries: npt.ArrayLike) -> ChargedBlock:
    """Charge for queries as a fitted estimator does, and return what noise would go on. Private.

    Noise drawn by ``release.publish(sums)`` may be drawn again and again: contributions and
    charges do not depend on it.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import IndKNNClassifier, testing
    >>> X, who = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60)
    >>> clf = IndKNNClassifier(range(2), n_queries=5, n_records=60, model_share=0)
    >>> clf = clf.fit(X, who % 2, who, public=X[:40] + 1)
    >>> block = testing.charged_block(clf, X[:2])
    >>> block.release.publish(block.sums).shape
    (2, 2)
    """
    engine = owner._engine
    integers = owner._encoded(np.asarray(queries))
    noise = engine.schedule.multiplier * np.sqrt(engine.radius.expected(integers))
    release = engine.votes.release(noise)
    sums = engine.shard.charge_and_sum(release, integers, engine.radius.thresholds(integers))
    return ChargedBlock(release, sums)


def refill(owner: Any, audience: str = DEFAULT) -> None:
    """Break the filter: give every subject a whole budget again, uncharged.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import IndKNNClassifier, testing
    >>> X, who = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60)
    >>> clf = IndKNNClassifier(range(2), n_queries=5, n_records=60, model_share=0)
    >>> clf = clf.fit(X, who % 2, who, public=X[:40] + 1)
    >>> block = testing.charged_block(clf, X[:5])
    >>> testing.refill(clf)
    >>> set(testing.remaining_budgets(clf).values())
    {1.0}
    """
    _, units = _places_and_units(owner, audience)
    units[:] = UNITS


def forget_departed(owner: Any) -> None:
    """Break the ledger of an estimator: who left is forgotten, and comes back with all of it.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import IndKNNClassifier, testing
    >>> X, who = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60)
    >>> clf = IndKNNClassifier(range(2), n_queries=5, n_records=60, model_share=0)
    >>> clf = clf.fit(X, who % 2, who, public=X[:40] + 1)
    >>> clf.erase([17])
    1
    >>> testing.forget_departed(clf)  # 17 would come back with a full budget
    """
    owner._engine.shard.ledger._departed.clear()
