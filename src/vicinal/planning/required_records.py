"""Numbers of records that a plan needs for useful answers, from public facts only.

Each is the required number of subjects times the plan's `records_per_subject`.
The lead of a vote is the difference of the numbers of votes for the first and the second class.
"""

import math

from vicinal.errors import SmallDataWarning, warn_caller
from vicinal.linear.private_model import MIN_PUBLIC_ROWS
from vicinal.planning.engine_factory import PlannedEngine
from vicinal.planning.plan import IndKNNPlan
from vicinal.planning.plan_simulation import PlanChoice

MIN_LEAD = 5.0
"""Required lead of a unanimous vote, in standard deviations of the noise on a lead.

Votes are rarely unanimous. If three quarters of the neighbours agree on one of two classes, the
lead is half as large, 2.5 standard deviations, and noise decides about one such query in 160.
"""

_MIN_SUBJECTS_TIMES_MU = 130.0
"""Required number of subjects times mu for a private model: 500 subjects at epsilon 1.

With that many, the default has an AUC of .70 on 32 tables that no constant was tuned on. A
linear model without privacy has .76, and twice as many records give .73
(docs/reference/report-set.md).
"""

_INVERSE_PRECISION = 10  # required numbers of records are within 10 % of the smallest
MAX_RECORDS = 1 << 40  # a plan that needs more records than this needs less noise instead


def compute_unanimous_lead(choice: PlanChoice) -> float:
    """Return the lead of a unanimous vote of k neighbours, in standard deviations of its noise."""
    return choice.n_neighbors / (choice.noise * math.sqrt(2))


def find_model_records(plan: IndKNNPlan) -> int:
    """Return the approximate number of records that a private model needs.

    They belong to `_MIN_SUBJECTS_TIMES_MU` / mu subjects. Training as a whole is mu-GDP for each
    subject, whose records share one contribution. The noise on a mean gradient of n contributions
    is sqrt(2) clipping bounds / (mu n).
    """
    share = plan.model_share or plan.automatic_model_share
    mu = math.sqrt(2 * share * plan.interaction_budget)
    return math.ceil(plan.records_per_subject * _MIN_SUBJECTS_TIMES_MU / mu)


def find_min_records(plan: IndKNNPlan) -> int:
    """Return the smallest number of records with which a unanimous vote has :data:`MIN_LEAD`.

    It is at most a tenth too large. `plan`: its own number of records is ignored.
    """

    def is_insufficient(n_records: int) -> bool:
        """Return whether noise may change a unanimous vote of so many records."""
        choice = PlanChoice.from_plan(plan.replanned(n_records=n_records))
        return compute_unanimous_lead(choice) < MIN_LEAD

    high = 1
    while high < MAX_RECORDS and is_insufficient(high):
        high *= 2
    low = high // 2
    while high - low > max(1, low // _INVERSE_PRECISION):
        middle = (low + high) // 2
        if is_insufficient(middle):
            low = middle
        else:
            high = middle
    return high


def warn_about_small_data(planned: PlannedEngine) -> None:
    """Warn if a fitted classifier has so few records that noise decides many of its answers.

    Also warn if only the number of public rows prevented a private model. `planned`: the
    classifier's engine. Its number of records was declared or released with noise, so the warning
    costs no privacy. A plan with a declared noise multiplier gets none: its noise was chosen by the
    caller.
    """
    plan = planned.plan
    has_few_rows = 0 < plan.n_public < MIN_PUBLIC_ROWS
    if plan.no_model_reason and has_few_rows and not plan.find_model_obstacle():
        warn_caller(
            f"There are {plan.n_public} public rows, and a private model takes {MIN_PUBLIC_ROWS}, "
            "so neighbours answer alone, with more noise. Pass more public rows, or none with a "
            "schema: rows are then generated from it.",
            SmallDataWarning,
        )
    if (
        not plan.target.is_class_vote
        or plan.noise_multiplier is not None
        or planned.n_neighbors is None
    ):
        return
    if planned.model is None:
        lead = math.sqrt(planned.n_neighbors / 2) / planned.engine.noise_multiplier
        is_small = lead < MIN_LEAD
    else:
        is_small = plan.size < find_model_records(plan)
    if is_small:
        warn_caller(
            f"Noise decides many answers: about {plan.size:,} records (as declared, or as "
            f"estimated with noise) are few for {plan.n_queries:,} queries at epsilon "
            f"{plan.epsilon:g}. Use more records, fewer queries or a larger epsilon. "
            "`vicinal plan` states the required number of records.",
            SmallDataWarning,
        )
