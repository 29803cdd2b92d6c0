from vicinal.audit.catalogue import list_all_attacks as list_all_attacks
from vicinal.audit.one_run_audit import OneRunResult as OneRunResult
from vicinal.audit.one_run_audit import audit_in_one_run as audit_in_one_run
from vicinal.audit.schedule import AuditResult as AuditResult
from vicinal.audit.schedule import run_audits as run_audits
