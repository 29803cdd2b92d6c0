"""The plan of an Ind-KNN estimator: checked parameters, the target of records, derived numbers."""

import difflib
import math
from collections.abc import Hashable, Mapping
from functools import partial
from typing import Any, Self

import numpy as np

from vicinal.accounting.budget import zcdp_budget
from vicinal.accounting.label_filter import ChargeTable, build_charge_table
from vicinal.arrays import AnyArray, Floats
from vicinal.engine.noise_schedule import (
    Participation,
    compute_n_neighbors,
    compute_noise_multiplier,
    fit_n_neighbors,
)
from vicinal.errors import InvalidInput
from vicinal.linear.losses import ClassLoss, TrainingLoss, VectorLoss
from vicinal.linear.private_model import (
    MAX_TRAINING_SHARE,
    MIN_PUBLIC_ROWS,
    PRIVATE_VOTE_SHARE,
    RECORDS_EXPONENT,
    PrivateModel,
    TrainingBudget,
)
from vicinal.mechanisms.votes import SLACK_SHARE
from vicinal.neighbours.radius import MIN_COUNT, Reference
from vicinal.parameters import AUTO, CheckedParameters, get_checks, get_parameters
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

_SHARES_TOLERANCE = 0.001  # Largest difference between 1 and the sum of declared shares of classes


def choose_default_delta(n_records: int | None) -> float:
    """Return the default delta for `n_records` declared records; None for no declaration.

    It is a tenth of 1 / n, at most 1e-5: publishing one record chosen at random would satisfy a
    delta of 1 / n.
    """
    return min(1e-5, 0.1 / (n_records or 1))


