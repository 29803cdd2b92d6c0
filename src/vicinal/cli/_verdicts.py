"""What is said about a plan before anything is spent; public facts only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from vicinal.errors import InvalidInput

if TYPE_CHECKING:
    from vicinal.predictors.ind_knn._plan_choice import PlanRequest


def say_verdict(
    wish: PlanRequest, names: Sequence[Any], shares: Sequence[float] | None, *, known: bool
) -> None:
    """Print whether a plan can work, or what it needs if the number of records is not `known`."""
    for line in verdict_lines(wish, names, shares, known=known):
        typer.echo(f"vicinal: {line}", err=True)


def verdict_lines(
    wish: PlanRequest, names: Sequence[Any], shares: Sequence[float] | None, *, known: bool
) -> list[str]:
    """Return the lines of :func:`say_verdict`."""
    from vicinal.reports._plan_verdict import rare_classes, verdict, verdict_without_records

    if not known:
        return [verdict_without_records(wish)]
    if shares is None:
        return [verdict(wish)]
    if len(shares) != len(names):
        raise InvalidInput(
            f"The 'class_prior' option must hold {len(names)} numbers, one for each class. "
            f"Got {len(shares)}."
        )
    return [verdict(wish), *rare_classes(wish, shares, names)]


def say_linear_model(wish: PlanRequest, n_features: int) -> None:
    """Print where a private linear model is likely to be the better choice."""
    from vicinal.reports._plan_verdict import linear_model_note

    if (line := linear_model_note(wish, n_features)) is not None:
        typer.echo(f"vicinal: {line}", err=True)


def say_thin_reference() -> None:
    """Print what is to be expected of rows made up from a schema, and what is better."""
    typer.echo(
        "vicinal: made-up rows lie further apart than real ones, so more records take part in an "
        "answer than planned, and budgets are gone early. Queries are public: where some are at "
        "hand, take their file as --public.",
        err=True,
    )
