"""Label-set targets: every record has any of c labels; answers are shares among neighbours.

Everywhere in this module: `sums`, float64 (q, 1 + c), are released noisy sums of target vectors for
q queries; `noise`, float64 (q,), is the standard deviation of the noise on each coordinate of a
sum. Both are in votes: a neighbour of kernel weight 1 adds its vector once.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal.arrays import AnyArray, Bools, Floats
from vicinal.errors import InvalidInput
from vicinal.mechanisms.subject_table import RecordVectors
from vicinal.parameters import ClassNames, Given, Real, Unless, parameter, parameter_table
from vicinal.tabular import align_columns, read_numbers, refuse_nonfinite
from vicinal.targets._averages import (
    CENTRED_WEIGHT_SHARE,
    WEIGHT_SHARE,
    compute_noisy_averages,
    split_unit_length,
)
from vicinal.targets.target import LABELS, ExpectedError, VectorAnswers, VectorTarget


@parameter_table
class LabelSetsParameters:
    """The parameters that declare label-set targets."""

    labels: Given[Iterable[Any], AnyArray] = parameter(
        ClassNames(), kw_only=False, doc="All label names. They are public."
    )

    tau: float | None = parameter(
        Unless(None, Real(above=0, maximum=1e6)),
        default=None,
        doc="""Largest squared length of a record's 0/1 label vector, for records with few of the
        labels. Longer vectors are clipped to sqrt(tau), and all are divided by it (Zhu et al.
        2020). None: a label counts 1 if present and -1 if absent, which is better if most records
        have several labels.""",
    )


class LabelSets(LabelSetsParameters, VectorTarget):
    """Targets that are sets of c labels, encoded as vectors of a constant and a value per label."""

    kind = LABELS
    description = "several labels per record"
    answer_prefixes = ("share_", "error_")
    public_metadata = ("the names of the labels",)

    @property
    def class_names(self) -> AnyArray:
        """The declared names of the labels, (c,)."""
        return self.labels

    @property
    def n_coordinates(self) -> int:
        """Number of coordinates of a target vector: the weight, and one for each label."""
        return 1 + len(self.labels)

    def encode(self, y: npt.ArrayLike | None, n_records: int) -> RecordVectors:
        """Return the target vectors of `n_records` records, (n, 1 + c); private.

        `y`: 0 and 1 in shape (n, c). The first coordinate is a constant a, and a^2 + b^2 = 1. The
        rest is b times the 0/1 vector, clipped to length sqrt(tau) and divided by it (the
        tau-approximation of ZYCW20); without `tau`, b times 1 for a present and -1 for an absent
        label, divided by sqrt(c).
        """
        is_present = read_label_matrix(y, n_records, self.names)
        a, b = self._vector_factors
        if self.tau is None:
            values = np.where(is_present, b, -b) / math.sqrt(len(self.labels))
        else:
            n_present = np.maximum(is_present.sum(axis=1, keepdims=True), 1)
            values = is_present * (b / np.sqrt(np.maximum(n_present, self.tau)))
        return RecordVectors.from_rows(np.column_stack([np.full(n_records, a), values]))

    def compute_answers(self, sums: Floats, noise: Floats) -> VectorAnswers:
        """Return each label's prediction, share among the neighbours, and error of the share."""
        tau = self.tau
        a, b = self._vector_factors
        b = b / np.sqrt(len(self.labels) if tau is None else tau)
        means, errors = compute_noisy_averages(sums, noise, a, b)
        if tau is None:
            means, errors = (means + 1) / 2, errors / 2
        return VectorAnswers((means >= 0.5).astype(np.int64), errors, np.clip(means, 0, 1))

    def compute_expected_errors(self, weight: float, noise_std: Floats) -> list[ExpectedError]:
        """Return the standard error that the noise causes in each label's share, if it is one half.

        `weight`: total kernel weight of the neighbours, in votes. `noise_std`, (1,): the `noise`.
        """
        # Two records with complementary label sets average to a share of one half for every label.
        complementary_sets = np.zeros((2, len(self.labels)), dtype=int)
        complementary_sets[0, ::2] = complementary_sets[1, 1::2] = 1
        sums = weight * self.encode(complementary_sets, 2).to_dense().mean(axis=0, keepdims=True)
        answers = self.compute_answers(sums, noise_std)
        assert answers.shares is not None  # noqa: S101 (label sets have shares)
        label_errors = zip(self.names, answers.shares[0], answers.errors[0], strict=True)
        return [
            ExpectedError(str(name), float(share), float(error))
            for name, share, error in label_errors
        ]

    def make_examples(self, n_records: int) -> AnyArray:
        """Return artificial 0/1 label vectors of `n_records` records, (n_records, c)."""
        return np.resize([0, 1, 1], (n_records, len(self.labels)))

    @property
    def _vector_factors(self) -> tuple[float, float]:
        """Factors (a, b) of the weight coordinate and of the values in a target vector."""
        return split_unit_length(CENTRED_WEIGHT_SHARE if self.tau is None else WEIGHT_SHARE)

    @property
    def weight_coordinate(self) -> float:
        """The first coordinate of every target vector: the factor a."""
        return self._vector_factors[0]

    @property
    def residual_norm(self) -> float:
        """Typical distance of a record's label coordinates from their mean: the factor b."""
        return self._vector_factors[1]

    @property
    def extremes(self) -> tuple[Any, Any]:
        """All labels, and no label, each as a row of `y`."""
        return [1] * len(self.labels), [0] * len(self.labels)


def read_label_matrix(y: Any, n_records: int, names: Sequence[Any]) -> Bools:
    """Return whether each record has each label, bool (n, c); private.

    `y`: 0 and 1, or booleans, (n, c), for `n_records` records; the columns of a table are matched
    with the label `names`. Raises InvalidInput without quoting a value of `y`.
    """
    if y is None:
        raise InvalidInput("The 'y' parameter must be passed: which labels every record has.")
    table = align_columns("y", y, tuple(names), "the declared labels", read_numbers)
    refuse_nonfinite("y", table)
    if table.shape != (n_records, len(names)) or not np.isin(table, (0, 1)).all():
        raise InvalidInput(
            f"The 'y' parameter must hold 0 and 1 in shape (n, {len(names)}): a row for each "
            "record, a column for each label."
        )
    return table.astype(np.bool_)
