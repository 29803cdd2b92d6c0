"""Certificates of stores for data protection officers, as JSON values and as a page; all public.

A certificate covers three external checklists: sections of NIST SP 800-226 (Guidelines for
Evaluating Differential Privacy Guarantees), tiers of the Differential Privacy Deployments Registry,
and items of OWASP AISVS. templates/certificate.json lists for each item whether it is covered, and
the version of each checklist. An *audience* is a group of recipients with a plan of its own, and a
*calibration* a measurement of the share of outcomes in sets or intervals.

Certificates are made of JSON values, from which these keys are read:

- `facts` of a store (:func:`vicinal.store.status.collect_public_facts`): "identity", "version" (of
  the data), "classes", "features", "total" (the guarantee over all audiences; "capped" if a filter
  enforces it), and "audiences" by name. An audience has its "plan" and "guarantee", "queries"
  ("planned" and "used"), "renewal" or None, "evaluations" (one with "coverage" has a calibration),
  and the estimated "usage" of budgets ("mean" share), or None.
- `report` of an audit: "at", "version", "identity" and "audience" of the audited store, "holds" (no
  claim is refuted), and "claims". A claim has its "attack", "mechanism" and "world", the "claim"
  and its "lower" bound in mu, "confidence", the smallest "epsilon" that it "would_have_seen", and
  "controls": attacks on broken mechanisms, "caught" or not.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from statistics import NormalDist
from typing import Any

from vicinal.accounting.budget import zcdp_budget
from vicinal.audit.catalogue import list_unaudited_attacks
from vicinal.mechanisms.votes import SLACK_SHARE
from vicinal.reports.text import bound_attack_success, bound_gaussian_success, render_template
from vicinal.store.coverage import ASSUMPTION, CONFIDENCE, list_calibrations

FORMAT = 2
"""Version of the schema of certificates, docs/reference/certificate.schema.json."""

# Fields that only the operator of a store can fill in, and the value of a missing one. "vouched_by"
# is the responsible person who confirms the assumptions.
_OPERATOR_FIELDS = ("controller", "purpose", "retention", "vouched_by", "accuracy")
_NOT_STATED = "not stated by the operator"

# Proof notes by released values, relative to the package.
_NOTES_BY_RELEASE = {
    "votes": ("mechanisms/votes.md", "noise/gaussian.md"),
    "label": ("mechanisms/votes.md", "accounting/label_only.md", "noise/gaussian.md"),
}

_TITLES = {"nist_sp_800_226": "NIST SP 800-226", "owasp_aisvs": "OWASP AISVS 1.0"}


def compute_certified_success(epsilon: float, delta: float, *, gaussian: bool) -> float:
    """Return an upper bound on the success probability of membership inference, from prior 1/2.

    The bound is (e^eps + delta) / (1 + e^eps) for (epsilon, delta)-DP, rounded up to a tenth of a
    percent. `gaussian`: whether the accounting is Gaussian DP; then the bound is Phi(mu / 2) plus
    the share of delta reserved for noise on an integer grid, if smaller.
    """
    bound = bound_attack_success(epsilon, delta)
    if gaussian:
        budget = zcdp_budget(epsilon, delta * (1 - SLACK_SHARE))
        bound = min(bound, bound_gaussian_success(budget, SLACK_SHARE * delta))
    # The factor keeps floating-point error from rounding an exact tenth of a percent up.
    return min(1.0, math.ceil(bound * 1000 * (1 - 1e-12)) / 1000)


def create_certificate(
    facts: Mapping[str, Any],
    version: str,
    created_at: str,
    audits: Sequence[Mapping[str, Any]] = (),
    **statements: str | None,
) -> dict[str, Any]:
    """Return the certificate of a store as JSON values, from public facts.

    - `facts`: public facts of the store, as ``Store.facts()`` returns them.
    - `version`, `created_at`: vicinal's version, and the time of the certificate (ISO 8601).
    - `audits`: JSON reports of ``vicinal audit``, newest first. Only audits of this store count as
      evidence on its audiences; those of other targets are listed separately.
    - `statements` of the operator: the responsible `controller`, the `purpose`, the `retention` of
      records and backups, `vouched_by` (who confirms the assumptions), and the known `accuracy`.
    """
    statements = {name: statements.get(name) or _NOT_STATED for name in _OPERATOR_FIELDS}
    own_audits = [report for report in audits if report.get("identity") == facts["identity"]]
    other_audits = [report for report in audits if report not in own_audits]
    audited = _collect_mu_lower_bounds(own_audits)
    audiences = [
        _describe_audience(name, state, facts["version"], audited.get(name, {}))
        for name, state in facts["audiences"].items()
    ]
    total = facts["total"]
    successes = [audience["membership_guess"]["to_at_most"] for audience in audiences]
    max_success = max(successes, default=0.5)
    # Several audiences, or later ones under a common cap, may combine their answers.
    if total["capped"] or len(audiences) > 1:
        max_success = 1.0
        if total["epsilon"] is not None:
            max_success = compute_certified_success(
                total["epsilon"], total["delta"], gaussian=total["capped"]
            )
    checklists = json.loads(files(__package__).joinpath("templates/certificate.json").read_bytes())
    tier_1 = checklists["registry"]["tier_1"]
    tier_1.update(data_curators=statements["controller"], intended_use=statements["purpose"])
    tier_1.update(publication_date=created_at)
    return {
        "format": FORMAT,
        "at": created_at,
        "store": facts["identity"],
        "parties": {name: statements[name] for name in ("controller", "purpose")},
        "unit": "one subject: a person with all records that carry that person's id",
        "audiences": audiences,
        "total": {
            **total,
            "membership_guess_at_most": max_success,
            "why": (
                "Each audience has its own budgets, and data adapt: an action after an answer to "
                "one audience may change records that answer another, whose budgets were never "
                "charged for it. Then only the statement for all audiences together holds."
            ),
        },
        "data": {
            "classes": len(facts["classes"]),
            "features": facts["features"].get("number"),
            "version": facts["version"],
        },
        "vouched_by": statements["vouched_by"],
        "accuracy": statements["accuracy"],
        "mechanism": {
            "name": "Ind-KNN, an individual filter over noisy votes of neighbours",
            "package": "vicinal",
            "version": version,
            "proofs": _list_proofs(facts),
        },
        "audits": [_summarize_audit(report) for report in own_audits],
        "other_audits": [_summarize_audit(report) for report in other_audits],
        "not_audited": list_unaudited_attacks(facts, audited),
        "deletion": {
            "policy": (
                "An erasure removes features, labels and id from every file at once. A keyed "
                "digest of the id stays with the remaining budget; so do past answers, and the "
                "weights of private models."
            ),
            "retention": statements["retention"],
        },
        **checklists,
    }


def _collect_mu_lower_bounds(audits: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the largest lower bound on mu-GDP in JSON reports `audits`, by audience and attack."""
    bounds: dict[str, dict[str, float]] = {}
    for report in audits:
        by_attack = bounds.setdefault(report.get("audience") or "", {})
        for claim in report["claims"]:
            attack = claim["attack"]
            by_attack[attack] = max(claim["lower"], by_attack.get(attack, 0.0))
    return bounds


