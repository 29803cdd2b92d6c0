"""Checks of estimator arguments before any change of state, and claims of private records.

Features and public rows are read by :mod:`vicinal.tabular`, and columns are matched by name
wherever both tables have names. No message quotes data values, because a traceback may be logged.
A claim registers the records of a fit as an *interaction*, so that a second fit on them is
recognised. To withdraw it removes the registration. `estimator`, everywhere in this module: the one
that is being fitted or, for queries, that was.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from vicinal import checks
from vicinal.arrays import FloatMatrix, Ints32
from vicinal.errors import InvalidInput, PrivacyRefused, PrivacyWarning, warn_caller
from vicinal.interactions.fit_registry import REGISTRY, Interaction
from vicinal.interactions.row_matching import RecordDigests, detect_copied_records
from vicinal.ledger.id_encoding import SPELLING, find_similar_ids
from vicinal.tabular import (
    Names,
    NumberTable,
    align_columns,
    convert_to_floats,
    get_text_names,
    read_matrix,
    read_names,
    refuse_other_names,
    refuse_other_width,
    set_column_attributes,
)

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator


@contextmanager
def restore_on_error(estimator: BaseEstimator) -> Iterator[None]:
    """Restore all attributes of `estimator` if the body of the context, a fit, raises.

    Also withdraws an interaction: after an error the one that this fit claimed, else that of the
    previous fit, which this fit replaces.
    """
    previous_state = dict(vars(estimator))
    previous_interaction = previous_state.get("_interaction")
    try:
        yield
    except BaseException:
        _withdraw_unless_kept(vars(estimator).get("_interaction"), previous_interaction)
        vars(estimator).clear()
        vars(estimator).update(previous_state)
        raise
    _withdraw_unless_kept(previous_interaction, vars(estimator).get("_interaction"))


def _withdraw_unless_kept(claimed: Interaction | None, kept: Interaction | None) -> None:
    """Withdraw the interaction `claimed` unless it is `kept`, that of the estimator from now on."""
    if claimed is not None and claimed is not kept:
        claimed.withdraw()


@dataclass(frozen=True, slots=True, eq=False)
class FitInputs:
    """The checked arguments of ``fit``, without the targets.

    - `features`, float (n, d): private, finite.
    - `ids`: the subject id of every record, private; None if every record is a separate subject.
    - `reference`, float (m, d): public rows, or None.
    """

    features: FloatMatrix
    ids: list[checks.SubjectId] | None
    reference: FloatMatrix | None

    def __len__(self) -> int:
        """The number of records."""
        return len(self.features)

    @property
    def subject_ids(self) -> Sequence[checks.SubjectId]:
        """The subject id of each record; its row number if every record is a separate subject."""
        return range(len(self)) if self.ids is None else self.ids

    @property
    def slots(self) -> tuple[Ints32, int]:
        """The subject index (slot) of every record, int32 (n,), and the number of subjects."""
        ids = self.subject_ids
        slot_of_subject = {subject: slot for slot, subject in enumerate(dict.fromkeys(ids))}
        slots = np.array([slot_of_subject[subject] for subject in ids], dtype=np.int32)
        return slots, len(slot_of_subject)


def read_fit_inputs(
    estimator: BaseEstimator, X: Any, ids: npt.ArrayLike | None = None, public: Any = None
) -> FitInputs:
    """Return the checked arguments of ``fit``, and store the columns of `X` in `estimator`.

    `X`, array or table (n, d): private rows. `ids` (n,): subject id of each row, or None. `public`,
    array or table (m, d): public rows, or None. Raises InvalidInput naming the first invalid one.
    Warns of a feature that determines all distances, and of ids that differ in spelling only.
    """
    rows = read_features(estimator, X, reset=True)
    refuse_same_memory(X, public)
    names = vars(estimator)["_column_names"]
    reference = None if public is None else read_reference(public, rows, names)
    dominant = None if reference is None else find_dominant_feature(reference)
    if dominant is not None:
        feature_index, share = dominant
        warn_caller(
            f"Feature {feature_index + 1} of {rows.shape[1]} has {share:.0%} of the public "
            "reference's variance, and alone decides who is near. Map features with PublicMap, and "
            "columns of a table with TableFeatures, or pass 'schema' to fit."
        )
    subject_ids = None if ids is None else read_subject_list(ids, len(rows))
    if subject_ids is not None and find_similar_ids(subject_ids):
        warn_of_similar_ids()
    return FitInputs(rows, subject_ids, reference)


def issue_warnings(recorded: Iterable[warnings.WarningMessage]) -> None:
    """Issue warnings that were recorded, at the lines of code for which they were recorded."""
    for warning in recorded:
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def warn_of_similar_ids() -> None:
    """Warn that new ids differ from known ones, or from each other, in spelling only."""
    warn_caller(
        f"Some ids of the 'subjects' parameter differ from others in {SPELLING}, as 007 differs "
        "from 7. Each is a subject with a budget of its own. Write all ids of a person alike.",
        PrivacyWarning,
    )


# Share of the total variance above which one feature practically determines all distances.
_MAX_VARIANCE_SHARE = 0.95


def find_dominant_feature(points: FloatMatrix) -> tuple[int, float] | None:
    """Return index and variance share of a feature with over 95 % of all variance, or None.

    Such a feature dominates distances. None, too, for a single column. `points`, float (m, d):
    public rows.
    """
    if points.shape[1] < 2 or not points.size:
        return None
    spread = (points / (np.abs(points).max() or 1.0)).std(axis=0)  # Squares stay finite.
    widest = int(spread.argmax())
    share = 1 / np.square(spread / spread[widest]).sum() if spread[widest] > 0 else 0.0
    return (widest, float(share)) if share > _MAX_VARIANCE_SHARE else None


def read_features(estimator: BaseEstimator, X: Any, *, reset: bool = False) -> FloatMatrix:
    """Return the features `X`, an array or table, as a finite float matrix (n, d) in C order.

    `reset`: store the number and names of the columns in the estimator (in ``fit``); otherwise `X`
    must have the stored ones, in the same order. Raises InvalidInput without quoting values.
    """
    table = vars(estimator).get("_table")
    rows = X if table is None else table.transform(X)
    if not reset:
        check_column_names(estimator, read_names("X", rows))
    matrix = read_matrix("X", rows)
    if reset:
        set_column_attributes(estimator, matrix.values.shape[1], matrix.names)
    else:
        refuse_other_width(matrix.values, estimator.n_features_in_, type(estimator).__name__)
    return convert_to_floats("X", matrix)


def check_column_names(estimator: BaseEstimator, names: Names | None) -> None:
    """Raise InvalidInput if the column `names` of a table differ from those of ``fit``.

    `names`: None if the table has none. Messages are those of scikit-learn; so is the warning if
    only one of the tables has names.
    """
    kind = type(estimator).__name__
    expected = vars(estimator).get("_column_names")
    refuse_other_names(names, expected)
    if get_text_names(expected) and not get_text_names(names):
        warn_caller(
            f"X does not have valid feature names, but {kind} was fitted with feature names"
        )
    if get_text_names(names) and not get_text_names(expected):
        warn_caller(f"X has feature names, but {kind} was fitted without feature names")


def read_subject_list(ids: npt.ArrayLike, size: int) -> list[checks.SubjectId]:
    """Return subject ids, integers or strings (n,), as a list in canonical form.

    Raises InvalidInput unless their number is `size`, the number of records.
    """
    subject_ids = checks.check_subject_ids("subjects", ids)
    if len(subject_ids) != size:
        raise InvalidInput(
            "The 'subjects' parameter must hold one id for each record. The numbers of ids and "
            "records differ."
        )
    return subject_ids


def check_subjects_given(given: bool, *, given_before: bool) -> None:
    """Raise InvalidInput unless both new and earlier records have subject ids, or neither."""
    if given_before and not given:
        raise InvalidInput(
            "The 'subjects' parameter must be given: earlier records came with subject ids, and "
            "without ids, known people would get new budgets."
        )
    if given and not given_before:
        raise InvalidInput(
            "The 'subjects' parameter must be left out: earlier records came without subject ids, "
            "each a subject of its own, so an id would recognise nobody."
        )


def read_reference(public: Any, X: FloatMatrix, names: Names | None = None) -> FloatMatrix:
    """Return `public`, an array or table, as a matrix (m, d) with the columns and type of `X`.

    `X` (n, d): private features. `names`: their column names, by which the columns of `public` are
    matched; None for none. Raises InvalidInput, also if public rows are copies of private ones.
    """
    points = align_columns("public", public, names, "X", advice=_PIPELINE_ADVICE)
    if get_text_names(read_names("public", public)) and not get_text_names(names):
        warn_caller(
            "The 'public' parameter has column names, but X has none, so its columns are taken by "
            f"position. {_PIPELINE_ADVICE}"
        )
    if points.shape[1] != X.shape[1]:
        raise InvalidInput(
            f"The 'public' parameter must have shape (m, {X.shape[1]}) with m >= 1, as X has "
            f"{X.shape[1]} columns. Got {points.shape}. {_PIPELINE_ADVICE}"
        )
    points = convert_to_floats("public", NumberTable(points, None), X.dtype)
    if detect_copied_records(points, X):
        raise InvalidInput(_REFERENCE_IS_PRIVATE)
    return points


_PIPELINE_ADVICE = (
    'Inside a Pipeline, its transform_input=["public"] sends public rows through the same steps '
    "as X."
)


def refuse_same_memory(X: object, public: object) -> None:
    """Raise InvalidInput if `public`, as given to ``fit``, is the object `X` or shares its memory.

    :func:`read_reference` detects copied rows.
    """
    are_arrays = isinstance(X, np.ndarray) and isinstance(public, np.ndarray)
    if np.shares_memory(X, public) if are_arrays else X is public:
        raise InvalidInput(_REFERENCE_IS_PRIVATE)


_REFERENCE_IS_PRIVATE = (
    "The 'public' parameter must not be a part of the private records, because it is not "
    "protected. Take public rows from another source."
)


class ClaimedPlan(Protocol):
    """The part of a plan that a claim of its records depends on.

    Records are protected if there is no `simulation_seed` and `interactions` is not 0. Interactions
    with the same records under one guarantee need equal values of `plan_identity`.
    """

    @property
    def simulation_seed(self) -> int | None: ...
    @property
    def interactions(self) -> int: ...
    @property
    def plan_identity(self) -> Hashable: ...


@dataclass(eq=False)
class FitSeries:
    """A series of fits that are charged as one interaction, such as the rounds of a labelling.

    `resumed`: whether the series continues an interrupted one, possibly of this process.
    `interaction`: the interaction that the fits share; None before the first fit.
    """

    resumed: bool = False
    interaction: Interaction | None = None

    def join(self, estimator: BaseEstimator) -> None:
        """Make the next fit of `estimator` a part of this series."""
        estimator._fit_series = self


def claim_records(
    estimator: BaseEstimator, plan: ClaimedPlan, records: FitInputs
) -> Interaction | None:
    """Register the records of a fit, and return their interaction; call before sampling noise.

    Fits of one series share an interaction. Also stores it in the `estimator`, and warns if a
    Pipeline fitted a step on the records. Returns None for simulations and for public records,
    which are not registered. Raises PrivacyRefused if the records took part in another interaction,
    and if scikit-learn's cross-validation calls the fit.
    """
    # Without a declared n_records, the number of records is estimated from the private records.
    estimates_size = getattr(plan, "n_records", 0) is None
    state = vars(estimator)
    previous_interaction = state.get("_interaction")
    series = state.get("_fit_series")
    if plan.simulation_seed is not None or plan.interactions == 0:
        estimator._interaction = None
        return None
    sklearn_function = _find_cross_validation() if plan.interactions == 1 else ""
    if sklearn_function:
        message = (
            "scikit-learn would fit several times on the same records here, and score by held-out "
            "labels that nothing protects; the guarantee is for one fit. Do so on records that "
            'need no protection, with simulation_seed or interactions="public".'
        )
        if sklearn_function == "validation_curve":
            # It turns exceptions into NaN scores silently, so only a warning reaches the user.
            warn_caller(message, PrivacyWarning)
        raise PrivacyRefused(message)
    transformer_name = _find_private_transformer()
    if transformer_name:
        # Before anything is claimed, so that a filter can turn the warning into an error.
        warn_caller(
            f"The Pipeline fitted {transformer_name} on the private records. No budget pays for "
            "this, and the guarantee does not cover it. Fit the step on public rows, and put "
            "FrozenEstimator(step) into the Pipeline.",
            PrivacyWarning,
        )
    digests = RecordDigests.from_records(records.features, records.ids)
    declaration = (plan.plan_identity, plan.interactions)
    interaction: Interaction
    if series is not None and series.interaction and not series.interaction.is_withdrawn:
        REGISTRY.extend_claim(series.interaction, digests, same_records=True)
        interaction = series.interaction
    elif series is not None and series.resumed:
        interaction = REGISTRY.resume_interaction(digests, declaration)
    else:
        interaction = REGISTRY.begin_interaction(
            digests, declaration, previous_interaction, releases_noisy_count=estimates_size
        )
    if series is not None:
        series.interaction = interaction
    estimator._interaction = interaction
    return interaction


_CROSS_VALIDATION_FUNCTIONS = (
    "validation_curve",
    "_fit_and_score",
    "_fit_and_predict",
    "_fit_and_score_over_thresholds",
    "_fit_classifier_calibrator_pair",
    "_permutation_test_score",
    "_rfe_single_fit",
)
"""Functions of scikit-learn that fit on one fold of several."""


def _find_cross_validation() -> str:
    """Return the name of the scikit-learn cross-validation function on the call stack, or "".

    Cross-validation would spend the budgets in its first fit, and report the refusal of each
    further fit as a NaN score. Only the call stack reveals that a fit belongs to one.
    """
    sklearn_functions = {frame.f_code.co_name for frame in _iterate_sklearn_frames()}
    return next((name for name in _CROSS_VALIDATION_FUNCTIONS if name in sklearn_functions), "")


def _iterate_sklearn_frames() -> Iterator[FrameType]:
    """Yield the frames of scikit-learn's functions on the call stack, the innermost first."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if str(frame.f_globals.get("__name__")).startswith("sklearn."):
            yield frame


