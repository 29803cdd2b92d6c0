"""Numbers for every class on the command line: `--class-prior`, `--cost`."""

from __future__ import annotations

from typing import Any

from vicinal.errors import InvalidInput


def class_numbers(class_prior: str | None, cost: str | None) -> dict[str, Any]:
    """Return those that were given, by the names of the classifier's parameters."""
    found = {"class_prior": numbers("class_prior", class_prior), "cost": _cost(cost)}
    return {name: value for name, value in found.items() if value is not None}


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


def _cost(text: str | None) -> list[float] | str | None:
    return text if text == "balanced" else numbers("cost", text)
