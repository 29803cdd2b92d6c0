"""A plan of releases as JSON, and what it costs before anything is spent.

A plan is ``{"delta": 1e-5, "releases": [{"kind": ..., "count": ..., ...}, ...]}``. The kinds and
their fields stand in :mod:`vicinal.accounting.kinds`. Everything in a plan is public.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from vicinal import checks
from vicinal.accounting import _certificate
from vicinal.accounting.composition import Composition, compose
from vicinal.accounting.kinds import KINDS, PlannedRelease
from vicinal.errors import InvalidInput

NEIGHBOURING = "one subject added or removed, with all of that subject's records"
COMMON_ASSUMPTIONS = (
    (
        "every release of the plan is made on the same subjects, with fresh noise, and its "
        "parameters do not depend on private data"
    ),
    (
        "noise has the stated law: real Gaussian noise, or discrete noise whose "
        "difference from it is accounted for elsewhere"
    ),
)


@dataclasses.dataclass(frozen=True)
class Step:
    """`count` equal releases: the fields of the plan, checked, defaults filled in."""

    release: PlannedRelease
    count: int

    def to_dict(self) -> dict[str, Any]:
        """Return the step as in the JSON of a plan."""
        return {"kind": self.release.kind, **self.release.values, "count": self.count}

    def composition(self) -> Composition:
        """Return all releases of the step."""
        return self.release.cost(self.count)


@dataclasses.dataclass(frozen=True)
class Plan:
    """Releases that are to be made, and the delta at which they are priced.

    Examples
    --------
    >>> from vicinal.accounting import Plan
    >>> release = {"kind": "gaussian", "sigma": 5.0, "count": 1}
    >>> plan = Plan.from_dict({"delta": 1e-5, "releases": [release]})
    >>> round(plan.price()["epsilon"], 2)
    0.73
    """

    delta: float
    steps: tuple[Step, ...]

    @classmethod
    def from_dict(cls, plan: object) -> Plan:
        """Return the plan that a JSON object states.

        Raises
        ------
        InvalidInput
            Naming the field, for anything missing, unknown or out of bounds.
        """
        fields = mapping("plan", plan)
        _check_fields("plan", fields, ("delta", "releases"), required=("delta", "releases"))
        delta = checks.check_real("delta", fields["delta"], above=0, below=1)
        releases = releases_of(fields)
        steps = tuple(
            _step(f"releases[{place}]", release, delta) for place, release in enumerate(releases)
        )
        return cls(delta, steps)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values, from which the same plan is made again."""
        return {"delta": self.delta, "releases": [step.to_dict() for step in self.steps]}

    def composition(self) -> Composition:
        """Return all releases of all steps."""
        return compose(step.composition() for step in self.steps)

    def price(self, *, lower: bool = True) -> dict[str, Any]:
        """Return what the plan costs by every valid method, with a lower bound and assumptions.

        Returns
        -------
        dict
            ``epsilon`` the best valid bound, ``method`` which one that is, ``by_method``,
            ``lower`` (None where there is no certificate, or none is wanted), ``delta``,
            ``neighbouring``, ``assumptions``, ``releases`` (each step with its ``share`` of the RDP
            at the best order, the epsilon of that step alone, ``alone``, and its ``parts``).
        """
        total = self.composition()
        epsilons = {name: total.to_epsilon(self.delta, name) for name in total.methods()}
        by_method = {name: value for name, value in epsilons.items() if math.isfinite(value)}
        if not by_method:
            raise InvalidInput(
                "The 'releases' parameter: no method gives a bound for these releases together "
                f"at delta {self.delta:g}. Take a larger delta, or give Rényi divergences at more "
                "orders, or losses without infinite ones."
            )
        method = min(by_method, key=lambda name: by_method[name])
        return {
            "epsilon": by_method[method],
            "method": method,
            "by_method": by_method,
            "lower": self.lower() if lower else None,
            "delta": self.delta,
            "neighbouring": NEIGHBOURING,
            "assumptions": list(self.assumptions()),
            "releases": self._shares(total),
        }

    def lower(self) -> float | None:
        """Return an epsilon that the plan cannot be better than, or None without a certificate."""
        order = self.composition().best_order(self.delta)
        pairs: list[_certificate.WorstCasePair] = []
        for step in self.steps:
            worst_pairs = step.release.worst_case(step.count, order)
            if worst_pairs is None:
                return None
            pairs.extend(worst_pairs)
        return _certificate.lower_epsilon(pairs, self.delta)

    def assumptions(self) -> tuple[str, ...]:
        """Return in words what must be true for the price to hold."""
        particular = dict.fromkeys(
            words for step in self.steps for words in step.release.assumptions()
        )
        return (*COMMON_ASSUMPTIONS, *particular)

    def _shares(self, total: Composition) -> list[dict[str, Any]]:
        order = total.best_order(self.delta)
        costs = [float(step.composition().rdp(order)[0]) for step in self.steps]
        if not math.isfinite(sum(costs)):  # losses that may be infinite have no divergence
            costs = [step.composition().least_epsilon(self.delta) for step in self.steps]
            costs = [cost if math.isfinite(cost) else 0.0 for cost in costs]
        total_cost = sum(costs) or 1.0
        return [
            {
                **step.to_dict(),
                "share": cost / total_cost,
                "alone": step.composition().least_epsilon(self.delta),
                **({"parts": parts} if (parts := step.release.parts(self.delta)) else {}),
            }
            for step, cost in zip(self.steps, costs, strict=True)
        ]


