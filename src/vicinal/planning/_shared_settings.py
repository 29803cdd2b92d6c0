"""What the plans of all Ind-KNN estimators have in common, and the budget they stand for."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Hashable
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from vicinal._arrays import Floats
from vicinal.accounting import ChargeTable, charge_table, label_budget, zcdp_budget
from vicinal.engine import NEIGHBORS_PER_NOISE, asked_of
from vicinal.errors import InvalidInput
from vicinal.linear import LEAST_PUBLIC, ModelRule, chosen_rule
from vicinal.mechanisms import SLACK_SHARE, RecordTargets
from vicinal.neighbours import LEAST_COUNT
from vicinal.planning._index_options import CENTROIDS
from vicinal.planning._parameter_tables import (
    ADAPTIVE,
    GATE,
    NO_REUSE,
    PRIVATE,
    PUBLIC,
    IndKNNParameters,
)
from vicinal.planning._parameters import Settings

ALIKE = 1.5
"""A subject with r records is charged r to this power of what one record would be: half-way between
records that never are near the same query (1) and those that always are (2)."""


class SharedSettings(Settings, IndKNNParameters):
    """Checked parameters that every Ind-KNN estimator has; None stands for "auto"."""

    @property
    def neighbors_per_noise(self) -> float:
        """Neighbours for each unit of noise and dimension, see ``_planning``."""
        return NEIGHBORS_PER_NOISE

    @property
    def label_only(self) -> bool:
        """Whether labels leave, and no votes."""
        return False

    @property
    def reuse(self) -> str:
        """What answers already given do for later queries."""
        return NO_REUSE

    @property
    def trained_share(self) -> float | None:
        """The share of a budget that trains a private model; None where a rule decides it."""
        return 0.0

    @property
    def trainings(self) -> int:
        """How many trainings of a private model share its part of a budget."""
        return 1

    @property
    def model_rule(self) -> ModelRule:
        """How a private model is trained and used: as settled at its training, or as of today."""
        settled: ModelRule | None = vars(self).get("settled_rule")
        return settled or chosen_rule()

    @property
    def class_shares(self) -> Floats:
        """How common each class is, (c,): equal unless declared."""
        return np.full(self.n_coordinates, 1 / self.n_coordinates)

    @property
    def class_costs(self) -> Floats:
        """What it costs to miss a record of each class, (c,)."""
        return np.ones(self.n_coordinates)

    @property
    def plain_decision(self) -> bool:
        """Whether the class with the most votes wins: equal shares, and equal costs."""
        return bool(np.ptp(self.class_shares) == 0 and np.ptp(self.class_costs) == 0)

    def check_kernel(self, *, has_public: bool) -> None:
        """Refuse settings without which features cannot be encoded, or need a reference not given.

        A fixed radius is a kernel value, which means nothing before the bandwidth is known.
        """
        needs = {
            "min_similarity='adaptive'": self.min_similarity is None,
            "neighbor_count='public'": not self.private_count,
            "noise_multiplier='auto'": self.noise_multiplier is None,
            "norm_bound='auto'": self.kernel == "rbf" and self.norm_bound is None,
            "index='centroids'": self.index["kind"] == CENTROIDS,
        }
        for setting, needed in needs.items():
            if needed and not has_public:
                raise InvalidInput(
                    f"The 'public' parameter of fit must be given for {setting}: an (m, d) array "
                    "of unlabelled reference points that nobody needs to protect, such as past "
                    "queries."
                )
        if self.kernel == "rbf" and self.bandwidth is None and self.min_similarity is not None:
            raise InvalidInput(
                "The 'bandwidth' parameter must be a number when 'min_similarity' is one. Got "
                "'auto'; give the bandwidth that the radius was chosen for."
            )

    @abstractmethod
    def targets(self, y: npt.ArrayLike | None, size: int) -> RecordTargets:
        """Check what `size` records carry, and return it as the records' shard keeps it."""

    @property
    @abstractmethod
    def n_coordinates(self) -> int:
        """Coordinates of what a record contributes."""

    @property
    def n_groups(self) -> int:
        """Kinds of records that an answer tells apart; each needs neighbours of its own.

        Numbers and labels are planned for as two classes are.
        """
        return 2

    @property
    @abstractmethod
    def public_facts(self) -> tuple[str, ...]:
        """What is public beside parameters and queries, in words."""

    @property
    def against_model(self) -> str:
        """What a private model needs and does not have; "" if it can be trained."""
        needs = {
            "kernel='cosine'": self.kernel == "cosine",
            f"min_similarity={ADAPTIVE!r}": self.min_similarity is None,
            f"neighbor_count={PUBLIC!r}": not self.private_count,
            "reuse_predictions=False": self.reuse == NO_REUSE,
            "release='votes' (with class shares or costs)": self.plain_decision
            or not self.label_only,
        }
        return next((need for need, met in needs.items() if not met), "")

    def model_obstacle(self, n_public: int = LEAST_PUBLIC) -> str:
        """Return what keeps "auto" from training a private model beside `n_public` rows, or ""."""
        declared = {"n_neighbors": self.n_neighbors, "noise_multiplier": self.noise_multiplier}
        fixed = next((name for name, value in declared.items() if value is not None), "")
        if self.against_model:
            return f"it needs {self.against_model}"
        if fixed:
            return f"{fixed!r} is given"
        if n_public < LEAST_PUBLIC:
            return f"it takes {LEAST_PUBLIC} public rows, and there are {n_public}"
        return ""

    def may_train(self, n_public: int = LEAST_PUBLIC) -> bool:
        """Tell whether a private model is wanted, or left to the rule, beside `n_public` rows."""
        if self.trained_share is None:
            return not self.model_obstacle(n_public)
        return self.trained_share > 0

    @property
    def why_no_model(self) -> str:
        """Why "auto" has settled on no private model; "" where it has not."""
        return str(vars(self).get("settled_against_model", ""))

    @property
    def private_count(self) -> bool:
        """Whether the number of neighbours is released with noise."""
        return self.neighbor_count == PRIVATE

    @property
    def sequential(self) -> bool:
        """Whether queries are answered one by one."""
        return self.execution == "sequential"

    @property
    def charges(self) -> ChargeTable:
        """What labels cost where they alone leave; the order fits many small contributions."""
        return _charges(self.epsilon, self.delta, self.priced_classes, self.parts)

    @property
    def priced_classes(self) -> int | None:
        """The number of classes that a label's price makes use of; None where scores decide."""
        return self.n_coordinates if self.plain_decision else None

    @property
    def spendable(self) -> float:
        """The budget B of every subject in one interaction.

        In GDP, 1 % of delta is kept for the grid. Several interactions share the budget evenly:
        budgets are zCDP, or squares of GDP's mu, and add up.
        """
        if self.label_only:
            return self.charges.zcdp
        share = 1 - SLACK_SHARE if self.accounting == "gdp" else 1.0
        total = zcdp_budget(self.epsilon, self.delta * share, self.accounting)
        return _part(total, self.parts)

    @property
    def parts(self) -> int:
        """How many interactions share the budget."""
        return max(1, self.interactions)

    @property
    def grid_delta(self) -> float:
        """The delta of which the grid may use a share in one interaction."""
        return self.delta / self.parts

    @property
    def terms(self) -> Hashable:
        """What interactions must have in common for their budgets to add up to one."""
        method = ("label", self.priced_classes) if self.label_only else (self.accounting,)
        return "Ind-KNN", *method, self.epsilon, self.delta

    def affordable(self, shift: float = 0.0) -> float:
        """Return a record's part of a budget, as contributions of `shift` noise scales feel it."""
        price = self.charges.share(shift) if self.label_only else 1.0
        return self.spendable / (price * self.subject_use)

    @property
    def subject_use(self) -> float:
        """What a subject is charged, over what each of its records would be.

        r records that are near the same queries, with the same label, pay r^2 together; r that
        never are pay r.
        """
        return float(self.records_per_subject**ALIKE)

    @property
    def n_asked(self) -> int:
        """How many queries the plan expects to put to private records."""
        if self.trained_share:
            return math.ceil(self.model_rule.asked * self.n_queries)
        gated = self.reuse == GATE
        return asked_of(self.n_queries) if gated else self.n_queries

    @property
    def even_noise(self) -> bool:
        """Whether the noise is the same in all answers."""
        fixed = self.private_count or self.min_similarity is not None
        return not fixed and self.reuse == NO_REUSE

    def least_count(self, n_neighbors: int | None) -> float:
        """Return the count below which no noise scale is taken: what the grid must fit."""
        return LEAST_COUNT if self.private_count or n_neighbors is None else float(n_neighbors)

    def typical_count(self, n_neighbors: int | None) -> float:
        """Return the count that noise scales are quoted at."""
        return LEAST_COUNT if n_neighbors is None else float(n_neighbors)


AnySettings = TypeVar("AnySettings", bound=SharedSettings)


@lru_cache(maxsize=16)
def _charges(epsilon: float, delta: float, n_classes: int | None, parts: int) -> ChargeTable:
    table = charge_table(label_budget(epsilon, delta, classes=n_classes), n_classes)
    return replace(table, target=replace(table.target, budget=_part(table.target.budget, parts)))


def _part(budget: float, parts: int) -> float:
    """Return an equal part of a budget, rounded down."""
    return budget if parts == 1 else math.nextafter(budget / parts, 0)
