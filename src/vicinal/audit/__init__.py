"""Evidence: how much the installed mechanisms give away, measured, beside what they claim.

Worlds are made up from public things; no private record is read. Every audit is carried out on
broken versions as well, so that it says what it would have caught.
"""

from vicinal.audit._bounds import RateBounds, rate_bounds, visible_mu
from vicinal.audit._catalogue import (
    all_trials,
    ind_knn_trials,
    one_run_of_each,
    plan_trials,
    run_trials,
    store_audit,
    store_trials,
    vector_trials,
)
from vicinal.audit._claims import Claim, GaussianClaim, PlanClaim, RenyiClaim
from vicinal.audit._guesses import Guesses, epsilon_from_guesses, mu_from_guesses
from vicinal.audit._ind_knn import IndKNNAudit
from vicinal.audit._inspection import ModelInspection, inspect_model
from vicinal.audit._one_run import OneRunResult, one_run
from vicinal.audit._schedule import carry_out, carry_out_all, proved, try_control
from vicinal.audit._trials import AuditFinding, AuditResult, AuditTrial, ControlResult

__all__ = [
    "AuditFinding",
    "AuditResult",
    "AuditTrial",
    "Claim",
    "ControlResult",
    "GaussianClaim",
    "Guesses",
    "IndKNNAudit",
    "ModelInspection",
    "OneRunResult",
    "PlanClaim",
    "RateBounds",
    "RenyiClaim",
    "all_trials",
    "carry_out",
    "carry_out_all",
    "epsilon_from_guesses",
    "ind_knn_trials",
    "inspect_model",
    "mu_from_guesses",
    "one_run",
    "one_run_of_each",
    "plan_trials",
    "proved",
    "rate_bounds",
    "run_trials",
    "store_audit",
    "store_trials",
    "try_control",
    "vector_trials",
    "visible_mu",
]
