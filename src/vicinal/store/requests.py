"""Requests of analysts, and replies with released answers.

A reply has answers to q queries: classes, p numbers each, or sets of c labels.
"""

import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from vicinal import checks
from vicinal.arrays import AnyArray, Floats
from vicinal.errors import InvalidInput, NoCoverage
from vicinal.targets.target import CLASSES, LABELS, NUMBERS, Target

MAX_NAME_LENGTH = 200
"""Characters of a name of an analyst, an audience, a curator or an idempotency key."""

ANYONE = "anyone"  # name of the analyst of queries that do not name one

_JSON_DECIMALS = 6
"""Decimals of probabilities and shares in JSON; noise makes all but two or three insignificant."""

_CONFIDENCE_DECIMALS = 3  # decimals of confidence in a table
_TABLE_DECIMALS = 4  # decimals of probabilities, shares and errors in a table


@dataclass(frozen=True, eq=False)
class Query:
    """A request: queries of an analyst to one audience, to be answered together.

    Attributes
    ----------
    queries : array (q, d), or raw records
        As the store's extractor takes them. Public.
    audience : str
        The audience that is charged.
    analyst : str
        The analyst with the quota that is charged.
    idempotency_key : str or None
        A repeated request with the same key gets the same answers and is not charged.
    coverage : float or None
        Share of future outcomes, in (0, 1), that the sets or intervals of the reply must contain;
        None for a reply without these. It changes neither answers nor charges.

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
    coverage: float | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Reply(ABC):
    """Released answers, durable with their charges; subclasses are for each kind of target.

    Attributes
    ----------
    labels : array (q,), or (q, p)
        The answers.
    charged : int
        Number of new answers. The rest are replays, which are not charged.
    left : int
        Number of new answers that remain for the analyst: in the audience's plan, or of the
        analyst's quota if that is less.
    promise : str or None
        The statement on the coverage of sets or intervals, if these were requested.

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
    promise: str | None = None

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the released fields and counts as plain values for JSON, by name."""

    @abstractmethod
    def build_columns(self, names: Sequence[str]) -> dict[str, list[Any]]:
        """Return the columns of a table with one row for each query, by name.

        `names`: the names of all columns that a reply of this kind can have, in order; columns
        that are not released are omitted from the result.
        """

    def select_rows(self, rows: slice, **counts: Any) -> Self:
        """Return the reply to the queries `rows`; `counts`: its own `charged` and `left`."""
        arrays: dict[str, Any] = {
            name: value[rows] for name, value in vars(self).items() if isinstance(value, np.ndarray)
        }
        return replace(self, **arrays, **counts)

    @property
    def _common_fields(self) -> dict[str, Any]:
        """The counts, and the sets, intervals and promise if requested, as values for JSON."""
        covered = {name: vars(self).get(name) for name in ("sets", "low", "high", "promise")}
        plain = {name: _to_list(value) for name, value in covered.items() if value is not None}
        return {"charged": self.charged, "left": self.left, **plain}


@dataclass(frozen=True, eq=False, kw_only=True)
class ClassReply(Reply):
    """Released classes: `labels`, array (q,), has class names.

    - `votes`, float64 (q, c): noisy votes; None if labels alone are released, as the next two.
    - `confidence`, float64 (q,): lead of the best class over the next, in standard deviations of
      its noise.
    - `probabilities`, float64 (q, c): posterior probability of each class, given noisy votes and
      public shares of classes.
    - `sets`, array (q,) of lists, or None: names of the classes that are not excluded, the most
      probable first, if requested.
    """

    votes: Floats | None
    confidence: Floats | None
    probabilities: Floats | None
    sets: AnyArray | None = None

    def to_dict(self) -> dict[str, Any]:
        rounded = None if self.probabilities is None else self.probabilities.round(_JSON_DECIMALS)
        return {
            "labels": self.labels.tolist(),
            "votes": _to_list(self.votes),
            "confidence": _to_list(self.confidence),
            "probabilities": _to_list(rounded),
            **self._common_fields,
        }

    def build_columns(self, names: Sequence[str]) -> dict[str, list[Any]]:
        """Return the columns of labels, confidence, each class's probability, and sets, by name.

        `names`: names of all columns but the last, in this order.
        """
        label_name, confidence_name, *class_columns = names
        columns = {label_name: self.labels.tolist()}
        if self.confidence is not None:
            columns[confidence_name] = self.confidence.round(_CONFIDENCE_DECIMALS).tolist()
        if self.probabilities is not None:
            rounded = self.probabilities.round(_TABLE_DECIMALS).T.tolist()
            columns |= dict(zip(class_columns, rounded, strict=True))
        if self.sets is not None:
            columns[_SET_COLUMN] = [_SET_SEPARATOR.join(map(str, names)) for names in self.sets]
        return columns


@dataclass(frozen=True, eq=False, kw_only=True)
class NumberReply(Reply):
    """Released predictions of numbers: `labels`, float64 (q, p), in units of the targets.

    - `sums`, float64 (q, 1 + p): the noisy sums from which the predictions are computed.
    - `errors`, float64 (q, p): standard errors due to the noise alone.
    - `names`: of the targets.
    - `low`, `high`, float64 (q, p) or None: ends of the intervals, if requested.
    """

    sums: Floats
    errors: Floats
    names: list[str]
    low: Floats | None = None
    high: Floats | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "targets": self.names,
            "predictions": self.labels.tolist(),
            "errors": self.errors.tolist(),
            **self._common_fields,
        }

    def build_columns(self, names: Sequence[str]) -> dict[str, list[Any]]:
        """Return the columns of prediction and standard error of each target, by name.

        Columns of requested intervals follow. `names`: names of all other columns: both of the
        first target, then both of the next.
        """
        columns = _interleave_columns(names, self.labels, self.errors)
        if self.low is not None and self.high is not None:
            columns |= _interleave_columns(_name_interval_columns(self.names), self.low, self.high)
        return columns


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelSetReply(Reply):
    """Released sets of labels: `labels`, int64 (q, c), is 1 where a label is predicted.

    - `sums`, float64 (q, 1 + c): the noisy sums from which the shares are computed.
    - `shares`, `errors`, float64 (q, c): noisy shares of the neighbours with each label, and their
      standard errors. A label is predicted where its share is at least one half.
    - `names`: of the labels.
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
            "shares": self.shares.round(_JSON_DECIMALS).tolist(),
            "errors": self.errors.round(_JSON_DECIMALS).tolist(),
            **self._common_fields,
        }

    def build_columns(self, names: Sequence[str]) -> dict[str, list[Any]]:
        """Return the columns of presence, share and standard error of each label, by name.

        `names`: all column names: the three of the first label, then those of the next.
        """
        shares = self.shares.round(_TABLE_DECIMALS)
        return _interleave_columns(names, self.labels, shares, self.errors.round(_TABLE_DECIMALS))


