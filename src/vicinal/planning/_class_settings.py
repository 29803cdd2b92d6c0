"""What an Ind-KNN classifier's checked parameters stand for."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from vicinal._arrays import AnyArray, Floats, Ints32
from vicinal.errors import InvalidInput
from vicinal.planning._parameter_tables import (
    ADAPTIVE,
    BALANCED,
    NEIGHBORS,
    NO_REUSE,
    PUBLIC,
    IndKNNClassifierParameters,
)
from vicinal.planning._shared_settings import SharedSettings
from vicinal.predictors import labels

_ROUNDED = 0.001
"""How far declared shares of classes may be from adding up to 1."""


class IndKNNSettings(IndKNNClassifierParameters, SharedSettings):
    """Checked parameters of an Ind-KNN classifier; None stands for "auto" or "adaptive"."""

    def check_together(self) -> None:
        """Refuse class numbers that do not fit, and what does not go together."""
        if self.reuse == NEIGHBORS and not self.private_count:
            raise InvalidInput(
                "The 'reuse_predictions' parameter must be False or 'gate' unless neighbor_count="
                "'private': earlier answers vote in the published algorithm alone, see zhu2023."
            )
        self._check_class_numbers()
        if self.model_share and self.against_model:
            raise InvalidInput(
                f"The 'model_share' parameter must be 0 unless {self.against_model}."
            )

    def _check_class_numbers(self) -> None:
        """Refuse class shares and costs that do not fit the classes, or nothing that is known."""
        for name, value in (("class_prior", self.class_prior), ("cost", self.cost)):
            if isinstance(value, tuple) and len(value) != len(self.classes):
                raise InvalidInput(
                    f"The {name!r} parameter must hold {len(self.classes)} numbers, one for each "
                    f"of 'classes' in their order. Got {len(value)}."
                )
        if self.class_prior is not None and abs(math.fsum(self.class_prior) - 1) > _ROUNDED:
            raise InvalidInput("The 'class_prior' parameter must add up to 1: shares of classes.")
        if self.cost == BALANCED and self.class_prior is None:
            raise InvalidInput(
                f"The 'cost' parameter must be numbers unless 'class_prior' is given: {BALANCED!r} "
                "takes the inverse of public shares of classes."
            )
        if self.plain_decision:
            return
        needs = {
            f"min_similarity={ADAPTIVE!r}": self.min_similarity is None,
            f"neighbor_count={PUBLIC!r}": not self.private_count,
            "reuse_predictions=False": self.reuse_predictions == NO_REUSE,
        }
        for need, met in needs.items():
            if not met:
                raise InvalidInput(
                    f"The 'class_prior' and 'cost' parameters must be None unless {need}: they "
                    "need a public number of neighbours, and answers that were asked."
                )

    def targets(self, y: npt.ArrayLike | None, size: int) -> Ints32:
        """Return the class of every record, int32 (n,)."""
        return labels(y, size, self.classes)

    @property
    def class_names(self) -> AnyArray:
        """Class names as declared, (c,)."""
        return self.classes

    @property
    def label_only(self) -> bool:
        """Whether labels leave, and no votes."""
        return self.release == "label"

    @property
    def reuse(self) -> str:
        """What answers already given do for later queries."""
        return self.reuse_predictions

    @property
    def trained_share(self) -> float | None:
        """The share of a budget that trains a private model; None where a rule decides it."""
        return self.model_share

    @property
    def trainings(self) -> int:
        """How many trainings of a private model share its part of a budget."""
        return 1 + self.model_refreshes

    @property
    def class_shares(self) -> Floats:
        """How common each class is, (c,): as declared, or equal."""
        shares = np.asarray(self.class_prior or np.ones(len(self.classes)), dtype=np.float64)
        return np.asarray(shares / shares.sum())

    @property
    def class_costs(self) -> Floats:
        """What it costs to miss a record of each class, (c,)."""
        if self.cost == BALANCED:
            return 1 / self.class_shares
        return np.asarray(self.cost or np.ones(len(self.classes)), dtype=np.float64)

    @property
    def n_coordinates(self) -> int:
        """The number of classes."""
        return len(self.classes)

    @property
    def n_groups(self) -> int:
        """The number of classes."""
        return len(self.classes)

    public_facts = ("the class names",)
