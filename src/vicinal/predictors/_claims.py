"""What an estimator claims in ``fit``: its records, for the only interaction they take part in.

See :mod:`vicinal.mechanisms._interactions`.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from vicinal._arrays import AnyArray, Ints32
from vicinal.mechanisms import REGISTRY, Claimed, Interaction, RecordVectors, id_digests
from vicinal.predictors._inputs import FitInputs

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator


class Claiming(Protocol):
    """Checked settings, as far as claims need them."""

    @property
    def class_names(self) -> AnyArray:
        """The names of the classes."""

    @property
    def simulation_seed(self) -> int | None:
        """The seed of a simulation, which protects nobody."""

    @property
    def interactions(self) -> int:
        """How many interactions share the budget; 0 where the records are public."""

    @property
    def terms(self) -> Hashable:
        """What interactions that share a budget have in common."""


@dataclass(eq=False)
class OneOfSeveralFits:
    """Several fits that are priced as one interaction: the rounds of a labelling.

    `resumed`: whether an earlier holder, of this process perhaps, was cut off. `interaction`:
    theirs, since the first fit.
    """

    resumed: bool = False
    interaction: Interaction | None = None

    def join(self, estimator: BaseEstimator) -> None:
        """Let the next fit of `estimator` be one of these."""
        estimator._one_of = self


def claim(
    estimator: BaseEstimator,
    settings: Claiming,
    records: FitInputs,
    labels: AnyArray | RecordVectors,
) -> Interaction | None:
    """Claim the records of a ``fit`` for `estimator`, before anything is drawn.

    Returns None for simulations and public records, which are not counted.

    `labels`, int (n,), bool (n, c) or RecordVectors: places of classes, which attributes each
    record has, or vectors. Raises PrivacyRefused if the records took part in another interaction.
    """
    sized = getattr(settings, "n_records", 0) is None
    state = vars(estimator)
    before, several = state.get("_interaction"), state.get("_one_of")
    if settings.simulation_seed is not None or settings.interactions == 0:
        estimator._interaction = None
        return None
    claimed = Claimed.of(records.features, named(labels, settings.class_names), records.ids)
    interaction: Interaction
    if several is not None and several.interaction and not several.interaction.withdrawn:
        REGISTRY.extend(several.interaction, claimed)
        interaction = several.interaction
    elif several is not None and several.resumed:
        interaction = REGISTRY.adopt(claimed, settings.terms, settings.interactions)
    else:
        terms = settings.terms, settings.interactions
        interaction = REGISTRY.begin(claimed, *terms, before, sized=sized)
    if several is not None:
        several.interaction = interaction
    estimator._interaction = interaction
    return interaction


def extend(
    interaction: Interaction | None,
    records: FitInputs,
    labels: AnyArray | RecordVectors,
    classes: AnyArray,
) -> None:
    """Claim records that join an interaction, or its records with other features."""
    if interaction is not None:
        claimed = Claimed.of(records.features, named(labels, classes), records.ids)
        REGISTRY.extend(interaction, claimed)


def release(estimator: BaseEstimator) -> None:
    """Note that `estimator` is about to release something."""
    interaction: Interaction | None = vars(estimator).get("_interaction")
    if interaction is not None:
        interaction.release()


def named(labels: AnyArray | RecordVectors, classes: AnyArray) -> Ints32:
    """Return numbers for what every record carries that do not depend on the order of `classes`."""
    if isinstance(labels, RecordVectors):
        return labels.steps()
    if labels.ndim == 2:
        return labels.astype(np.int32)
    numbers = (id_digests(classes.tolist()) >> np.uint64(33)).astype(np.int32)
    return np.asarray(numbers[labels])
