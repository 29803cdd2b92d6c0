"""The plan of an Ind-KNN estimator: checked parameters, what records carry, what follows."""

import math
from collections.abc import Hashable, Mapping
from typing import Any, Self

import numpy as np

from vicinal.accounting.budget import zcdp_budget
from vicinal.accounting.label_filter import ChargeTable, charge_table
from vicinal.arrays import AnyArray, Floats
from vicinal.engine.noise_schedule import (
    ReferenceUsage,
    expected_neighbors,
    fitting_neighbors,
    planned_multiplier,
)
from vicinal.errors import InvalidInput
from vicinal.linear.losses import ClassLoss, TrainingLoss, VectorLoss
from vicinal.linear.private_model import ASKED, LEAST_PUBLIC, SHARE, PrivateModel, TrainingBudget
from vicinal.mechanisms.votes import SLACK_SHARE
from vicinal.neighbours.radius import LEAST_COUNT, Reference
from vicinal.parameters import AUTO, Settings, get_checks, get_parameters
from vicinal.planning.parameter_tables import (
    ADAPTIVE,
    BALANCED,
    PARAMETERS,
    PRIVATE,
    PUBLIC,
    VotingParameters,
)
from vicinal.targets.kinds import KINDS
from vicinal.targets.target import Target, VectorTarget

ALIKE = 1.5
"""A subject with r records is charged r to this power of what one record would be: half-way between
records that never are near the same query (1) and those that always are (2)."""

_ROUNDED = 0.001
"""How far declared shares of classes may be from adding up to 1."""


def default_delta(n_records: int | None) -> float:
    """Return delta where none is given, by the declared number of records; public.

    A tenth of 1 / n: publishing one record chosen at random would keep a delta of 1 / n.
    """
    return min(1e-5, 0.1 / (n_records or 1))


