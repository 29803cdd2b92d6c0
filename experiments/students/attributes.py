"""Attributes of people under the tau-approximation: true attribute labels, **made** features.

Source: ZYCW20, Table 3 and supplement, Theorem 5. The images of Market-1501 are not to be had here;
its attribute labels are. So what the clipping does to votes is exact, and what the accounting says
is exact; every accuracy depends on features that this file makes up, and says nothing of images.

Simulated with seeded noise, as in :mod:`vicinal.reports._demo`.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from vicinal.errors import InvalidInput
from vicinal.planning import priced
from vicinal.predictors import IndKNNMultiLabelClassifier, PrivateKNNClassifier

Bools = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.float64]

IMAGES = 17
"""Made images of a person: Market-1501 has 12,936 of 751 people to train on."""

DIMENSIONS, BLUR = 64, 2.0
"""Size of made features, and the deviation of what is not told by attributes."""

QUERIES = 1200
SIGMA, TAU = 100.0, 10.0
"""The paper's, as far as we know them (accounting.md): sigma 100 at tau 10, 1,200 queries."""

PRINTED = {0.05: 0.67, 0.1: 1.38}
"""Epsilons that ZYCW20 prints in Table 3 for Market-1501, by what we take for their gammas."""


@dataclass(frozen=True, slots=True, eq=False)
class Attributes:
    """Attributes of people, by name.

    Attributes
    ----------
    names : tuple of str
        Of the columns.
    private, public : bool (n, c), (m, c)
        Who has what, in the file's training part and in its test part.
    """

    names: tuple[str, ...]
    private: Bools
    public: Bools

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a table with the columns split, identity, age (1 to 4) and others (1 no, 2 yes).

        Ages become an attribute each. Identities are not kept.

        Raises
        ------
        InvalidInput
            If the file is missing, or laid out differently; values are not echoed.
        """
        header, rows = _read(path)
        columns: dict[str, list[bool]] = {}
        for place, name in enumerate(header):
            values = [row[place] for row in rows]
            if name == "age":
                columns |= {f"age{age}": [v == age for v in values] for age in "1234"}
            elif name not in ("split", "identity"):
                columns[name] = [value == "2" for value in values]
        table = np.array(list(columns.values()), dtype=np.bool_).T
        training = np.array([row[header.index("split")] == "train" for row in rows])
        if training.all() or not training.any():
            raise InvalidInput(f"{path} must have people in both splits, train and test.")
        return cls(tuple(columns), table[training], table[~training])


@dataclass(frozen=True, slots=True)
class Clipped:
    """What a tau does to the votes of people, exactly.

    Attributes
    ----------
    tau : float
        The bound on the votes of a record.
    people, of : int
        People with more attributes than tau, of so many.
    lost : float
        Share of all votes that clipping takes away.
    """

    tau: float
    people: int
    of: int
    lost: float

    @classmethod
    def by(cls, attributes: Bools, tau: float) -> Self:
        """Count people (n, c) whose votes are clipped."""
        sizes = attributes.sum(axis=1)
        over = np.maximum(sizes - tau, 0.0)
        return cls(tau, int((sizes > tau).sum()), len(sizes), float(over.sum() / sizes.sum()))


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """Made features of private images and of queries, with their true attributes."""

    records: Rows
    record_attributes: Bools
    queries: Rows
    truth: Bools

    @classmethod
    def of(cls, attributes: Attributes, run: int) -> Self:
        """Make features: a random linear picture of the attributes, blurred image by image."""
        generator = np.random.default_rng(run)  # noqa: TID251 (made data, no privacy hangs on it)
        mixing = generator.normal(size=(len(attributes.names), DIMENSIONS))
        owners = np.repeat(np.arange(len(attributes.private)), IMAGES)
        strangers = np.resize(np.arange(len(attributes.public)), QUERIES)

        def pictured(people: Bools) -> Rows:
            blur = BLUR * generator.normal(size=(len(people), DIMENSIONS))
            return np.asarray((people - 0.5) @ mixing + blur)

        private, public = attributes.private[owners], attributes.public[strangers]
        return cls(pictured(private), private, pictured(public), public)


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """Private-kNN at one tau and gamma, its noise in proportion to sqrt(tau).

    Attributes
    ----------
    tau, gamma, sigma : float
        Its parameters.
    epsilon : dict
        By method of accounting, and ``"best"``: the same for all tau, but for rounding.
    right : float64 (c,)
        Share of right answers for each attribute, mean over runs.
    """

    tau: float
    gamma: float
    sigma: float
    epsilon: dict[str, float]
    right: Rows

    def to_dict(self, names: Sequence[str]) -> dict[str, Any]:
        """Return plain values, for JSON."""
        by_name = dict(zip(names, self.right.round(4).tolist(), strict=True))
        return {
            "tau": self.tau,
            "gamma": self.gamma,
            "sigma": self.sigma,
            "epsilon": self.epsilon,
            "accuracy": float(self.right.mean()),
            "by_attribute": by_name,
        }


def point(made: Sequence[Made], k: int, tau: float, gamma: float) -> Point:
    """Return what Private-kNN gets right at a tau, one run on each of `made`."""
    sigma = SIGMA * float(np.sqrt(tau / TAU))
    right, plan = [], {}
    for run, world in enumerate(made):
        names = range(world.truth.shape[1])
        classifier = PrivateKNNClassifier(
            names, k, gamma, sigma_votes=sigma, tau=tau, n_queries=QUERIES, simulation_seed=run
        ).fit(world.records, world.record_attributes)
        plan = classifier.plan()
        right.append((classifier.predict(world.queries) == world.truth).mean(axis=0))
    price = priced(plan)
    epsilon = {**price["by_method"], "best": price["epsilon"]}
    return Point(tau, gamma, sigma, epsilon, np.mean(right, axis=0))


def individual(made: Sequence[Made], epsilon: float) -> float:
    """Return what Ind-KNN for several labels gets right at an epsilon, mean over all attributes.

    The queries themselves are its public reference. A record is an image, as above.
    """
    right = []
    for run, world in enumerate(made):
        model = IndKNNMultiLabelClassifier(
            range(world.truth.shape[1]), epsilon, n_queries=QUERIES, simulation_seed=run
        ).fit(world.records, world.record_attributes, public=world.queries)
        right.append((model.predict(world.queries) == world.truth).mean())
    return float(np.mean(right))


def not_private(made: Sequence[Made], k: int) -> Rows:
    """Return shares of right answers (c,) of the plain majority of the k nearest of all records."""
    from sklearn.neighbors import NearestNeighbors

    right = []
    for world in made:
        search = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(world.records)
        near = search.kneighbors(world.queries, return_distance=False)
        found = 2 * world.record_attributes[near].sum(axis=1) >= k
        right.append((found == world.truth).mean(axis=0))
    return np.asarray(np.mean(right, axis=0))


def blind(attributes: Attributes, made: Sequence[Made]) -> Rows:
    """Return shares of right answers (c,) of the commonest value, whatever the query."""
    common = attributes.private.mean(axis=0) >= 0.5
    return np.asarray(np.mean([(world.truth == common).mean(axis=0) for world in made], axis=0))


def _read(path: Path) -> tuple[list[str], list[list[str]]]:
    try:
        with Path(path).open(newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file)
    except FileNotFoundError:
        raise InvalidInput(f"There is no file {path}.") from None
    except (OSError, UnicodeDecodeError, ValueError, csv.Error):
        raise InvalidInput(f"{path} is not a sound CSV file with a header.") from None
    if not ({"split", "identity", "age"} < set(header) and rows and _allowed(header, rows)):
        raise InvalidInput(
            f"{path} must have the columns split, identity, age (1 to 4) and attributes (1 or 2)."
        )
    return header, rows


def _allowed(header: list[str], rows: list[list[str]]) -> bool:
    """Tell whether every row has a value for every column, and a possible one."""
    possible = {"split": {"train", "test"}, "age": set("1234")}
    return all(
        len(row) == len(header)
        and all(
            name == "identity" or value in possible.get(name, {"1", "2"})
            for name, value in zip(header, row, strict=True)
        )
        for row in rows
    )
