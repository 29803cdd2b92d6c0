"""What is said of a plan and its public reference before anything is spent; public facts only."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from vicinal.errors import InvalidInput

if TYPE_CHECKING:
    from vicinal._arrays import FloatMatrix, Floats
    from vicinal.planning import PlanRequest


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
    from vicinal.reports import rare_classes, verdict, verdict_without_records

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


def say_linear_model(wish: PlanRequest) -> None:
    """Print where a private linear model is likely to be the better choice."""
    for line in linear_model_lines(wish):
        typer.echo(f"vicinal: {line}", err=True)


def linear_model_lines(wish: PlanRequest) -> list[str]:
    """Return the line of :func:`say_linear_model`, or none."""
    from vicinal.reports import linear_model_note

    line = linear_model_note(wish)
    return [] if line is None else [line]


def say_thin_reference(*, with_model: bool) -> None:
    """Print what is to be expected of rows made up from a schema, and what is better."""
    alone = (
        "made-up rows lie further apart than real ones, so more records take part in an answer "
        "than planned: neighbours alone lost up to .09 of AUC by it, a private model beside them "
        "up to .012. Take --model-share auto."
    )
    beside = "made-up rows cost a private model up to .012 of AUC, measured on five questions."
    typer.echo(
        f"vicinal: {beside if with_model else alone} Queries are public: where some are at hand, "
        "take their file as --public.",
        err=True,
    )


FEW_ROWS = 50
"""Fewer reference rows place a neighbourhood's border too roughly to be of use."""

SWAMPED = 0.95
"""A feature with this share of all variance decides alone who is near."""

_SHOWN = 5


def warn_about_reference(points: FloatMatrix, names: Sequence[str] | None) -> None:
    """Warn of few rows, constant features, and one feature that swamps the others.

    Features without names are numbered from 1.
    """
    import numpy as np

    rows = np.asarray(points, dtype=np.float64)
    if rows.ndim != 2 or not rows.size:
        return
    if len(rows) < FEW_ROWS:
        warnings.warn(
            f"The reference has {len(rows)} rows: with fewer than {FEW_ROWS} neighbourhoods are "
            "guesses. Take some hundreds of public rows.",
            UserWarning,
            stacklevel=2,
        )
    if len(rows) > 1:
        _warn_about_spread(rows, names or [str(i) for i in range(1, rows.shape[1] + 1)])


def _warn_about_spread(rows: Floats, names: Sequence[str]) -> None:
    import numpy as np

    constant = [names[i] for i in np.flatnonzero(np.ptp(rows, axis=0) == 0).tolist()]
    if constant:
        more = ", ..." if len(constant) > _SHOWN else ""
        warnings.warn(
            f"Constant in the reference, so of no use there: feature "
            f"{', '.join(constant[:_SHOWN])}{more}. Check that the reference is like the records.",
            UserWarning,
            stacklevel=3,
        )
    spread = (rows / (np.abs(rows).max() or 1.0)).std(axis=0)  # Squares stay finite.
    largest = int(spread.argmax())
    share = 1 / np.square(spread / spread[largest]).sum() if spread[largest] > 0 else 0.0
    if rows.shape[1] > 1 and share > SWAMPED:
        warnings.warn(
            f"Feature {names[largest]} swamps the others: it has {share:.0%} of the reference's "
            "variance, and alone decides who is near. Give a schema (--features table), which "
            "standardises columns.",
            UserWarning,
            stacklevel=3,
        )


def numbers(name: str, text: str | None) -> list[float] | None:
    """Return the numbers of a comma-separated list, None for None."""
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidInput(
            f"The {name!r} option must be a number for every class, in the order of the classes, "
            "as .95,.05."
        ) from None
