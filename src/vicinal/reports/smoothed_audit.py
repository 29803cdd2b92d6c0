"""The report of `vicinal smoothed audit`, as JSON values and as text.

The smoothed delta is the expected delta of a random database, for the worst distribution of a
population. Mechanisms and populations are specified by JSON values.
"""

import math
from collections.abc import Callable, Sequence
from inspect import Parameter, signature
from typing import Any

from vicinal import checks
from vicinal.errors import InvalidInput
from vicinal.progress import begin_progress
from vicinal.smoothed.average import Average
from vicinal.smoothed.databases import NamedMechanism, compose, database_delta, worst_case_delta
from vicinal.smoothed.intervals import LOG_10, format_interval, format_power_of_ten
from vicinal.smoothed.knn import KNNVotes, RadiusVotes
from vicinal.smoothed.mechanism import FixedSize, Histogram, Poisson, WithReplacement
from vicinal.smoothed.populations import Heterogeneous, Hull, Interval, Vertices, bounds
from vicinal.smoothed.rules import Decision, ListedRule, Plurality, Threshold
from vicinal.smoothed.smooth import BOUND_BY_COUNTS, WARNINGS, quantiles, smoothed_delta

_REQUIRED = {"mechanism", "population", "n", "epsilons"}
_FIELDS = _REQUIRED | {"draws", "seed", "levels", "database"}


def audit_smoothed_dp(spec: object) -> dict[str, Any]:
    """Return the smoothed and the worst-case delta of a mechanism for each epsilon, and warnings.

    `spec` is a JSON object with the fields:

    - ``mechanism``, ``population``: specifications, see :func:`build_from_spec`.
    - ``n``: number of records. ``epsilons``: list of numbers >= 0.
    - ``draws``, ``seed`` (optional): number of Monte Carlo samples, and their seed.
    - ``levels`` (optional): thresholds t for which the probability of delta > t is bounded.
    - ``database`` (optional): one database, as its numbers of records by type, or as its labels for
      votes of k neighbours. Its own delta, which is private, is also computed.
    """
    if not isinstance(spec, dict):
        raise InvalidInput("The audit must be a JSON object.")
    _check_fields("The audit", spec, required=sorted(_REQUIRED), known=sorted(_FIELDS))
    epsilons = spec["epsilons"]
    if not isinstance(epsilons, list) or not epsilons:
        raise InvalidInput("The 'epsilons' parameter must be a list of numbers >= 0. Got others.")
    mechanism = build_from_spec("mechanism", spec["mechanism"])
    population = build_from_spec("population", spec["population"])
    n = checks.check_integer("n", spec["n"], minimum=1)
    rows = []
    report_progress = begin_progress("epsilons", len(epsilons))
    for epsilon in epsilons:
        rows.append(_compute_row(mechanism, population, n, epsilon, spec))
        if report_progress is not None:
            report_progress(1)
    return {"n": n, "types": population.types, "rows": rows, "warnings": list(WARNINGS)}


def _compute_row(
    mechanism: Any, population: Any, n: int, epsilon: float, spec: dict[str, Any]
) -> dict[str, Any]:
    """Return all results of the audit at one epsilon, as JSON values.

    They are the smoothed and the worst-case delta; for a decision, the delta of all counts; for a
    sample of fixed size, bounds; and the results for `levels` and `database` of `spec`, the object
    that is passed to :func:`audit_smoothed_dp`. `mechanism`, `population`: objects of
    `vicinal.smoothed`. `n`: number of records.
    """
    draws = spec.get("draws", 0)
    seed = spec.get("seed", 0)
    delta = smoothed_delta(mechanism, population, n, epsilon, draws=draws, seed=seed)
    row: dict[str, Any] = {
        "epsilon": epsilon,
        "smoothed": delta.to_dict(),
        "worst_case": worst_case_delta(mechanism, n, epsilon, n_types=population.types).to_dict(),
    }
    if isinstance(mechanism, Decision):
        of_counts = delta
        if delta.note != BOUND_BY_COUNTS:
            counts = Histogram(mechanism.get_sampler(n))
            of_counts = smoothed_delta(counts, population, n, epsilon)
        row["counts"] = of_counts.to_dict()
    sampler = mechanism.sampler if isinstance(mechanism, Histogram) else None
    if isinstance(sampler, FixedSize):
        row["bounds"] = bounds(population, n, sampler.size, epsilon).to_dict()
    if "levels" in spec:
        quantile_bounds = quantiles(mechanism, population, n, epsilon, spec["levels"])
        row["quantiles"] = [
            {"level": level, "chance_above": probability.to_dict()}
            for level, probability in zip(spec["levels"], quantile_bounds, strict=True)
        ]
    if "database" in spec:
        row["database"] = database_delta(mechanism, spec["database"], epsilon).to_dict()
    return row


