from vicinal.audit.catalogue import all_trials as all_trials
from vicinal.audit.one_run_audit import OneRunResult as OneRunResult
from vicinal.audit.one_run_audit import one_run as one_run
from vicinal.audit.schedule import AuditResult as AuditResult
from vicinal.audit.schedule import carry_out_all as carry_out_all