_SET_COLUMN = "set"  # name of the column of prediction sets
_SET_SEPARATOR = ";"  # text between the class names of a set in a column


def _name_interval_columns(targets: Sequence[str]) -> list[str]:
    """Return names of the columns of intervals: low and high end of the first target, and so on.

    `targets`: names of the predicted numbers. The column names contain them if there are several.
    """
    if len(targets) == 1:
        return ["low", "high"]
    return [f"{end}_{name}" for name in targets for end in ("low", "high")]


def name_coverage_columns(target: Target) -> list[str]:
    """Return the names of the columns of sets of classes, or intervals of numbers, of a `target`.

    Raises NoCoverage if a table of answers with these columns would be ambiguous.
    """
    columns = [_SET_COLUMN] if target.is_class_vote else _name_interval_columns(target.names)
    problem = None
    if set(columns) & set(target.answer_columns):
        problem = f"The answers already have one of the columns {', '.join(columns)}."
    elif target.is_class_vote and any(_SET_SEPARATOR in str(name) for name in target.names):
        problem = f"A class name contains {_SET_SEPARATOR!r}, which separates classes in a column."
    if problem is not None:
        raise NoCoverage(
            f"The 'coverage' parameter is not possible in a table of answers. {problem} Request "
            "JSON, or predict without it."
        )
    return columns


REPLIES: dict[str, type[Reply]] = {CLASSES: ClassReply, NUMBERS: NumberReply, LABELS: LabelSetReply}
"""The class of replies of each kind of target."""


def normalize_name(parameter: str, value: object) -> str:
    """Return the name of an analyst, an audience, a curator or a key in normal form (NFC).

    `parameter`: name of the parameter in the error message. `value`: its value. Raises InvalidInput
    if that is not text of 1 to :data:`MAX_NAME_LENGTH` permitted characters.
    """
    requirement = f"The {parameter!r} parameter must be text of 1 to {MAX_NAME_LENGTH} characters."
    if not isinstance(value, str):
        raise InvalidInput(requirement)
    name = unicodedata.normalize("NFC", value)
    if fault := checks.describe_text_problem(name):
        raise InvalidInput(f"{requirement} Got {fault}.")
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidInput(requirement)
    return name


def _interleave_columns(names: Sequence[str], *arrays: AnyArray) -> dict[str, list[Any]]:
    """Return columns by name: all `arrays` of the first target or label, then all of the next.

    `arrays`: (q, p) each, such as predictions and standard errors. `names`: names of all columns,
    in the order of the result.
    """
    columns = [array[:, i].tolist() for i in range(arrays[0].shape[1]) for array in arrays]
    return dict(zip(names, columns, strict=True))


def _to_list(value: Any) -> Any:
    """Return an array as nested lists, and any other value unchanged, for JSON."""
    return value.tolist() if isinstance(value, np.ndarray) else value