def format_audit(report: dict[str, Any]) -> str:
    """Return a report, as :func:`audit_smoothed_dp` returns it, as text."""
    lines = [f"{report['n']:,} records of {report['types']} types", ""]
    lines.append(f"{'epsilon':>8}  {'smoothed delta':>28}  {'method':<12} {'worst case':>10}")
    for row in report["rows"]:
        delta, log10_worst = row["smoothed"], row["worst_case"]["log10_upper"]
        worst = format_power_of_ten(_restore_log(log10_worst), round_up=True)
        lines.append(
            f"{row['epsilon']:>8g}  {_format_interval(delta):>28}  {delta['method']:<12} "
            f"{worst:>10}"
        )
        if delta["note"]:
            lines.append(f"{'':>10}{delta['note']}")
        if "counts" in row:
            counts = _format_interval(row["counts"])
            lines.append(f"{'':>10}all counts published: {counts}, a bound for every rule on them")
        for entry in row.get("quantiles", []):
            probability = _format_interval(entry["chance_above"])
            lines.append(f"{'':>10}Pr[delta(x) > {entry['level']:g}] = {probability}")
        if "database" in row:
            lines.append(
                f"{'':>10}PRIVATE delta of the database: {_format_interval(row['database'])}"
            )
    warnings = [f"- {warning}" for warning in report["warnings"]]
    return "\n".join([*lines, "", "Limits of this result:", *warnings])


_PRACTICALLY_ZERO_LOG10 = -256 * math.log10(2)
"""A delta below 2^-256 is smaller than the probability to guess a random key of 256 bits."""


def _format_interval(log10_interval: dict[str, Any]) -> str:
    """Return both ends of an interval of a delta as text, or one number if it is narrow.

    An interval below 2^-256 is "practically 0". `log10_interval`: has the keys log10_lower and
    log10_upper, the decimal logarithms of both ends; None is the logarithm of 0.
    """
    log10_upper = log10_interval["log10_upper"]
    if log10_upper is not None and log10_upper < _PRACTICALLY_ZERO_LOG10:
        return f"practically 0 (below 1e{math.ceil(log10_upper)})"
    log_lower = _restore_log(log10_interval["log10_lower"])
    return format_interval(log_lower, _restore_log(log10_upper), merge_close_ends=True)


def _restore_log(log10: float | None) -> float:
    """Return the natural logarithm of a number with the decimal logarithm `log10`; None is 0's."""
    return -math.inf if log10 is None else log10 * LOG_10


def _check_fields(
    subject: str, fields: dict[str, Any], required: Sequence[str], known: Sequence[str]
) -> None:
    """Raise InvalidInput if a `required` field is missing, or a field is not `known`.

    `subject`: the object with the `fields`, for the message.
    """
    problems = [
        ("lacks the fields", [name for name in required if name not in fields]),
        ("does not have the fields", [name for name in fields if name not in known]),
    ]
    texts = [f"{verb} {', '.join(map(repr, names))}" for verb, names in problems if names]
    if texts:
        names = ", ".join(map(repr, known))
        raise InvalidInput(f"{subject} {' and '.join(texts)}. Its fields are {names}.")


def build_from_spec(category: str, spec: object) -> Any:
    """Return the mechanism, population, sampler or rule that a JSON specification describes.

    - `category`: "mechanism", "population", "sampler" or "rule"; also named in error messages.
    - `spec`: JSON object. Its field ``kind`` selects the class, and its other fields are arguments:
      a sampler is {"kind": "fixed_size", "size": 99}. A release of a composition is {"mechanism":
      ..., "coins": name of its randomness}, a group of a heterogeneous population {"count": ...,
      "distribution": ...}.
    """
    kinds = _KINDS[category]
    if not isinstance(spec, dict) or spec.get("kind") not in kinds:
        kind_names = ", ".join(repr(kind) for kind in kinds)
        raise InvalidInput(
            f"The {category!r} parameter must be an object whose kind is one of {kind_names}."
        )
    fields = {key: value for key, value in spec.items() if key != "kind"}
    build = kinds[spec["kind"]]
    subject = f"The {category!r} parameter of kind {spec['kind']!r}"
    parameters = signature(build).parameters
    required = [
        name for name, parameter in parameters.items() if parameter.default is Parameter.empty
    ]
    _check_fields(subject, fields, required, list(parameters))
    try:
        return build(**fields)
    except KeyError as error:
        raise InvalidInput(f"{subject} has an entry without the field {error}.") from None
    except TypeError:
        raise InvalidInput(f"{subject} has a field with a value of the wrong type.") from None


def _build_composition(releases: Sequence[dict[str, Any]]) -> Any:
    """Return the composition of releases, each an object with the fields "mechanism" and "coins".

    "coins" names the randomness: releases with the same name use the same sample of records.
    """
    named = [
        NamedMechanism(build_from_spec("mechanism", release["mechanism"]), release["coins"])
        for release in releases
    ]
    return compose(named)


_KINDS: dict[str, dict[str, Callable[..., Any]]] = {
    "sampler": {"fixed_size": FixedSize, "poisson": Poisson, "with_replacement": WithReplacement},
    "mechanism": {
        "histogram": lambda sampler: Histogram(build_from_spec("sampler", sampler)),
        "average": Average,
        "decision": lambda rule, sampler=None: Decision(
            build_from_spec("rule", rule), sampler and build_from_spec("sampler", sampler)
        ),
        "radius_votes": RadiusVotes,
        "knn_votes": KNNVotes,
        "composition": _build_composition,
    },
    "rule": {"plurality": Plurality, "threshold": Threshold, "listed": ListedRule},
    "population": {
        "vertices": Vertices,
        "hull": Hull,
        "interval": Interval,
        "heterogeneous": lambda groups: Heterogeneous(
            [(group["count"], group["distribution"]) for group in groups]
        ),
    },
}
