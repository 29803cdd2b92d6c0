"""`vicinal plan` where records carry numbers or several labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal.cli._output import as_json
from vicinal.errors import InvalidInput

if TYPE_CHECKING:
    from vicinal.neighbours import Reference
    from vicinal.planning import PlanChoice, VectorPlanRequest
    from vicinal.targets import ExpectedError

Option = tuple[str, "PlanChoice", "list[ExpectedError]"]
"""A name, a plan, and what to expect of it."""

_MOST_SHOWN = 3


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """What records carry in place of a class: numbers, or several labels."""

    target: Annotated[
        str | None,
        typer.Option(help="For numbers: targets with their bounds.", metavar="NAME=LOW..HIGH,..."),
    ] = None
    scale: Annotated[str | None, typer.Option(help="Of numbers: linear, or log.")] = None
    typical_range: Annotated[
        str | None, typer.Option(help="Where most numbers lie.", metavar="NAME=LOW..HIGH,...")
    ] = None
    thresholds: Annotated[
        int | None, typer.Option(help="Of numbers: for quantiles and histograms.")
    ] = None
    label_count: Annotated[
        int | None, typer.Option(help="For several labels a record: how many there are.")
    ] = None
    tau: Annotated[float | None, typer.Option(help="Labels a record may have at most.")] = None

    def parameters(self) -> dict[str, Any]:
        """Return what an estimator takes of it; nothing for classes."""
        from vicinal import _checks
        from vicinal.targets import BoundsOfTargets

        parameters = self._of_one_kind()
        if self.target is not None:
            parameters["bounds"] = BoundsOfTargets().parsed(self.target)
        if self.typical_range is not None:
            parameters["typical_range"] = BoundsOfTargets().parsed(self.typical_range)
        if self.label_count is not None:
            count = _checks.integer("label_count", self.label_count, least=1, most=10_000)
            parameters["labels"] = [f"label {number}" for number in range(1, count + 1)]
        return parameters

    def _of_one_kind(self) -> dict[str, Any]:
        """Return the parameters that go with a kind, after a check that there is one at most."""
        from vicinal.targets import KINDS

        of_kind = {"bounds": self.target, "labels": self.label_count}
        kinds = [kind for kind, value in of_kind.items() if value is not None]
        if len(kinds) > 1:
            raise InvalidInput("Give --target or --label-count: records carry one kind.")
        further = {
            "scale": ("bounds", self.scale),
            "typical_range": ("bounds", self.typical_range),
            "n_thresholds": ("bounds", self.thresholds),
            "tau": ("labels", self.tau),
        }
        for name, (kind, value) in further.items():
            if value is not None and kind not in kinds:
                raise InvalidInput(
                    f"The {name!r} option is for {KINDS[kind].words}, and records carry "
                    f"{carried_words(of_kind)} here. Leave it out."
                )
        return {name: value for name, (_, value) in further.items() if value is not None}


def carried_words(parameters: dict[str, Any]) -> str:
    """Return what records carry, in words, by the parameters that say so; classes by default."""
    from vicinal.targets import KINDS, Classes

    given = (KINDS[kind] for kind in KINDS if parameters.get(kind) is not None)
    return next(given, Classes).words


def plan_vectors(wish: VectorPlanRequest, reference: Reference | None, *, json: bool) -> None:
    """Print a plan for vectors, what to expect of it, and what else could be had."""
    from vicinal import __version__

    options = _options(wish, reference)
    if json:
        shown = [_plain(*option) for option in options]
        usage = {"weight": options[0][1].usage.weight, "spread": options[0][1].usage.spread}
        result = {
            "usage": usage,
            "plan": shown[0],
            "alternatives": shown[1:],
            "version": __version__,
        }
        typer.echo(as_json(result))
        return
    typer.echo(_text(wish, options, known=reference is not None))


def _options(wish: VectorPlanRequest, reference: Reference | None) -> list[Option]:
    from vicinal.planning import PlanChoice, expected_errors

    wishes = {
        "as wished": wish,
        "half the queries": replace(wish, n_queries=max(1, wish.n_queries // 2)),
        "twice the queries": replace(wish, n_queries=2 * wish.n_queries),
        "half the epsilon": replace(wish, epsilon=wish.epsilon / 2),
        "twice the epsilon": replace(wish, epsilon=2 * wish.epsilon),
    }
    choices = {name: PlanChoice.of(other, reference) for name, other in wishes.items()}
    k = choices["as wished"].n_neighbors
    choices["half the neighbours"] = PlanChoice.of(wish, reference, max(1, k // 2))
    choices["twice the neighbours"] = PlanChoice.of(wish, reference, min(2 * k, wish.n_records))
    return [(name, choice, expected_errors(choice)) for name, choice in choices.items()]


def _plain(name: str, choice: PlanChoice, errors: list[ExpectedError]) -> dict[str, Any]:
    from dataclasses import asdict

    wish = choice.request
    return {
        "name": name,
        "n_records": wish.n_records,
        "n_queries": wish.n_queries,
        "epsilon": wish.epsilon,
        "delta": wish.delta,
        "n_neighbors": choice.n_neighbors,
        "noise_multiplier": choice.multiplier,
        "noise_scale": choice.noise,
        "participations": choice.participations,
        "cost_of_one": choice.cost,
        "questions_until_worn": choice.lasts,
        "expected": [asdict(error) for error in errors],
    }


def _text(wish: VectorPlanRequest, options: list[Option], *, known: bool) -> str:
    _, choice, errors = options[0]
    weights = f"mean squared kernel weight {choice.usage.weight:.2f}"
    head = (
        f"{wish.n_queries:,} answers from {wish.n_records:,} records, epsilon {wish.epsilon:g} at "
        f"delta {wish.delta:g}"
    )
    source = "" if known else ": the largest; public points, --public, would tell"
    lines = [
        head,
        "",
        f"neighbours   k = {choice.n_neighbors:,}",
        f"noise        sigma2 = {choice.multiplier:.4g}, that is {choice.noise:.4g} on every sum",
        f"records      each takes part in {choice.participations:.3g} questions expected",
        f"             ({weights}{source})",
        *_expected(errors),
        "",
        f"{'':22}{'queries':>8} {'eps':>6} {'k':>6} {'sigma2':>7} {'error':>9}",
    ]
    lines += [
        f"{name:22}{other.request.n_queries:8,} {other.request.epsilon:6g} "
        f"{other.n_neighbors:6,} {other.multiplier:7.3f} {shown[0].error:9.3g}"
        for name, other, shown in options
    ]
    return "\n".join(lines)


def _expected(errors: list[ExpectedError]) -> list[str]:
    shown = [
        f"expected     {each.name}: {each.value:.4g} +- {each.error:.2g}"
        for each in errors[:_MOST_SHOWN]
    ]
    more = len(errors) - len(shown)
    shown += [f"             and {more} more alike"] if more else []
    return [*shown, "             (error by noise alone; how unlike neighbours are comes on top)"]