def compute_gaussian_success(mu: float) -> float:
    """Return the success probability of membership inference under `mu`-GDP, from prior 1/2."""
    return NormalDist().cdf(mu / 2)


def _describe_audience(
    name: str, facts: Mapping[str, Any], version: int, mu_lower_bounds: Mapping[str, float]
) -> dict[str, Any]:
    """Return the section of the certificate on the audience `name`.

    `facts`: the audience's entry in ``Store.facts()``. `version`: of the store's data; calibrations
    of earlier versions no longer hold. `mu_lower_bounds`: on mu-GDP, by name of the attack.
    """
    guarantee = facts["guarantee"]
    plan = facts["plan"]
    queries = facts["queries"]
    gaussian = "Gaussian DP" in guarantee["method"]
    holds = bool(guarantee["holds"])
    success = compute_certified_success(plan["epsilon"], plan["delta"], gaussian=gaussian)
    # Attacks on the total of all audiences do not measure this audience alone.
    measured_mu = [mu for attack, mu in mu_lower_bounds.items() if attack != "total"]
    usage = facts.get("usage")
    calibrations = list_calibrations(facts["evaluations"], version)
    budget = zcdp_budget(plan["epsilon"], plan["delta"] * (1 - SLACK_SHARE))
    expected = None
    if usage and gaussian:
        expected = round(compute_gaussian_success(math.sqrt(2 * (usage["mean"] * budget))), 3)
    return {
        "name": name,
        "holds": holds,
        "epsilon": guarantee["epsilon"] if holds else None,
        "delta": guarantee["delta"],
        "release": plan["release"],
        "neighbouring": guarantee["neighbouring"],
        "periods": guarantee["periods"],
        "protected": list(guarantee["protected"]),
        "public": list(guarantee["public"]),
        "assumptions": list(guarantee["assumptions"]),
        "accounting": guarantee["method"],
        "answers": {"planned": queries["planned"], "given": queries["used"]},
        "evaluations": len(facts["evaluations"]),
        "coverage": _describe_calibration(calibrations[-1]) if calibrations else None,
        "spent": (
            "The guarantee covers all planned answers, however many are given. The remaining "
            "budgets of single subjects are private."
        ),
        "membership_guess": {
            "from": 0.5,
            # An estimate and no bound: for a subject with the mean budget usage of public points.
            "expected": expected,
            "to_at_most": success if holds else 1.0,
            # Rounded down, because it is a lower bound: that of a subject with a spent budget.
            "measured": (
                math.floor(1000 * compute_gaussian_success(max(measured_mu))) / 1000
                if measured_mu
                else None
            ),
        },
    }


