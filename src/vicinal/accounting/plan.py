"""A plan of releases as JSON, and its privacy cost before any budget is spent.

A plan is ``{"delta": 1e-5, "releases": [{"kind": ..., "count": ..., ...}, ...]}``. The kinds and
their fields are defined in :mod:`vicinal.accounting.kinds`. Everything in a plan is public.
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
        "noise has the stated distribution: real Gaussian noise, or discrete noise whose "
        "difference from it is accounted for elsewhere"
    ),
)


@dataclasses.dataclass(frozen=True)
class Step:
    """`count` equal releases of a plan, with checked fields and defaults filled in."""

    release: PlannedRelease
    count: int

    def to_dict(self) -> dict[str, Any]:
        """Return the step as an entry of ``releases`` in the JSON of a plan."""
        return {"kind": self.release.kind, **self.release.values, "count": self.count}

    def composition(self) -> Composition:
        """Return the composition of all releases of the step."""
        return self.release.compose_releases(self.count)


@dataclasses.dataclass(frozen=True)
class Plan:
    """Planned releases, and the delta at which their epsilon is computed.

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
        """Return the plan of a JSON object, given as plain Python values.

        Raises InvalidInput, which names the field, for anything missing, unknown or out of bounds.
        """
        fields = check_mapping("plan", plan)
        _check_fields("plan", fields, ("delta", "releases"), required=("delta", "releases"))
        delta = checks.check_real("delta", fields["delta"], above=0, below=1)
        releases = extract_releases(fields)
        steps = tuple(
            _parse_step(f"releases[{index}]", release, delta)
            for index, release in enumerate(releases)
        )
        return cls(delta, steps)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values; :meth:`from_dict` of them is an equal plan."""
        return {"delta": self.delta, "releases": [step.to_dict() for step in self.steps]}

    def composition(self) -> Composition:
        """Return the composition of all releases of all steps."""
        return compose(step.composition() for step in self.steps)

    def price(self, *, lower: bool = True) -> dict[str, Any]:
        """Return the epsilon of the plan by every valid method, a lower bound and the assumptions.

        `lower`: whether to compute a lower bound on epsilon. Raises InvalidInput if no method gives
        a bound at the plan's delta.

        Returns
        -------
        dict
            ``epsilon``, the smallest valid bound; ``method``, its method; ``by_method``, the bound
            of every method; ``lower``, an epsilon that no analysis can go below (None if none is
            known or asked for); ``delta``; ``neighbouring``; ``assumptions``; ``releases``, each
            step with its ``share`` of the RDP at the best order, its epsilon ``alone``, and the
            ``parts`` of a release that has different components.
        """
        total = self.composition()
        epsilons = {name: total.to_epsilon(self.delta, name) for name in total.list_methods()}
        by_method = {name: value for name, value in epsilons.items() if math.isfinite(value)}
        if not by_method:
            raise InvalidInput(
                "The 'releases' parameter: no method gives a bound for these releases together "
                f"at delta {self.delta:g}. Take a larger delta, give the filter a smaller delta, "
                "or give Rényi divergences at more orders, or losses without infinite ones."
            )
        method = min(by_method, key=lambda name: by_method[name])
        return {
            "epsilon": by_method[method],
            "method": method,
            "by_method": by_method,
            "lower": self.compute_lower_bound() if lower else None,
            "delta": self.delta,
            "neighbouring": NEIGHBOURING,
            "assumptions": list(self.list_assumptions()),
            "releases": self._describe_steps(total),
        }

    def compute_lower_bound(self) -> float | None:
        """Return a lower bound on the plan's epsilon; None if a release has no attained pair."""
        order = self.composition().find_best_order(self.delta)
        pairs: list[_certificate.AttainedPair] = []
        for step in self.steps:
            step_pairs = step.release.list_attained_pairs(step.count, order)
            if step_pairs is None:
                return None
            pairs.extend(step_pairs)
        return _certificate.compute_lower_epsilon(pairs, self.delta)

    def list_assumptions(self) -> tuple[str, ...]:
        """Return the assumptions under which the bounds hold, each sentence once."""
        step_assumptions = [a for step in self.steps for a in step.release.list_assumptions()]
        return (*COMMON_ASSUMPTIONS, *dict.fromkeys(step_assumptions))

    def _describe_steps(self, total: Composition) -> list[dict[str, Any]]:
        """Return the entry ``releases`` of :meth:`price`; `total`: the composition of all steps."""
        order = total.find_best_order(self.delta)
        # Probabilistic disclosures have infinite RDP at every order, and cost the same in any step.
        without_disclosures = [step.composition().split_disclosures()[0] for step in self.steps]
        costs = [float(cost.rdp(order)[0]) for cost in without_disclosures]
        if not math.isfinite(sum(costs)):
            # A step whose loss can be infinite has no finite RDP: steps are compared by epsilon.
            costs = [step.composition().compute_min_epsilon(self.delta) for step in self.steps]
            costs = [cost if math.isfinite(cost) else 0.0 for cost in costs]
        total_cost = sum(costs) or 1.0
        descriptions = []
        for step, cost in zip(self.steps, costs, strict=True):
            description: dict[str, Any] = {
                **step.to_dict(),
                "share": cost / total_cost,
                "alone": step.composition().compute_min_epsilon(self.delta),
            }
            components = step.release.describe_components(self.delta)
            if components:
                description["parts"] = components
            descriptions.append(description)
        return descriptions


