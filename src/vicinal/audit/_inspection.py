"""What a release checker can tell of a model: protected and with which epsilon, or not."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from sklearn.exceptions import NotFittedError
from sklearn.neighbors._base import NeighborsBase
from sklearn.pipeline import Pipeline

from vicinal.accounting import Guarantee

PROTECTED, UNPROTECTED, UNKNOWN = "protected", "unprotected", "unknown"


@dataclass(frozen=True, slots=True)
class ModelInspection:
    """What is known of a model; the fields are stable.

    Attributes
    ----------
    verdict : {"protected", "unprotected", "unknown"}
        Whether its answers carry a differential privacy guarantee.
    stores_people : bool or None
        Whether the object itself holds private records; None if that cannot be told.
    epsilon, delta : float or None
        The guarantee of its answers.
    reason : str
        In a sentence.

    Examples
    --------
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from vicinal import inspect_model
    >>> inspect_model(KNeighborsClassifier()).verdict
    'unprotected'
    """

    verdict: str
    stores_people: bool | None
    epsilon: float | None
    delta: float | None
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values, for JSON."""
        return asdict(self)


def inspect_model(model: Any) -> ModelInspection:
    """Tell whether a model's answers are protected, and whether it stores people.

    Estimators of this package are recognised by their guarantee, and neighbours of scikit-learn,
    alone or inside a pipeline, as storing every record that they were fitted on. Nothing is asked
    of the model, and nothing is charged.

    Examples
    --------
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> inspect_model(KNeighborsClassifier()).verdict
    'unprotected'
    """
    if isinstance(model, Pipeline):
        return _worst_of([inspect_model(step) for _, step in model.steps])
    if isinstance(model, NeighborsBase):
        return ModelInspection(
            UNPROTECTED, True, None, None,
            "scikit-learn's neighbours keep all records that they were fitted on, and answer "
            "without noise.",
        )  # fmt: skip
    guarantee = _guarantee_of(model)
    if guarantee is None:
        return ModelInspection(
            UNKNOWN, None, None, None, "Nothing here tells whether it is protected."
        )
    # A trained NoisySGD model holds noisy weights and no records.
    stores = not hasattr(model, "coef_")
    if not guarantee.holds:
        return ModelInspection(UNPROTECTED, stores, None, None, str(guarantee).partition(".")[0])
    return ModelInspection(
        PROTECTED, stores, guarantee.epsilon, guarantee.delta,
        "Its answers are protected; the object itself must stay with whoever holds the records."
        if stores else "It was trained with noise, and may be released.",
    )  # fmt: skip


def _guarantee_of(model: Any) -> Guarantee | None:
    """Return the guarantee of one of this package's models; None for all others."""
    if not type(model).__module__.startswith("vicinal.") or not hasattr(model, "guarantee"):
        return None
    try:
        guarantee = model.guarantee()
    except NotFittedError:
        return None
    return guarantee if isinstance(guarantee, Guarantee) else None


def _worst_of(inspections: list[ModelInspection]) -> ModelInspection:
    order = [UNPROTECTED, UNKNOWN, PROTECTED]
    return min(inspections, key=lambda inspection: order.index(inspection.verdict))
