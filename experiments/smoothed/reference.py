"""Every value of the reference file against what the smoothed wing computes."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from experiments.smoothed.tables import reference_entries
from vicinal.smoothed import (
    Average,
    FixedSize,
    Histogram,
    KNNVotes,
    NamedMechanism,
    Poisson,
    RadiusVotes,
    Vertices,
    WithReplacement,
    adjusted_utility,
    compose,
    database_delta,
    smoothed_delta,
    worst_case_delta,
)
from vicinal.smoothed.populations import (  # fmt: skip
    compute_log_one_sided_bound,
    compute_log_two_sided_bound,
)

EXACT_TO = 1e-12
FLOAT_TO = 1e-9

Inputs = dict[str, Any]
_GRID = 400


@dataclass(frozen=True)
class Checked:
    """A reference value, ours, their relative difference, and whether that is small enough."""

    name: str
    kind: str
    expected: float
    found: float
    difference: float
    allowed: float

    @property
    def agrees(self) -> bool:
        """Whether the difference is within what is allowed."""
        return self.difference <= self.allowed

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {**asdict(self), "agrees": self.agrees}


def check_reference() -> list[Checked]:
    """Return one row for every entry of the reference file.

    Raises KeyError if an entry has a name that no check knows: none may be passed over.
    """
    return [_checked(entry) for entry in reference_entries()]


def as_text(rows: list[Checked]) -> str:
    """Return the rows as a table that ends with how many agree."""
    lines = [f"{'entry':30} {'expected':>22} {'found':>22} {'difference':>11}"]
    for row in rows:
        mark = "" if row.agrees else "  <- DISAGREES"
        lines.append(
            f"{row.name:30} {row.expected:22.15g} {row.found:22.15g} {row.difference:11.1e}{mark}"
        )
    good = sum(row.agrees for row in rows)
    return "\n".join([*lines, "", f"{good} of {len(rows)} agree"])


def _checked(entry: dict[str, Any]) -> Checked:
    name, inputs = entry["id"], entry["inputs"]
    expected = float(Fraction(entry["exact"])) if "exact" in entry else float(entry["value"])
    check = next(work for prefix, work in _CHECKS if name.startswith(prefix))
    found = check(inputs)
    allowed = EXACT_TO if entry["kind"] == "exact" else FLOAT_TO
    return Checked(name, entry["kind"], expected, found, abs(found / expected - 1), allowed)


def _number(value: str | float) -> float:
    return float(Fraction(value)) if isinstance(value, str) else float(value)


def _epsilon(inputs: Inputs) -> float:
    return inputs["eps"] if "eps" in inputs else math.log(_number(inputs["E"]))


def _fixed(inputs: Inputs) -> Histogram:
    return Histogram(FixedSize(inputs["T"]))


def _replaced(inputs: Inputs) -> Histogram:
    return Histogram(WithReplacement(inputs["T"]))


def _coins(inputs: Inputs) -> Histogram:
    return Histogram(Poisson(_number(inputs["gamma"])))


def _radius(inputs: Inputs) -> RadiusVotes:
    return RadiusVotes(_number(inputs["gamma"]), 2)


def _of_database(
    mechanism: Callable[[Inputs], Any], key: str = "hist"
) -> Callable[[Inputs], float]:
    return lambda inputs: database_delta(mechanism(inputs), inputs[key], _epsilon(inputs)).value


def _of_worlds(mechanism: Callable[[Inputs], Any]) -> Callable[[Inputs], float]:
    def check(inputs: Inputs) -> float:
        rows = [[_number(p) for p in row] for row in inputs.get("vertices", [["1/4", "3/4"]])]
        found = smoothed_delta(mechanism(inputs), Vertices(rows), inputs["n"], _epsilon(inputs))
        return found.value

    return check


def _utility(inputs: Inputs) -> float:
    return adjusted_utility(_fixed(inputs), inputs["hist"], _number(inputs["t"])).value


def _edge(inputs: Inputs) -> float:
    i, j = (int(np.flatnonzero(np.subtract(inputs["x"], inputs["xp"]) == s)[0]) for s in (1, -1))
    x, n = inputs["x"], sum(inputs["x"])
    log = FixedSize(inputs["T"]).compute_divergence(x[i] - 1, x[j], n, _epsilon(inputs))
    return math.exp((log.low + log.high) / 2)


def _votes(inputs: Inputs) -> float:
    return database_delta(_fixed(inputs), [inputs["a"], inputs["b"]], _epsilon(inputs)).value


def _votes_utility(inputs: Inputs) -> float:
    return adjusted_utility(_fixed(inputs), [inputs["a"], inputs["b"]], 0.02).value


def _large(inputs: Inputs) -> float:
    f = _number(inputs["f"])
    found = smoothed_delta(_fixed(inputs), Vertices([[f, 1 - f]]), inputs["n"], inputs["eps"])
    return found.value


def _sum(inputs: Inputs) -> float:
    histogram = np.bincount(np.array(inputs["vals"]) + 4, minlength=9)
    mechanism = Average(range(-4, 5), inputs["T"], "none")
    return database_delta(mechanism, histogram, _epsilon(inputs)).value


def _nearest(classes: int) -> Callable[[Inputs], float]:
    return _of_database(lambda i: KNNVotes(i["k"], _number(i["gamma"]), classes), "seq")


def _composed(inputs: Inputs) -> float:
    releases = [NamedMechanism(Histogram(FixedSize(size)), size) for size in inputs["T"]]
    return database_delta(compose(releases), inputs["hist"], _epsilon(inputs)).value


def _two_sided(inputs: Inputs) -> float:
    """Return the two-sided bound on the reference's own grid: ours is minimised further."""
    shares, left = np.full(inputs["m"], inputs["f"]), 1 - inputs["T"] / inputs["n"]
    highest = min(_epsilon(inputs), -math.log(left))
    grid = highest * np.arange(1, _GRID + 1) / _GRID
    return min(
        compute_log_two_sided_bound(shares, inputs["n"], left, _epsilon(inputs), c) for c in grid
    )


def _one_sided(inputs: Inputs) -> float:
    return compute_log_one_sided_bound(
        np.full(inputs["m"], inputs["f"]), inputs["n"], inputs["T"], _epsilon(inputs)
    )


_CHECKS: tuple[tuple[str, Callable[[Inputs], float]], ...] = (
    ("wo", _of_database(_fixed)),
    ("edge3", _edge),
    ("wr2", _of_database(_replaced)),
    ("poi", _of_database(_coins)),
    ("util", _utility),
    ("smwr", _of_worlds(_replaced)),
    ("sm", _of_worlds(_fixed)),
    ("dp", lambda i: worst_case_delta(_fixed(i), i["n"], _epsilon(i)).value),
    ("bound_two", _two_sided),
    ("bound_one", _one_sided),
    ("avg", _sum),
    ("knn3", _nearest(3)),
    ("knn", _nearest(2)),
    ("rnn_sm", _of_worlds(_radius)),
    ("rnn", _of_database(_radius)),
    ("comp", _composed),
    ("big_fig1u", _votes_utility),
    ("big_fig1", _votes),
    ("big_sm", _large),
)
