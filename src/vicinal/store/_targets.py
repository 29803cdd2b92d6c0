"""What the records of a store carry: a class, numbers, or several labels. Public, fixed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from vicinal import predictors
from vicinal._arrays import AnyArray, Ints32
from vicinal.errors import InvalidInput
from vicinal.mechanisms import UNIT, RecordTargets, RecordVectors
from vicinal.planning import (
    REQUIRED,
    IndKNNSettings,
    MultiLabelSettings,
    RegressorSettings,
    SharedSettings,
    declared,
)

if TYPE_CHECKING:
    from vicinal.predictors import IndKNNEstimator

CLASSES, NUMBERS, LABELS = "classes", "bounds", "labels"
"""Kinds of targets, each by the parameter that declares it."""

_ESTIMATORS = {
    CLASSES: "IndKNNClassifier",
    NUMBERS: "IndKNNRegressor",
    LABELS: "IndKNNMultiLabelClassifier",
}
"""Names, as an estimator takes a second to load, and only what checks unusual rows needs one."""

_SETTINGS: dict[str, type[SharedSettings]] = {
    CLASSES: IndKNNSettings,
    NUMBERS: RegressorSettings,
    LABELS: MultiLabelSettings,
}
_OWN = {
    CLASSES: (CLASSES,),
    NUMBERS: (NUMBERS, "scale", "typical_range", "n_thresholds"),
    LABELS: (LABELS, "tau"),
}
"""Parameters that say what records carry, of each kind: all audiences share them."""

_CARRIED = {
    CLASSES: "classes",
    NUMBERS: "numbers",
    LABELS: "several labels a record",
}


@dataclass(frozen=True, eq=False)
class TargetSchema:
    """What a record carries, as everybody may know.

    `kind`: :data:`CLASSES`, :data:`NUMBERS` or :data:`LABELS`. `parameters`: those of the estimator
    that say so, as JSON has them.
    """

    kind: str
    parameters: dict[str, Any]

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Self:
        """Return what all parameters of an estimator say of its targets.

        Raises InvalidInput if none of the kinds is declared, or several are.
        """
        declared = [kind for kind in _OWN if parameters.get(kind) is not None]
        if len(declared) != 1:
            raise InvalidInput(
                "Exactly one must be given: the 'classes' parameter; for numbers the 'bounds' "
                "parameter; for several labels a record the 'labels' parameter."
            )
        (kind,) = declared
        values = {name: parameters[name] for name in _OWN[kind] if name in parameters}
        settings = _settings(kind, values)
        return cls(kind, {**values, kind: _plain(settings)})

    @property
    def own(self) -> tuple[str, ...]:
        """The names of the parameters that say what records carry."""
        return _OWN[self.kind]

    @property
    def classes(self) -> list[Any]:
        """Class names; none where records carry something else."""
        return list(self.parameters.get(CLASSES, []))

    @property
    def names(self) -> list[Any]:
        """Names of classes, of targets, or of labels."""
        declared = self.parameters[self.kind]
        return list(declared) if self.kind != NUMBERS or isinstance(declared, dict) else ["number"]

    def estimator(self, parameters: Mapping[str, Any]) -> IndKNNEstimator[Any]:
        """Return an estimator of these targets and further parameters, not fitted."""
        values = {**parameters, **self.parameters}
        _check_names(self.kind, values)
        return getattr(predictors, _ESTIMATORS[self.kind])(**values)  # type: ignore[no-any-return]

    def settings(self, parameters: Mapping[str, Any]) -> SharedSettings:
        """Return checked settings of these targets and further parameters."""
        return _settings(self.kind, {**parameters, **self.parameters})

    @property
    def facts(self) -> dict[str, Any]:
        """Kind and parameters as they are shown."""
        return {"kind": self.kind, **self.parameters}

    @cached_property
    def plain_settings(self) -> SharedSettings:
        """Settings of these targets, with a plan that says nothing."""
        return self.settings({})

    @cached_property
    def width(self) -> int:
        """Numbers that stand on the disk for a record: its class, or its vector on the grid."""
        return 1 if self.kind == CLASSES else self.plain_settings.n_coordinates

    def rows(self, targets: RecordTargets) -> Ints32:
        """Return what records carry as rows, int32 (n, width). Private."""
        return targets.steps() if isinstance(targets, RecordVectors) else targets.reshape(-1, 1)

    def targets(self, rows: Ints32) -> RecordTargets:
        """Return what :meth:`rows` was made of, exactly."""
        if self.kind == CLASSES:
            return np.array(rows[:, 0], dtype=np.int32)
        return RecordVectors.of_steps(rows)

    def fault(self, rows: Ints32) -> str | None:
        """Return in words what cannot be in such rows; None if all can."""
        if self.kind == CLASSES:
            bad = ((rows < 0) | (rows >= len(self.classes))).any()
            return "A label is none of the classes." if bad else None
        lengths = np.square(rows.astype(np.float64) / UNIT).sum(axis=1)
        return "A record carries a vector longer than 1." if (lengths > 1 + 1e-9).any() else None

    def examples(self, size: int) -> AnyArray:
        """Return made-up targets (size, ...), as `y` of the estimator."""
        if self.kind == CLASSES:
            return np.resize(np.array(self.classes, dtype=object), size)
        if self.kind == LABELS:
            return np.resize([0, 1, 1], (size, len(self.names)))
        bounds = self.parameters[NUMBERS]
        if not isinstance(bounds, dict):
            return np.full(size, bounds[0])
        return np.tile([low for low, _ in bounds.values()], (size, 1))


def _settings(kind: str, parameters: Mapping[str, Any]) -> SharedSettings:
    """Return checked settings of parameters and defaults, as an estimator of that kind has them."""
    _check_names(kind, parameters)
    values = {each.name: each.default for each in declared(_SETTINGS[kind])} | dict(parameters)
    if any(value is REQUIRED for value in values.values()):
        raise InvalidInput(f"The {kind!r} parameter must be given.")
    return _SETTINGS[kind].of(SimpleNamespace(**values))


def _check_names(kind: str, parameters: Mapping[str, Any]) -> None:
    """Refuse the first parameter that records of this kind do not take, by its name."""
    takers = {other: _names(settings) for other, settings in _SETTINGS.items()}
    for name in parameters:
        if name not in takers[kind]:
            others = [_CARRIED[other] for other, names in takers.items() if name in names]
            for_whom = f"is for {' and '.join(others)}" if others else "is not one of a plan"
            raise InvalidInput(
                f"The {name!r} parameter {for_whom}, and records carry {_CARRIED[kind]} here. "
                "Leave it out."
            )


def _names(settings: type[SharedSettings]) -> frozenset[str]:
    return frozenset(each.name for each in declared(settings))


def _plain(settings: SharedSettings) -> Any:
    """Return checked class names, labels or bounds as JSON has them."""
    if isinstance(settings, RegressorSettings):
        bounds = settings.bounds
        pairs = np.stack([bounds.low, bounds.high], axis=1).tolist()
        return pairs[0] if bounds.names is None else dict(zip(bounds.names, pairs, strict=True))
    if isinstance(settings, MultiLabelSettings):
        return settings.labels.tolist()
    return settings.class_names.tolist()