def _find_private_transformer() -> str:
    """Return the class name of a step that a Pipeline fitted on the private records, or "".

    It depends only on the steps of the Pipelines that call this fit. A test of values, such as
    column means of 0, would itself reveal something about the records.
    """
    for frame in _iterate_sklearn_frames():
        steps = getattr(frame.f_locals.get("self"), "steps", None)
        if frame.f_code.co_name == "fit" and steps is not None:
            for _, transformer in steps[:-1]:
                if _learns_from_rows(transformer):
                    return type(transformer).__name__
    return ""


def _learns_from_rows(transformer: Any) -> bool:
    """Return whether the `fit` of a scikit-learn `transformer` may depend on rows.

    A composite does if one of its components does; "passthrough", "drop" and None do not. A step
    without scikit-learn's tags may learn.
    """
    from sklearn.frozen import FrozenEstimator
    from sklearn.utils import get_tags

    if transformer is None or isinstance(transformer, (str, FrozenEstimator)):
        return False
    for attribute in ("steps", "transformer_list", "transformers"):
        components = getattr(transformer, attribute, None)
        if isinstance(components, list):
            remainder = getattr(transformer, "remainder", None)
            steps = [component[1] for component in components]
            return any(map(_learns_from_rows, [*steps, remainder]))
    try:
        return bool(get_tags(transformer).requires_fit)
    except AttributeError:
        return True


def note_release(estimator: BaseEstimator) -> None:
    """Record that the estimator's interaction has released a function of its private records."""
    interaction: Interaction | None = vars(estimator).get("_interaction")
    if interaction is not None:
        interaction.begin_release()