class IndKNNPlan(Settings, VotingParameters):
    """Checked parameters, of which None stands for "auto" or "adaptive", and what records carry.

    `target`: what records carry. `why_no_model`: why "auto" has settled on no private model; ""
    where it has not. `n_public`: public rows, by which that is settled; 0 for none. `periods`: how
    many even parts answers and their budgets come in; a model is trained in the first. `carries`:
    whether what is not spent of one is there in the next.
    """

    target: Target
    why_no_model: str = ""
    n_public: int = 0
    periods: int = 1
    carries: bool = True

    @classmethod
    def of(cls, estimator: object) -> Self:
        kind = next(kind for kind, taken in PARAMETERS.items() if isinstance(estimator, taken))
        values = {
            each.name: getattr(estimator, each.name) for each in get_parameters(PARAMETERS[kind])
        }
        return cls.of_target(KINDS[kind].checked(values), values)

    @classmethod
    def of_target(cls, target: Target, values: Mapping[str, Any]) -> Self:
        """Check parameters by name, with defaults for the others, for records with this target."""
        _check_names(target, values)
        return cls.checked(dict(values), target=target)

    def replanned(self, **parameters: Any) -> Self:
        """Return the plan with some parameters as they are passed, and its model settled anew."""
        named = [(name, check) for name, check in get_checks(type(self)) if name in parameters]
        changes = {name: check(name, parameters[name]) for name, check in named}
        why = "" if "model_share" in parameters else self.why_no_model
        plan = self.changed(why_no_model=why, **changes)
        plan.check_together()
        return plan.settled(plan.n_public)

    def check_together(self) -> None:
        if self.delta is None:  # settled once, before a number of records is estimated
            vars(self).update(delta=default_delta(self.n_records))
        if self.reuse_predictions and not self.private_count:
            raise InvalidInput(
                "The 'reuse_predictions' parameter must be False unless neighbor_count='private': "
                "earlier answers vote in the published algorithm alone, see zhu2023."
            )
        self._check_class_numbers()
        if self.model_share and self.against_model:
            raise InvalidInput(
                f"The 'model_share' parameter must be 0 unless {self.against_model}."
            )

    def _check_class_numbers(self) -> None:
        """Refuse class shares and costs that do not fit the classes, or nothing that is known."""
        for name, value in (("class_prior", self.class_prior), ("cost", self.cost)):
            if isinstance(value, tuple) and len(value) != len(self.class_names):
                raise InvalidInput(
                    f"The {name!r} parameter must hold {len(self.class_names)} numbers, one for "
                    f"each of 'classes' in their order. Got {len(value)}."
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
        }
        for need, met in needs.items():
            if not met:
                raise InvalidInput(
                    f"The 'class_prior' and 'cost' parameters must be None unless {need}: they "
                    "need a public number of neighbours."
                )

    @property
    def class_names(self) -> AnyArray:
        """Names of classes or labels as declared, (c,); none of numbers."""
        return self.target.class_names

    @property
    def label_only(self) -> bool:
        return self.release == "label"

    @property
    def trainings(self) -> int:
        """How many trainings of a private model share its part of a budget."""
        return 1 + self.model_refreshes

    @property
    def size(self) -> int:
        assert self.n_records is not None  # noqa: S101 (narrows the type)
        return self.n_records

    @property
    def class_shares(self) -> Floats:
        """How common each class is, (c,): as declared, or equal."""
        shares = np.asarray(
            self.class_prior or np.ones(self.target.n_coordinates), dtype=np.float64
        )
        return np.asarray(shares / shares.sum())

    @property
    def class_costs(self) -> Floats:
        if self.cost == BALANCED:
            return 1 / self.class_shares
        return np.asarray(self.cost or np.ones(self.target.n_coordinates), dtype=np.float64)

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

    @property
    def against_model(self) -> str:
        """What a private model needs and does not have; "" if it can be trained."""
        needs = {
            "kernel='cosine'": self.kernel == "cosine",
            f"min_similarity={ADAPTIVE!r}": self.min_similarity is None,
            f"neighbor_count={PUBLIC!r}": not self.private_count,
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
        if self.model_share is None:
            return not self.model_obstacle(n_public)
        return self.model_share > 0

    @property
    def private_count(self) -> bool:
        return self.neighbor_count == PRIVATE

    @property
    def sequential(self) -> bool:
        return self.execution == "sequential"

    @property
    def charges(self) -> ChargeTable:
        """What labels cost where they alone leave; in Renyi DP what votes cost."""
        if self.accounting == "rdp":
            return charge_table(self.spendable, 0.0)
        return charge_table(self.spendable, SLACK_SHARE * self.grid_delta, self.priced_classes)

    @property
    def priced_classes(self) -> int | None:
        """The number of classes that a label's price makes use of; None where scores decide."""
        return self.target.n_coordinates if self.plain_decision else None

    @property
    def spendable(self) -> float:
        """The budget B of every subject in one interaction.

        In GDP, 1 % of delta is kept for the grid, and the tail of labels. Several interactions
        share the budget evenly: budgets are zCDP, or squares of GDP's mu, and add up.
        """
        share = 1 - SLACK_SHARE if self.accounting == "gdp" else 1.0
        total = zcdp_budget(self.epsilon, self.delta * share, self.accounting)
        return total if self.parts == 1 else math.nextafter(total / self.parts, 0)

    @property
    def parts(self) -> int:
        return max(1, self.interactions)

    @property
    def grid_delta(self) -> float:
        """The delta of which the grid may use a share in one interaction; labels' tail the same."""
        tail = self.label_only and self.accounting == "gdp"
        return self.delta / self.parts / (2 if tail else 1)

    @property
    def plan_identity(self) -> Hashable:
        """What interactions must have in common for their budgets to add up to one."""
        return "Ind-KNN", self.accounting, self.epsilon, self.delta

    def affordable(self, budget_share: float, shift: float = 0.0) -> float:
        """Return a record's part of a share of a budget, as votes of `shift` noise scales feel it.

        Labels cost less than such votes do.
        """
        budget = budget_share * self.spendable
        if self.label_only and budget_share > 0:
            budget = self.charges.worth(shift, budget_share)
        return budget / self.subject_use

    @property
    def subject_use(self) -> float:
        """What a subject is charged, over what each of its records would be.

        r records that are near the same queries, with the same label, pay r^2 together; r that
        never are pay r. Vectors that are typically shorter than 1 pay for their length.
        """
        return float(self.records_per_subject**ALIKE) * self.target.typical_length**2

    @property
    def n_asked(self) -> int:
        """How many queries the plan expects to put to private records."""
        if self.model_share and self.target.voted:
            return math.ceil(ASKED * self.n_queries)
        return self.n_queries

    def neighbors(self, reference: Reference | None, budget_share: float) -> int:
        budget = self.affordable(budget_share)
        numbers = self.size, self.n_asked, budget, self.target.n_groups
        per_noise = self.target.neighbors_per_noise
        if reference is None:
            return expected_neighbors(*numbers, self.size, per_noise=per_noise)
        return fitting_neighbors(reference, *numbers, per_noise)

    def multiplier(self, usage: ReferenceUsage, count: float, budget_share: float) -> float:
        """Return the noise that this share of budgets can pay for, at a `count` of neighbours."""

        def affordable(shift: float) -> float:
            return self.affordable(budget_share, shift)

        return planned_multiplier(usage, self.size, self.n_asked, count, affordable)

    @property
    def even_noise(self) -> bool:
        return not self.private_count and self.min_similarity is None

    def least_count(self, n_neighbors: int | None) -> float:
        """Return the count below which no noise scale is taken: what the grid must fit."""
        return LEAST_COUNT if self.private_count or n_neighbors is None else float(n_neighbors)

    def typical_count(self, n_neighbors: int | None) -> float:
        return LEAST_COUNT if n_neighbors is None else float(n_neighbors)

    @property
    def training(self) -> TrainingBudget:
        """What a private model is trained with, once share and number of records are settled."""
        assert self.model_share is not None  # noqa: S101 (settled before)
        return TrainingBudget(
            self.size, self.spendable, self.model_share, self.trainings, self.loss, self.subject_use
        )

    @property
    def loss(self) -> TrainingLoss:
        """What a private model is trained for."""
        if isinstance(self.target, VectorTarget):
            target = self.target
            return VectorLoss(target.n_coordinates - 1, target.weight, target.residual)
        return ClassLoss(self.class_shares)

    def left_by(self, model: PrivateModel | None) -> float:
        """Return the share of budgets that the trainings of a private model leave for votes."""
        if model is None:
            return 1.0
        if not self.carries:  # what training leaves of its share is there in the first part alone
            return 1.0 - (self.model_share or 0.0)
        return 1.0 - min(model.typical_use * self.trainings, self.model_share or 0.0)

    def settled(self, n_public: int) -> Self:
        """Return the plan with its model's share where that is "auto"; public.

        Where it gives none the plan says why.
        """
        known = self.changed(n_public=n_public)
        if self.model_share is not None:
            return known
        if obstacle := self.model_obstacle(n_public):
            return known.without_model(obstacle)
        share = SHARE if self.periods == 1 else SHARE / (self.periods * (1 - SHARE) + SHARE)
        return known.changed(model_share=share)  # of the first part, where they are several

    def without_model(self, why: str) -> Self:
        return self.changed(model_share=0.0, why_no_model=why)

    @property
    def model_by_rule(self) -> float:
        """The share that "auto" gives a private model where labels leave; 0 for none."""
        release = {} if not self.plain_decision else {"release": "label"}
        plan = self.replanned(**release, model_share=AUTO)
        return plan.model_share or 0.0


def _check_names(target: Target, values: Mapping[str, Any]) -> None:
    """Refuse the first parameter that records of this kind do not take, by its name."""
    takers = {
        kind: {each.name for each in get_parameters(taken)} for kind, taken in PARAMETERS.items()
    }
    for name in values:
        if name not in takers[target.kind]:
            others = [KINDS[kind].words for kind, names in takers.items() if name in names]
            for_whom = f"is for {' and '.join(others)}" if others else "is not one of a plan"
            raise InvalidInput(
                f"The {name!r} parameter {for_whom}, and records carry {target.words} here. "
                "Leave it out."
            )
