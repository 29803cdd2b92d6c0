"""Several labels a record: which of them it has, and their shares among neighbours."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal.arrays import AnyArray, Bools, Floats
from vicinal.errors import InvalidInput
from vicinal.mechanisms.subject_table import RecordVectors
from vicinal.parameters import ClassNames, Given, Real, Unless, parameter, parameter_table
from vicinal.tabular import align_columns, read_numbers, refuse_missing
from vicinal.targets._averages import CENTRED_WEIGHT_SHARE, WEIGHT_SHARE, noisy_averages, parts
from vicinal.targets.target import LABELS, ExpectedError, VectorTarget


@parameter_table
class LabelSetsParameters:
    """What declares that records carry several labels."""

    labels: Given[Iterable[Any], AnyArray] = parameter(
        ClassNames(), kw_only=False, doc="All label names. They are public."
    )

    tau: float | None = parameter(
        Unless(None, Real(above=0, most=1e6)),
        default=None,
        doc="""Largest squared length of a record's label vector, if a record has few of the
        labels. Longer vectors are cut to sqrt(tau), and all are divided by it (Zhu et al. 2020).
        Without it, a record says of every label whether it is there, which is better if most
        records have several.""",
    )


class LabelSets(LabelSetsParameters, VectorTarget):
    """Records carry several labels: a weight, and one coordinate for each label."""

    kind, words = LABELS, "several labels per record"
    answer_prefixes = ("share_", "error_")
    public_facts = ("the names of the labels",)

    @property
    def names(self) -> list[Any]:
        return list(self.labels.tolist())

    @property
    def class_names(self) -> AnyArray:
        return self.labels

    @property
    def declaration(self) -> Any:
        return self.names

    @property
    def n_coordinates(self) -> int:
        return 1 + len(self.labels)

    def encode(self, y: npt.ArrayLike | None, size: int) -> RecordVectors:
        """Return the vectors of records with labels, 0 and 1 in shape (n, c).

        With `tau`: the 0/1 vector, cut to length sqrt(tau) and divided by it (the tau-approximation
        of ZYCW20). Without: 1 for every label that is there and -1 for the others, over sqrt(c).
        """
        sets, (a, b) = label_sets(y, size, self.names), self._parts
        if self.tau is None:
            components = np.where(sets, b, -b) / math.sqrt(len(self.labels))
        else:
            sizes = np.maximum(sets.sum(axis=1, keepdims=True), 1)
            components = sets * (b / np.sqrt(np.maximum(sizes, self.tau)))
        return RecordVectors.of_rows(np.column_stack([np.full(size, a), components]))

    def answers(self, sums: Floats, noise: Floats) -> LabelAnswers:
        tau = self.tau
        a, b = self._parts
        b = b / np.sqrt(len(self.labels) if tau is None else tau)
        means, errors = noisy_averages(sums, noise, a, b)
        if tau is None:
            means, errors = (means + 1) / 2, errors / 2
        return LabelAnswers(means >= 0.5, np.clip(means, 0, 1), errors)

    def expected_errors(self, weight: float, noise: Floats) -> list[ExpectedError]:
        half = np.zeros((2, len(self.labels)), dtype=int)
        half[0, ::2] = half[1, 1::2] = 1
        sums = weight * self.encode(half, 2).dense().mean(axis=0, keepdims=True)
        answers = self.answers(sums, noise)
        pairs = zip(self.names, answers.shares[0], answers.errors[0], strict=True)
        return [ExpectedError(str(name), float(share), float(e)) for name, share, e in pairs]

    def examples(self, size: int) -> AnyArray:
        return np.resize([0, 1, 1], (size, len(self.labels)))

    @property
    def _parts(self) -> tuple[float, float]:
        return parts(CENTRED_WEIGHT_SHARE if self.tau is None else WEIGHT_SHARE)

    @property
    def weight(self) -> float:
        return self._parts[0]

    @property
    def residual(self) -> float:
        return self._parts[1]

    @property
    def extremes(self) -> tuple[Any, Any]:
        return [1] * len(self.labels), [0] * len(self.labels)

    def described(self) -> str:
        return f"the labels {', '.join(map(str, self.names))}"


def label_sets(y: Any, size: int, names: Sequence[Any]) -> Bools:
    """Return which labels every record has, bool (n, c).

    `y`: 0 and 1, or booleans, (n, c); the columns of a table are found by the `names` of labels.
    Raises InvalidInput; no value of `y` is quoted.
    """
    if y is None:
        raise InvalidInput("The 'y' parameter must be passed: which labels every record has.")
    table = align_columns("y", y, tuple(names), "the declared labels", read_numbers)
    refuse_missing("y", table)
    if table.shape != (size, len(names)) or not np.isin(table, (0, 1)).all():
        raise InvalidInput(
            f"The 'y' parameter must hold 0 and 1 in shape (n, {len(names)}): a row for each "
            "record, a column for each label."
        )
    return table.astype(np.bool_)


@dataclass(frozen=True, slots=True)
class LabelAnswers:
    """Which of c labels q queries have.

    `present`, bool (q, c): whether a label's noisy share is at least one half. `shares`, `errors`,
    float64 (q, c): shares of the neighbours with each label, in 0..1, and their standard errors.
    """

    present: Bools
    shares: Floats
    errors: Floats

    @property
    def fields(self) -> dict[str, AnyArray]:
        """What a reply says: 1 for each label given and 0 for the others, shares, and errors."""
        given = self.present.astype(np.int64)
        return {"labels": given, "shares": self.shares, "errors": self.errors}
