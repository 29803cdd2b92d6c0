"""Two worlds, many times over in one data set: universes that do not see one another.

A *universe* is a direction of its own in feature space with one subject at risk, some other people
and one query; nobody in another universe is near. Noise is drawn for each query by itself, so every
universe is an independent run of the same attack, and a data set of a thousand universes gives a
thousand runs. All of it is made up: a seed that anybody may know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from vicinal._arrays import AnyArray, Floats, Ints
from vicinal.mechanisms import public_draws

Placed = tuple[float, Any]
"""A record: its similarity to the universe's query, and its label, number, or row of them."""

AXES = 64
"""Features in which universes lie in random directions, so many that :data:`APART` holds."""

MOST = 500
"""Universes of a data set, at most."""

APART = 0.75
"""No two universes lie nearer to each other than this; radii are at .8."""

REFERENCE = 0.8
"""Similarity of a universe's one reference point, which sets an adaptive radius."""


@dataclass(frozen=True)
class People:
    """Records, labels and subject ids, in that order as ``fit`` takes them."""

    X: Floats
    y: AnyArray
    subjects: Ints

    def and_(self, others: People) -> People:
        """Return these people and `others`."""
        return People(
            np.concatenate([self.X, others.X]),
            np.concatenate([self.y, others.y]),
            np.concatenate([self.subjects, others.subjects]),
        )


@dataclass(frozen=True)
class Universes:
    """`count` universes: the subjects at risk, other people, reference points and queries."""

    count: int
    victims: People
    others: People
    public: Floats
    queries: Floats

    def people(self, present: bool) -> People:
        """Return everybody of one world."""
        return self.others.and_(self.victims) if present else self.others


@lru_cache(maxsize=4)
def _axes(count: int) -> Floats:
    axes = public_draws(0).normal(size=(count, AXES))
    axes /= np.linalg.norm(axes, axis=1, keepdims=True)
    nearest = np.abs(axes @ axes.T - np.eye(count)).max()
    assert nearest < APART  # noqa: S101 (universes must stay outside each other's radius)
    return np.asarray(axes)


def directions(count: int, cosine: float) -> Floats:
    """Return one vector per universe at `cosine` to its query, the rest along a shared axis."""
    remainder = np.full((count, 1), np.sqrt(1 - cosine**2))
    return np.concatenate([cosine * _axes(count), remainder], axis=1)


def universes(
    victim: Sequence[Placed], others: Sequence[Placed], *, rounds: int = 1, count: int = MOST
) -> Universes:
    """Lay out `count` equal universes.

    - `victim`, sequence of (cosine, label): the records of the one subject at risk.
    - `others`, sequence of (cosine, label): records of other people of a universe, a subject each;
      at least one.
    - `rounds`: how often each universe is asked; all universes are asked once before any is asked
      twice.
    - `count`: at most :data:`MOST`.
    """
    return Universes(
        count,
        _people(count, victim, lambda _: np.arange(count)),
        _people(count, others, lambda i: np.arange(count) + (i + 1) * count),
        directions(count, REFERENCE),
        np.tile(directions(count, 1.0), (rounds, 1)),
    )


def _people(count: int, records: Sequence[Placed], ids: Callable[[int], Ints]) -> People:
    return People(
        np.concatenate([directions(count, cosine) for cosine, _ in records]),
        np.repeat(np.array([label for _, label in records]), count, axis=0),
        np.concatenate([ids(i) for i in range(len(records))]),
    )
