"""What an analyst asks, and what comes back."""

import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np

from vicinal import checks
from vicinal.arrays import AnyArray, Floats
from vicinal.errors import InvalidInput
from vicinal.targets.target import CLASSES, LABELS, NUMBERS

LONGEST_NAME = 200

ANYONE = "anyone"
"""The analyst that a query has where none is named: nobody in particular."""

_DIGITS = 6
"""Of probabilities in JSON; the noise in votes leaves two or three that mean something."""


@dataclass(frozen=True, eq=False)
class Query:
    """What an analyst asks.

    Attributes
    ----------
    queries : array (q, d), or raw records
        As the store's extractor takes them. Public.
    audience, analyst : str
        Whose budgets and whose quota pay.
    idempotency_key : str or None
        The same key gets the same answers, however often it is sent, whatever happened between.

    Examples
    --------
    >>> from vicinal.store import Query
    >>> Query([[0.5, 0.1, -0.3]], analyst="ward 3", idempotency_key="monday-1").audience
    'default'
    """

    queries: Any
    audience: str = "default"
    analyst: str = ANYONE
    idempotency_key: str | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Reply(ABC):
    """Answers that have been paid for, durably; what they hold depends on what records carry.

    Attributes
    ----------
    labels : array (q,), or (q, p)
        The answers.
    charged : int
        How many of the answers are new; the others are replays and cost nothing.
    left : int
        Answers that the audience's plan has left.

    Examples
    --------
    >>> from vicinal.store.requests import ClassReply, LabelSetReply, NumberReply
    >>> from vicinal.store import Reply
    >>> all(issubclass(each, Reply) for each in (ClassReply, LabelSetReply, NumberReply))
    True
    """

    labels: AnyArray
    charged: int
    left: int

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON has them."""

    @abstractmethod
    def columns(self, names: Sequence[str]) -> dict[str, list[Any]]:
        """Return the columns of a table, a row for each query.

        `names`: the target's names of all columns; those of what does not leave are left out.
        """

    def part(self, rows: slice, **paid: Any) -> Self:
        """Return the reply to a request whose answers these rows are, with what it paid."""
        every: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        arrays: dict[str, Any] = {
            name: value[rows] for name, value in every.items() if isinstance(value, np.ndarray)
        }
        return replace(self, **arrays, **paid)

    @property
    def _paid(self) -> dict[str, Any]:
        return {"charged": self.charged, "left": self.left}


@dataclass(frozen=True, eq=False, kw_only=True)
class ClassReply(Reply):
    """Classes that have been paid for, durably.

    Attributes
    ----------
    labels : array (q,)
        Class names.
    votes : float64 (q, c) or None
        Noisy votes, where votes leave.
    confidence : float64 (q,) or None
        Lead of the best class over the next, in standard deviations of its noise.
    probabilities : float64 (q, c) or None
        Probability of every class, given noisy votes and public shares of classes.
    """

    votes: Floats | None
    confidence: Floats | None
    probabilities: Floats | None

    def to_dict(self) -> dict[str, Any]:
        chances = self.probabilities
        return {
            "labels": self.labels.tolist(),
            "votes": _listed(self.votes),
            "confidence": _listed(self.confidence),
            "probabilities": _listed(chances if chances is None else chances.round(_DIGITS)),
            **self._paid,
        }

    def columns(self, names: Sequence[str]) -> dict[str, list[Any]]:
        label_name, confidence_name, *class_columns = names
        columns = {label_name: self.labels.tolist()}
        if self.confidence is not None:
            columns[confidence_name] = self.confidence.round(3).tolist()
        if self.probabilities is not None:
            rounded = self.probabilities.round(4).T.tolist()
            columns |= dict(zip(class_columns, rounded, strict=True))
        return columns


@dataclass(frozen=True, eq=False, kw_only=True)
class NumberReply(Reply):
    """Predictions of numbers that have been paid for, durably.

    Attributes
    ----------
    labels : float64 (q, p)
        Predictions, in units of the targets.
    sums : float64 (q, 1 + p)
        The noisy sums that they were made of.
    errors : float64 (q, p)
        Standard errors, of the noise alone.
    names : list of str
        The targets.
    """

    sums: Floats
    errors: Floats
    names: list[str]

    def to_dict(self) -> dict[str, Any]:
        return {
            "targets": self.names,
            "predictions": self.labels.tolist(),
            "errors": self.errors.tolist(),
            **self._paid,
        }

    def columns(self, names: Sequence[str]) -> dict[str, list[Any]]:
        return _interleaved(names, self.labels, self.errors)


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelSetReply(Reply):
    """Sets of labels that have been paid for, durably.

    Attributes
    ----------
    labels : int64 (q, c)
        1 where a label is given: where its noisy share is at least one half.
    sums : float64 (q, 1 + c)
        The noisy sums that they were made of.
    shares, errors : float64 (q, c)
        Noisy shares of the neighbours with each label, and their standard errors.
    names : list
        The labels.
    """

    sums: Floats
    shares: Floats
    errors: Floats
    names: list[Any]

    def to_dict(self) -> dict[str, Any]:
        return {
            "names": self.names,
            "labels": [
                [name for name, present in zip(self.names, row, strict=True) if present]
                for row in self.labels.tolist()
            ],
            "shares": self.shares.round(_DIGITS).tolist(),
            "errors": self.errors.round(_DIGITS).tolist(),
            **self._paid,
        }

    def columns(self, names: Sequence[str]) -> dict[str, list[Any]]:
        return _interleaved(names, self.labels, self.shares.round(4), self.errors.round(4))


REPLIES: dict[str, type[Reply]] = {CLASSES: ClassReply, NUMBERS: NumberReply, LABELS: LabelSetReply}
"""What a reply is, by what records carry."""


def checked_name(noun: str, value: object) -> str:
    """Return a name of an analyst, an audience or a key in its one form, as ids have one.

    Raises InvalidInput naming what is wrong with it.
    """
    must = f"The {noun!r} parameter must be text of 1 to {LONGEST_NAME} characters."
    if not isinstance(value, str):
        raise InvalidInput(must)
    name = unicodedata.normalize("NFC", value)
    if fault := checks.text_fault(name):
        raise InvalidInput(f"{must} Got {fault}.")
    if len(name) > LONGEST_NAME:
        raise InvalidInput(must)
    return name


def _interleaved(names: Sequence[str], *figures: AnyArray) -> dict[str, list[Any]]:
    """Return the columns of several figures (q, p): all of the first target, then of the next."""
    columns = [figure[:, i].tolist() for i in range(figures[0].shape[1]) for figure in figures]
    return dict(zip(names, columns, strict=True))


def _listed(values: Floats | None) -> list[Any] | None:
    return None if values is None else values.tolist()
