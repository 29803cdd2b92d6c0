from vicinal.audit._catalogue import all_trials as all_trials
from vicinal.audit._one_run import OneRunResult as OneRunResult
from vicinal.audit._one_run import one_run as one_run
from vicinal.audit._schedule import AuditResult as AuditResult
from vicinal.audit._schedule import carry_out_all as carry_out_all

__all__: list[str]  # the names above; those below are shared inside vicinal, and may change

from vicinal.audit._catalogue import Trials as Trials
from vicinal.audit._catalogue import not_audited as not_audited
from vicinal.audit._catalogue import plan_trials as plan_trials
from vicinal.audit._catalogue import store_trials as store_trials
from vicinal.audit._catalogue import stored_plan as stored_plan
from vicinal.audit._claims import CHOOSING as CHOOSING
from vicinal.audit._claims import Claim as Claim
from vicinal.audit._claims import GaussianClaim as GaussianClaim
from vicinal.audit._claims import RateBounds as RateBounds
from vicinal.audit._claims import rate_at_least as rate_at_least
from vicinal.audit._claims import rate_at_most as rate_at_most
from vicinal.audit._claims import rate_bounds as rate_bounds
from vicinal.audit._ind_knn import IndKNNAudit as IndKNNAudit
from vicinal.audit._interactions import universes as universes
from vicinal.audit._schedule import AuditFinding as AuditFinding
from vicinal.audit._schedule import AuditTrial as AuditTrial
from vicinal.audit._schedule import ControlResult as ControlResult
from vicinal.audit._schedule import carry_out as carry_out
from vicinal.audit._schedule import proved as proved
from vicinal.audit._schedule import try_control as try_control