class IndKNNPlan(CheckedParameters, VotingParameters):
    """The checked parameters of an Ind-KNN estimator, and the numbers that follow from them.

    A value of None stands for "auto" or "adaptive". All values are public.

    - `target`: the records' targets: classes, numbers or several labels.
    - `no_model_reason`: why "auto" has chosen no private model; "" if it has not chosen that.
    - `n_public`: number of public rows, on which that choice depends; 0 for none.
    - `n_periods`: number of equal renewal periods over which answers and budgets are released; a
      model is trained in the first one.
    - `carries_over`: whether the unspent budget of a period is carried over to the next one.

    Arguments of methods: `budget_share`, the share of a subject's budget that is used for votes;
    `n_neighbors`, k, or None if it varies between queries; `n_public`, the number of public rows.
    """

    target: Target
    no_model_reason: str = ""
    n_public: int = 0
    n_periods: int = 1
    carries_over: bool = True

    @classmethod
    def from_estimator(cls, estimator: object) -> Self:
        """Return the checked plan of the parameters of an Ind-KNN `estimator`."""
        kind = next(kind for kind, table in PARAMETERS.items() if isinstance(estimator, table))
        names = [parameter.name for parameter in get_parameters(PARAMETERS[kind])]
        values = {name: getattr(estimator, name) for name in names}
        return cls.of_target(KINDS[kind].from_values(values), values)

    @classmethod
    def of_target(cls, target: Target, values: Mapping[str, Any]) -> Self:
        """Return the checked plan for records with `target`; defaults replace missing parameters.

        `values`: parameter values by name. Raises InvalidInput for a name that plans for this kind
        of target do not accept.
        """
        names_by_kind = {
            kind: {parameter.name for parameter in get_parameters(table)}
            for kind, table in PARAMETERS.items()
        }
        for name in values:
            if name not in names_by_kind[target.kind]:
                accepting = [kind for kind, names in names_by_kind.items() if name in names]
                kinds = " and ".join(KINDS[kind].description for kind in accepting)
                if kinds:
                    raise InvalidInput(
                        f"The {name!r} parameter is for {kinds}, and records carry "
                        f"{target.description} here. Leave it out."
                    )
                similar = difflib.get_close_matches(name, names_by_kind[target.kind], n=1)
                remedy = f"Did you mean {similar[0]!r}?" if similar else "Leave it out."
                raise InvalidInput(f"The {name!r} parameter is not one of a plan. {remedy}")
        return cls.from_values(dict(values), target=target)

    def replanned(self, **parameters: Any) -> Self:
        """Return the plan with `parameters` replaced and checked, and its model chosen again."""
        checks = [(name, check) for name, check in get_checks(type(self)) if name in parameters]
        changes = {name: check(name, parameters[name]) for name, check in checks}
        reason = "" if "model_share" in parameters else self.no_model_reason
        plan = self.changed(no_model_reason=reason, **changes)
        plan.complete_and_check()
        return plan.choose_model_share(plan.n_public)

    def complete_and_check(self) -> None:
        """Set delta if it is "auto"; raise InvalidInput for parameters that exclude each other."""
        # The default uses the declared number of records, never an estimate from private records.
        if self.delta is None:
            vars(self).update(delta=choose_default_delta(self.n_records))
        if self.reuse_predictions and not self.has_private_count:
            raise InvalidInput(
                "The 'reuse_predictions' parameter must be False unless neighbor_count='private': "
                "earlier answers vote in the published algorithm alone, see zhu2023."
            )
        self._check_class_prior_and_cost()
        if self.model_share and self.unmet_model_requirement:
            raise InvalidInput(
                f"The 'model_share' parameter must be 0 unless {self.unmet_model_requirement}."
            )

    def _check_class_prior_and_cost(self) -> None:
        """Raise InvalidInput for shares `class_prior` or costs `cost` that cannot be used.

        Each must have one number for each class. The shares must add up to 1, and are needed for
        the costs "balanced". Both need a public number of neighbours unless the plurality decides.
        """
        for name, value in (("class_prior", self.class_prior), ("cost", self.cost)):
            if isinstance(value, tuple) and len(value) != len(self.class_names):
                raise InvalidInput(
                    f"The {name!r} parameter must hold {len(self.class_names)} numbers, one for "
                    f"each of 'classes' in their order. Got {len(value)}."
                )
        if (
            self.class_prior is not None
            and abs(math.fsum(self.class_prior) - 1) > _SHARES_TOLERANCE
        ):
            raise InvalidInput("The 'class_prior' parameter must add up to 1: shares of classes.")
        if self.cost == BALANCED and self.class_prior is None:
            raise InvalidInput(
                f"The 'cost' parameter must be numbers unless 'class_prior' is given: {BALANCED!r} "
                "takes the inverse of public shares of classes."
            )
        if self.is_plurality_decision:
            return
        requirements = {
            f"min_similarity={ADAPTIVE!r}": self.min_similarity is None,
            f"neighbor_count={PUBLIC!r}": not self.has_private_count,
        }
        for requirement, is_met in requirements.items():
            if not is_met:
                raise InvalidInput(
                    "The 'class_prior' and 'cost' parameters must be None unless "
                    f"{requirement}: they need a public number of neighbours."
                )

    @property
    def class_names(self) -> AnyArray:
        """Declared names of classes or labels, (c,); empty for numbers."""
        return self.target.class_names

    @property
    def label_only(self) -> bool:
        """Whether the label alone is released, not the votes."""
        return self.release == "label"

    @property
    def n_trainings(self) -> int:
        """Number of trainings of a private model, which share its part of a budget."""
        return 1 + self.model_refreshes

    @property
    def size(self) -> int:
        """Number of records, declared or estimated."""
        assert self.n_records is not None  # noqa: S101 (narrows the type)
        return self.n_records

    @property
    def n_subjects(self) -> float:
        """Expected number of subjects of these records."""
        return self.size / self.records_per_subject

    @property
    def class_shares(self) -> Floats:
        """Share of each class in the population, (c,): declared, or equal."""
        shares = np.asarray(
            self.class_prior or np.ones(self.target.n_coordinates), dtype=np.float64
        )
        return np.asarray(shares / shares.sum())

    @property
    def class_costs(self) -> Floats:
        """Relative cost of missing a record of each class, (c,)."""
        if self.cost == BALANCED:
            return 1 / self.class_shares
        return np.asarray(self.cost or np.ones(self.target.n_coordinates), dtype=np.float64)

    @property
    def is_plurality_decision(self) -> bool:
        """Whether the class with the most votes wins, as all shares and costs are equal."""
        return bool(np.ptp(self.class_shares) == 0 and np.ptp(self.class_costs) == 0)

    def check_kernel(self, *, has_public: bool) -> None:
        """Raise InvalidInput if parameters need a public reference or bandwidth that is missing."""
        needs_public = {
            "min_similarity='adaptive'": self.min_similarity is None,
            "neighbor_count='public'": not self.has_private_count,
            "noise_multiplier='auto'": self.noise_multiplier is None,
            "norm_bound='auto'": self.kernel == "rbf" and self.norm_bound is None,
        }
        for setting, is_set in needs_public.items():
            if is_set and not has_public:
                raise InvalidInput(
                    f"The 'public' parameter of fit must be given for {setting}: an (m, d) array "
                    "of unlabelled reference points that nobody needs to protect, such as past "
                    "queries."
                )
        # A fixed radius is a kernel value, which is undefined before the bandwidth is known.
        if self.kernel == "rbf" and self.bandwidth is None and self.min_similarity is not None:
            raise InvalidInput(
                "The 'bandwidth' parameter must be a number when 'min_similarity' is one. Got "
                "'auto'; give the bandwidth that the radius was chosen for."
            )

    @property
    def unmet_model_requirement(self) -> str:
        """The first requirement of a private model that the plan does not meet; "" for none."""
        requirements = {
            "kernel='cosine'": self.kernel == "cosine",
            f"min_similarity={ADAPTIVE!r}": self.min_similarity is None,
            f"neighbor_count={PUBLIC!r}": not self.has_private_count,
            "release='votes' (with class shares or costs)": self.is_plurality_decision
            or not self.label_only,
        }
        return next((name for name, is_met in requirements.items() if not is_met), "")

    def find_model_obstacle(self, n_public: int = MIN_PUBLIC_ROWS) -> str:
        """Return why "auto" trains no private model with `n_public` public rows; "" if it does."""
        declared = {"n_neighbors": self.n_neighbors, "noise_multiplier": self.noise_multiplier}
        fixed = next((name for name, value in declared.items() if value is not None), "")
        if self.unmet_model_requirement:
            return f"it needs {self.unmet_model_requirement}"
        if fixed:
            return f"{fixed!r} is given"
        if n_public < MIN_PUBLIC_ROWS:
            return f"it takes {MIN_PUBLIC_ROWS} public rows, and there are {n_public}"
        return ""

    def may_train(self, n_public: int = MIN_PUBLIC_ROWS) -> bool:
        """Return whether a private model is requested, or chosen by "auto" with `n_public` rows."""
        if self.model_share is None:
            return not self.find_model_obstacle(n_public)
        return self.model_share > 0

    @property
    def has_private_count(self) -> bool:
        """Whether the number of neighbours is released with noise at a charge."""
        return self.neighbor_count == PRIVATE

    @property
    def is_sequential(self) -> bool:
        """Whether queries are answered one after the other."""
        return self.execution == "sequential"

    @property
    def label_charges(self) -> ChargeTable:
        """The table of charges of released labels; in Renyi DP labels are charged as votes."""
        if self.accounting == "rdp":
            return build_charge_table(self.interaction_budget, 0.0)
        # Charges depend on the number of classes only if the class with the most votes wins.
        n_classes = self.target.n_coordinates if self.is_plurality_decision else None
        return build_charge_table(self.interaction_budget, SLACK_SHARE * self.grid_delta, n_classes)

    @property
    def interaction_budget(self) -> float:
        """The budget B of every subject in one interaction: rho in zCDP, or mu^2 / 2 in GDP.

        Both add up over releases. In GDP, 1 % of delta is reserved for the noise grid and the tail
        of label releases. Several interactions share the budget in equal parts.
        """
        share = 1 - SLACK_SHARE if self.accounting == "gdp" else 1.0
        total = zcdp_budget(self.epsilon, self.delta * share, self.accounting)
        return total if self.n_interactions == 1 else math.nextafter(total / self.n_interactions, 0)

    @property
    def n_interactions(self) -> int:
        """Number of interactions that share the budget, at least 1."""
        return max(1, self.interactions)

    @property
    def grid_delta(self) -> float:
        """The delta of one interaction of which the noise grid may use a share.

        Labels in GDP divide delta in two equal parts, for the grid and the tail of their charge.
        """
        has_tail = self.label_only and self.accounting == "gdp"
        return self.delta / self.n_interactions / (2 if has_tail else 1)

    @property
    def plan_identity(self) -> Hashable:
        """Values that are equal for all interactions that share one budget."""
        return "Ind-KNN", self.accounting, self.epsilon, self.delta

    def compute_record_budget(self, budget_share: float, shift: float = 0.0) -> float:
        """Return the zCDP budget of one record for votes; a larger one for labels, which cost less.

        `shift`: weight of a record's vote in noise scales, on which the charge of labels depends.
        """
        budget = budget_share * self.interaction_budget
        if self.label_only and budget_share > 0:
            budget = self.label_charges.compute_votes_budget(shift, budget_share)
        return budget / self.typical_charge_ratio

    @property
    def typical_charge_ratio(self) -> float:
        """Planned charge of a subject, as a multiple of the charge of one record alone.

        r records that are always near the same queries, with the same label, are charged r^2
        together; r records that never are, r. Vectors that are typically shorter than 1 are charged
        for their squared length.
        """
        return float(self.records_per_subject**RECORDS_EXPONENT) * self.target.typical_norm**2

    @property
    def n_private_answers(self) -> int:
        """Expected number of queries that are answered by votes of private records.

        A private model of classes answers the other queries alone, if it is certain of the class.
        """
        if self.model_share and self.target.is_class_vote:
            return math.ceil(PRIVATE_VOTE_SHARE * self.n_queries)
        return self.n_queries

    def choose_neighbors(self, reference: Reference | None, budget_share: float) -> int:
        """Return the automatic number of neighbours k, which trades noise against nearness.

        k is proportional to the noise multiplier that the budgets pay for and to the dimension of
        the data. The target gives the factor, `neighbors_per_noise`, and limits k, as each of its
        `n_groups` needs neighbours (:mod:`vicinal.engine.noise_schedule`). `reference`: public
        points, on which the dimension is estimated, or None. `budget_share`: share for votes.
        """
        budget = self.compute_record_budget(budget_share)
        n_groups = self.target.n_groups
        factor = self.target.neighbors_per_noise
        n_answers = self.n_private_answers
        if reference is None:
            return compute_n_neighbors(
                self.size, n_answers, budget, n_groups, self.size, neighbors_per_noise=factor
            )
        return fit_n_neighbors(reference, self.size, n_answers, budget, n_groups, factor)

    def choose_multiplier(self, usage: Participation, count: float, budget_share: float) -> float:
        """Return the noise multiplier sigma2 with which the budgets pay for the planned answers.

        The noise on each vote has the standard deviation sigma2 * sqrt(count). `usage`: mean
        squared kernel weight, and spread of the number of participations, of public points.
        `count`: number of records that take part in a query.
        """
        compute_budget = partial(self.compute_record_budget, budget_share)
        return compute_noise_multiplier(
            usage, self.size, self.n_private_answers, count, compute_budget
        )

    @property
    def has_equal_noise(self) -> bool:
        """Whether all queries have the same noise scale."""
        return not self.has_private_count and self.min_similarity is None

    def get_typical_count(self, n_neighbors: int | None) -> float:
        """Return the number of neighbours for which noise is planned: k, or the smallest number."""
        return MIN_COUNT if n_neighbors is None else float(n_neighbors)

    @property
    def training(self) -> TrainingBudget:
        """Budget and loss of a private model, once its share and the number of records are set."""
        assert self.model_share is not None  # noqa: S101 (chosen before)
        return TrainingBudget(
            self.size,
            self.interaction_budget,
            self.model_share,
            self.n_trainings,
            self.loss,
            self.typical_charge_ratio,
            self.records_per_subject,
        )

    @property
    def loss(self) -> TrainingLoss:
        """The loss that a private model minimises."""
        if self.target.is_class_vote:
            return ClassLoss(self.class_shares, fits_intercepts=not self.label_only)
        target = self.vector_target
        return VectorLoss(target.n_coordinates - 1, target.weight_coordinate, target.residual_norm)

    @property
    def vector_target(self) -> VectorTarget:
        """The target of a plan whose answers are averages: of numbers or of several labels."""
        assert isinstance(self.target, VectorTarget)  # noqa: S101 (narrows the type)
        return self.target

    def get_vote_share(self, model: PrivateModel | None) -> float:
        """Return the share of each budget that remains for votes after all trainings of `model`.

        It is 1 if `model` is None.
        """
        if model is None:
            return 1.0
        # If budgets are not carried over, the part of its share that training does not use is
        # available in the first period only.
        if not self.carries_over:
            return 1.0 - (self.model_share or 0.0)
        return 1.0 - min(model.typical_spent_share * self.n_trainings, self.model_share or 0.0)

    def choose_model_share(self, n_public: int) -> Self:
        """Return the plan with the share of its private model chosen, if it is "auto".

        The choice is a public fact. Without a model, `no_model_reason` is the reason.
        """
        plan = self.changed(n_public=n_public)
        if self.model_share is not None:
            return plan
        obstacle = self.find_model_obstacle(n_public)
        if obstacle:
            return plan.without_model(obstacle)
        # With several periods, the model is trained with a share of the first period's budget.
        limit = MAX_TRAINING_SHARE
        share = limit if self.n_periods == 1 else limit / (self.n_periods * (1 - limit) + limit)
        return plan.changed(model_share=share)

    def without_model(self, reason: str) -> Self:
        """Return the plan without a private model, with the `reason` why "auto" chose none."""
        return self.changed(model_share=0.0, no_model_reason=reason)

    @property
    def automatic_model_share(self) -> float:
        """Share of the budget that "auto" would give a private model; 0 for no model.

        A plan with a plurality decision is assumed to release labels alone.
        """
        release = {"release": "label"} if self.is_plurality_decision else {}
        plan = self.replanned(**release, model_share=AUTO)
        return plan.model_share or 0.0