def account(plan: object) -> dict[str, Any]:
    """Return the price of a plan given as the plain values of its JSON; see :meth:`Plan.price`.

    Examples
    --------
    >>> from vicinal import account
    >>> release = {"kind": "gaussian", "sigma": 10.0, "count": 20}
    >>> round(account({"delta": 1e-5, "releases": [release]})["epsilon"], 2)
    1.76
    """
    return Plan.from_dict(plan).price()


def releases_of(plan: object) -> Sequence[object]:
    """Return the releases of a plan's JSON, not yet checked one by one."""
    releases = mapping("plan", plan).get("releases")
    if not isinstance(releases, list | tuple) or not releases:
        raise InvalidInput("The 'releases' parameter must be a list of at least one release.")
    return releases


def _step(name: str, release: object, delta: float) -> Step:
    fields = mapping(name, release)
    if "kind" not in fields:
        raise InvalidInput(f"The '{name}.kind' parameter is missing.")
    kind = KINDS[checks.check_choice(f"{name}.kind", fields["kind"], tuple(KINDS))]
    values = {key: value for key, value in fields.items() if key != "kind"}
    _check_fields(name, values, (*kind.field_names(), "count"), required=kind.required())
    count = checks.check_integer(f"{name}.count", values.pop("count", 1), least=1, most=10**9)
    step = Step(kind.from_fields(name, values).complete(name, delta, count), count)
    try:
        step.composition()
    except InvalidInput as error:
        raise InvalidInput(f"In '{name}', with all fields together: {error}") from None
    return step


def mapping(name: str, value: object) -> Mapping[str, Any]:
    """Return `value` if it is a JSON object."""
    if not isinstance(value, Mapping):
        raise InvalidInput(f"The {name!r} parameter must be a JSON object. Got {value!r}.")
    return value


def _check_fields(
    name: str, fields: Mapping[str, Any], allowed: tuple[str, ...], required: tuple[str, ...]
) -> None:
    prefix = "" if name == "plan" else f"{name}."
    for key in fields:
        if key not in allowed:
            raise InvalidInput(
                f"The '{prefix}{key}' parameter is not known. Known here: {', '.join(allowed)}."
            )
    for key in required:
        if key not in fields:
            raise InvalidInput(f"The '{prefix}{key}' parameter is missing.")