def account(plan: object) -> dict[str, Any]:
    """Return the privacy cost of a plan, given as the plain values of its JSON; see `Plan.price`.

    Examples
    --------
    >>> from vicinal import account
    >>> release = {"kind": "gaussian", "sigma": 10.0, "count": 20}
    >>> round(account({"delta": 1e-5, "releases": [release]})["epsilon"], 2)
    1.76
    """
    return Plan.from_dict(plan).price()


def extract_releases(plan: object) -> Sequence[object]:
    """Return the nonempty list ``releases`` of a plan's JSON; its entries are not yet checked."""
    releases = check_mapping("plan", plan).get("releases")
    if not isinstance(releases, list | tuple) or not releases:
        raise InvalidInput("The 'releases' parameter must be a list of at least one release.")
    return releases


def _parse_step(name: str, release: object, delta: float) -> Step:
    """Return an entry of ``releases``, a JSON object called `name` in errors, as a checked step.

    `delta`: the plan's.
    """
    fields = check_mapping(name, release)
    if "kind" not in fields:
        raise InvalidInput(f"The '{name}.kind' parameter is missing.")
    kind = KINDS[checks.check_choice(f"{name}.kind", fields["kind"], tuple(KINDS))]
    values = {key: value for key, value in fields.items() if key != "kind"}
    _check_fields(
        name, values, (*kind.list_field_names(), "count"), required=kind.list_required_fields()
    )
    count = checks.check_integer(f"{name}.count", values.pop("count", 1), minimum=1, maximum=10**9)
    resolved = kind.from_fields(name, values).validate_and_fill_fields(name, delta, count)
    step = Step(resolved, count)
    try:
        step.composition()
    except InvalidInput as error:
        raise InvalidInput(f"In '{name}', with all fields together: {error}") from None
    return step


def check_mapping(name: str, value: object) -> Mapping[str, Any]:
    """Return `value` if it is a JSON object; else raise InvalidInput, which calls it `name`."""
    if not isinstance(value, Mapping):
        raise InvalidInput(f"The {name!r} parameter must be a JSON object. Got {value!r}.")
    return value


def _check_fields(
    name: str, fields: Mapping[str, Any], allowed: tuple[str, ...], required: tuple[str, ...]
) -> None:
    """Raise InvalidInput unless `fields` are all `allowed`, and include all `required` ones.

    `name`: the name of their JSON object in the message.
    """
    prefix = "" if name == "plan" else f"{name}."
    for key in fields:
        if key not in allowed:
            raise InvalidInput(
                f"The '{prefix}{key}' parameter is not known. Known here: {', '.join(allowed)}."
            )
    for key in required:
        if key not in fields:
            raise InvalidInput(f"The '{prefix}{key}' parameter is missing.")
