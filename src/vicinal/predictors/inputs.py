"""Checks of what callers hand to an estimator, before anything is changed or spent; and claims.

Features and public rows are read by :mod:`vicinal.tabular`, and columns are matched by name
wherever both sides have names. No message quotes values of the data, because a traceback may end
up in a log.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from vicinal import checks
from vicinal.arrays import FloatMatrix, Ints32
from vicinal.errors import InvalidInput, PrivacyRefused, PrivacyWarning
from vicinal.interactions.fit_registry import REGISTRY, Interaction
from vicinal.interactions.row_matching import RecordDigests, are_copies
from vicinal.tabular import (
    Names,
    NumberTable,
    align_columns,
    checked_floats,
    note_columns,
    read_matrix,
    read_names,
    refuse_other_names,
    refuse_other_width,
    text_names,
)

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator


@contextmanager
def unchanged_if_refused(estimator: BaseEstimator) -> Iterator[None]:
    """Put all attributes of `estimator` back if the body raises; one of its claims goes."""
    before = dict(vars(estimator))
    earlier = before.get("_interaction")
    try:
        yield
    except BaseException:
        _withdraw(vars(estimator).get("_interaction"), earlier)
        vars(estimator).clear()
        vars(estimator).update(before)
        raise
    _withdraw(earlier, vars(estimator).get("_interaction"))


def _withdraw(claimed: Interaction | None, other: Interaction | None) -> None:
    if claimed is not None and claimed is not other:
        claimed.withdraw()


@dataclass(frozen=True, slots=True, eq=False)
class FitInputs:
    """What ``fit`` was given besides labels, checked.

    `features`, float (n, d): private, finite. `ids`: the subject of every record; None where every
    record is a subject of its own. `reference`, float (m, d) or None: public rows.
    """

    features: FloatMatrix
    ids: list[checks.SubjectId] | None
    reference: FloatMatrix | None

    def __len__(self) -> int:
        return len(self.features)

    @property
    def names(self) -> Sequence[checks.SubjectId]:
        """One subject for each record; its row number where it is one of its own."""
        return range(len(self)) if self.ids is None else self.ids

    @property
    def slots(self) -> tuple[Ints32, int]:
        """The subject of every record, int32 (n,), and their number."""
        place = {name: slot for slot, name in enumerate(dict.fromkeys(self.names))}
        return np.array([place[name] for name in self.names], dtype=np.int32), len(place)


def records(
    estimator: BaseEstimator, X: Any, ids: npt.ArrayLike | None = None, public: Any = None
) -> FitInputs:
    """Check the arguments of a ``fit``; the estimator takes note of the features' shape and names.

    Raises InvalidInput naming the first bad argument.
    """
    rows = checked_features(estimator, X, reset=True)
    refuse_same_memory(X, public)
    names = vars(estimator)["_column_names"]
    reference = None if public is None else checked_reference(public, rows, names)
    if reference is not None and (swamping := swamping_feature(reference)) is not None:
        place, share = swamping
        warnings.warn(
            f"Feature {place + 1} of {rows.shape[1]} has {share:.0%} of the public reference's "
            "variance, and alone decides who is near. Map features with PublicMap, and columns of "
            "a table with TableFeatures, or pass 'schema' to fit.",
            UserWarning,
            stacklevel=5,
        )
    return FitInputs(rows, None if ids is None else checked_subjects(ids, len(rows)), reference)


_SWAMPED = 0.95


def swamping_feature(points: FloatMatrix) -> tuple[int, float] | None:
    """Return the place of a feature with nearly all variance of public rows (m, d), and its share.

    None where distances hang on several.
    """
    if points.shape[1] < 2 or not points.size:
        return None
    spread = (points / (np.abs(points).max() or 1.0)).std(axis=0)  # Squares stay finite.
    place = int(spread.argmax())
    share = 1 / np.square(spread / spread[place]).sum() if spread[place] > 0 else 0.0
    return (place, float(share)) if share > _SWAMPED else None


def checked_features(estimator: BaseEstimator, X: Any, *, reset: bool = False) -> FloatMatrix:
    """Return a finite float matrix (n, d) in C order.

    `reset`: whether the estimator takes note of its width and of the names of its columns, which
    later features must have in the same order, as scikit-learn asks of all estimators.
    Raises InvalidInput; no message quotes values.
    """
    table = vars(estimator).get("_table")
    rows = X if table is None else table.transform(X)
    if not reset:
        check_names(estimator, read_names("X", rows))
    read = read_matrix("X", rows)
    if reset:
        note_columns(estimator, read.values.shape[1], read.names)
    else:
        refuse_other_width(read.values, estimator.n_features_in_, type(estimator).__name__)
    return checked_floats("X", read)


def check_names(estimator: BaseEstimator, names: Names | None) -> None:
    """Raise InvalidInput, in scikit-learn's words, unless features have the names of ``fit``.

    Warns where one side only has names, as scikit-learn does.
    """
    kind, expected = type(estimator).__name__, vars(estimator).get("_column_names")
    refuse_other_names(names, expected)
    if text_names(expected) and not text_names(names):
        _warn(f"X does not have valid feature names, but {kind} was fitted with feature names")
    if text_names(names) and not text_names(expected):
        _warn(f"X has feature names, but {kind} was fitted without feature names")


def _warn(message: str) -> None:
    warnings.warn(message, UserWarning, stacklevel=5)


def checked_subjects(ids: npt.ArrayLike, size: int) -> list[checks.SubjectId]:
    listed = checks.subject_ids("subjects", ids)
    if len(listed) != size:
        raise InvalidInput(
            f"The 'subjects' parameter must hold one id for each of {size} records. "
            f"Got {len(listed)}."
        )
    return listed


def check_subjects_given(now: bool, *, before: bool) -> None:
    """Raise InvalidInput if records come with ids where earlier ones had none, or without."""
    if before and not now:
        raise InvalidInput(
            "The 'subjects' parameter must be given: earlier records came with subject ids, and "
            "without ids, known people would get new budgets."
        )
    if now and not before:
        raise InvalidInput(
            "The 'subjects' parameter must be left out: earlier records came without subject ids, "
            "each a subject of its own, so an id would recognise nobody."
        )


def checked_reference(public: Any, X: FloatMatrix, names: Names | None = None) -> FloatMatrix:
    """Return the public reference set (m, d), in the form of the private features.

    `names`: labels of the columns of `X`, which those of `public` are matched with.
    """
    points = align_columns("public", public, names, "X", advice=_IN_A_PIPELINE)
    if points.shape[1] != X.shape[1]:
        raise InvalidInput(
            f"The 'public' parameter must have shape (m, {X.shape[1]}) with m >= 1, as X has "
            f"{X.shape[1]} columns. Got {points.shape}. {_IN_A_PIPELINE}"
        )
    points = checked_floats("public", NumberTable(points, None), X.dtype)
    if are_copies(points, X):
        raise InvalidInput(_OF_THE_RECORDS)
    return points


_IN_A_PIPELINE = (
    'Inside a Pipeline, its transform_input=["public"] sends public rows through the same steps '
    "as X."
)


def refuse_same_memory(X: object, public: object) -> None:
    """Raise if the public reference is a part of the array of private records, whatever is in it.

    Copies of rows are :func:`checked_reference`'s to find.
    """
    arrays = isinstance(X, np.ndarray) and isinstance(public, np.ndarray)
    if np.shares_memory(X, public) if arrays else X is public:
        raise InvalidInput(_OF_THE_RECORDS)


_OF_THE_RECORDS = (
    "The 'public' parameter must not be a part of the private records, because it is not "
    "protected. Take public rows from another source."
)


class Claiming(Protocol):
    """Checked settings, as far as claims need them: no seed, and interactions, mean protection."""

    @property
    def simulation_seed(self) -> int | None: ...
    @property
    def interactions(self) -> int: ...
    @property
    def plan_identity(self) -> Hashable: ...


@dataclass(eq=False)
class OneOfSeveralFits:
    """Several fits that are priced as one interaction: the rounds of a labelling.

    `resumed`: whether an earlier holder, of this process perhaps, was cut off. `interaction`:
    theirs, since the first fit.
    """

    resumed: bool = False
    interaction: Interaction | None = None

    def join(self, estimator: BaseEstimator) -> None:
        estimator._one_of = self


def claim(estimator: BaseEstimator, settings: Claiming, records: FitInputs) -> Interaction | None:
    """Claim the records of a ``fit`` for `estimator`, before anything is drawn.

    Returns None for simulations and public records, which are not counted. Raises PrivacyRefused if
    the records took part in another interaction.
    """
    sized = getattr(settings, "n_records", 0) is None
    state = vars(estimator)
    before, several = state.get("_interaction"), state.get("_one_of")
    if settings.simulation_seed is not None or settings.interactions == 0:
        estimator._interaction = None
        return None
    if settings.interactions == 1 and (where := _cross_validating()):
        words = (
            "scikit-learn would fit several times on the same records here, and score by held-out "
            "labels that nothing protects; the guarantee is for one fit. Do so on records that "
            'need no protection, with simulation_seed or interactions="public".'
        )
        if where == "validation_curve":  # which shows refusals as NaN, and says nothing of them
            warnings.warn(words, PrivacyWarning, stacklevel=2)
        raise PrivacyRefused(words)
    digests = RecordDigests.from_records(records.features, records.ids)
    declaration = (settings.plan_identity, settings.interactions)
    interaction: Interaction
    if several is not None and several.interaction and not several.interaction.withdrawn:
        REGISTRY.extend(several.interaction, digests, same_records=True)
        interaction = several.interaction
    elif several is not None and several.resumed:
        interaction = REGISTRY.resume(digests, declaration)
    else:
        interaction = REGISTRY.begin(digests, declaration, before, sized=sized)
    if several is not None:
        several.interaction = interaction
    estimator._interaction = interaction
    return interaction


_CROSS_VALIDATING = (
    "validation_curve", "_fit_and_score", "_fit_and_predict", "_fit_and_score_over_thresholds",
    "_fit_classifier_calibrator_pair", "_permutation_test_score", "_rfe_single_fit",
)  # fmt: skip


def _cross_validating() -> str:
    """Return which function of scikit-learn fits for one fold of several; "" for none.

    The first fit would be answered and spent, and the others be refused, which it shows as NaN
    among scores. Nothing but the callers tells.
    """
    frame, names = sys._getframe(), set()
    while frame.f_back is not None:
        frame = frame.f_back
        if str(frame.f_globals.get("__name__")).startswith("sklearn."):
            names.add(frame.f_code.co_name)
    return next((name for name in _CROSS_VALIDATING if name in names), "")


def note_release(estimator: BaseEstimator) -> None:
    interaction: Interaction | None = vars(estimator).get("_interaction")
    if interaction is not None:
        interaction.release()