def _describe_calibration(calibration: Mapping[str, Any]) -> dict[str, Any]:
    """Return the certified levels of a `calibration`, and all that they rest on.

    `calibration`: a :class:`~vicinal.store.coverage.Calibration` as JSON values. Each histogram (of
    one class or number; the name is None for all classes) has a certified threshold, or None, for
    each level: the share of outcomes that sets or intervals contain. "drifted_levels": levels that
    an earlier calibration certified and this one contradicts.
    """
    return {
        "statement": (
            f"With {CONFIDENCE:.0%} confidence for each level by itself, sets or intervals contain "
            "at least this share of future outcomes, of each class or number that is named. "
            f"{ASSUMPTION} Calibrated at answer {calibration['n_answers']}."
        ),
        "confidence": CONFIDENCE,
        "calibrated_at_answer": calibration["n_answers"],
        "drifted_levels": calibration["drifted_levels"],
        "of": [
            {"name": histogram["name"], "levels": histogram["levels"]}
            for histogram in calibration["histograms"]
        ],
    }


def _list_proofs(facts: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return path and SHA-256 of the proof note of each mechanism in the `facts` of a store."""
    names: list[str] = []
    for state in facts["audiences"].values():
        plan = state["plan"]
        names += _NOTES_BY_RELEASE[plan["release"]]
        names += ["mechanisms/linear_model.md"] if plan.get("model_share") else []
        names += ["mechanisms/count.md"] if plan["neighbor_count"] == "private" else []
        names += ["mechanisms/tally.md"] if state["evaluations"] else []
        names += ["store/coverage.md"] if list_calibrations(state["evaluations"]) else []
        names += ["ledger/renewal.md"] if state["renewal"] else []
    names += ["ledger/total.md"] if facts["total"]["capped"] else []
    root = files("vicinal")
    return [
        {"note": name, "sha256": hashlib.sha256(root.joinpath(name).read_bytes()).hexdigest()}
        for name in dict.fromkeys(names)
    ]


def _summarize_audit(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the certificate's summary of `report`, a JSON report of ``vicinal audit``."""
    return {
        "at": report["at"],
        "version": report["version"],
        "audience": report.get("audience"),
        "holds": report["holds"],
        "claims": [
            {
                **{name: claim[name] for name in ("mechanism", "world", "lower", "claim", "ratio")},
                "confidence": claim["confidence"],
                "would_have_seen_epsilon": claim.get("would_have_seen", {}).get("epsilon"),
                "controls_caught": sum(control["caught"] for control in claim["controls"]),
                "controls": len(claim["controls"]),
            }
            for claim in report["claims"]
        ],
    }


def render_certificate_page(certificate: Mapping[str, Any]) -> str:
    """Return a certificate of :func:`create_certificate` as a printable HTML page."""
    from markupsafe import Markup

    proofs = certificate["mechanism"]["proofs"]
    digest_markup = Markup('<span class="digest">{}</span>')
    audiences = certificate["audiences"]
    assumptions = [text for audience in audiences for text in audience["assumptions"]]
    return render_template(
        "certificate.html",
        **certificate,
        title="Certificate of a private prediction store",
        assumed=list(dict.fromkeys(assumptions)),
        proofs=[(proof["note"], digest_markup.format(proof["sha256"])) for proof in proofs],
        claims=_format_claims(certificate["audits"]),
        other_claims=_format_claims(certificate["other_audits"]),
        lists=[
            (
                title,
                certificate["compared"][name],
                [(row["item"], row["status"], row["here"]) for row in certificate[name]],
            )
            for name, title in _TITLES.items()
        ],
    )


def _format_claims(audits: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return the table row of each claim of `audits`, summaries of :func:`_summarize_audit`.

    Cells: mechanism and audience, date and version, lower bound and claimed mu, detectable epsilon,
    detected and all controls.
    """
    rows: list[tuple[str, ...]] = []
    for audit in audits:
        audience = "" if audit["audience"] is None else f" (audience {audit['audience']})"
        for claim in audit["claims"]:
            detectable_epsilon = claim["would_have_seen_epsilon"]
            rows.append(
                (
                    f"{claim['mechanism']}: {claim['world']}{audience}",
                    f"{audit['at']}, {audit['version']}",
                    f"{claim['lower']:.3f} of {claim['claim']:.3f}",
                    "not stated" if detectable_epsilon is None else f"{detectable_epsilon:.2f}",
                    f"{claim['controls_caught']} of {claim['controls']}",
                )
            )
    return rows
