"""What a data protection officer files about a store, as plain values; everything in it is public.

Lists of others are mapped to its fields: sections of NIST SP 800-226 (Guidelines for Evaluating
Differential Privacy Guarantees), tiers of the Differential Privacy Deployments Registry, items of
OWASP AISVS. What is not covered is said, and with which text each list was compared.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from vicinal.accounting import zcdp_budget as budget
from vicinal.mechanisms import SLACK_SHARE
from vicinal.reports._text import gaussian_guess_limit, guess_limit

NOT_STATED = "not stated by the operator"

_NOTES = {
    "votes": ("mechanisms/votes.md", "noise/gaussian.md"),
    "label": ("mechanisms/votes.md", "accounting/label_only.md", "noise/gaussian.md"),
}

_MEANS_NOT = (
    "It does not say that a person cannot be identified from other sources.",
    "It does not cover what is true of everybody alike, such as that a disease is common.",
    "It does not cover queries, class names or the public reference.",
    "It does not cover whoever reads the disk, the memory or the backups.",
)

COVERED, PARTLY, NOT_COVERED = "covered", "partly", "not covered"

_Items = tuple[tuple[str, str, tuple[str, ...], str], ...]

_NIST: _Items = (
    ("2.2 The privacy parameter epsilon", COVERED, ("audiences[].epsilon", "audiences[].delta"),
     "epsilon and delta of each audience; not why they were chosen"),
    ("2.3 Variants of differential privacy", COVERED, ("audiences[].accounting",),
     "(epsilon, delta), by Gaussian or Renyi composition; delta at most 1 / n^2 is the operator's"),
    ("2.4 The unit of privacy", COVERED, ("unit", "audiences[].neighbouring"),
     "unbounded, user-level: one subject with all records comes or goes; ids must name people"),
    ("2.5 Comparing differential privacy guarantees", PARTLY, ("audiences[].membership_guess",),
     "success of a guess of membership; other guarantees are not compared"),
    ("2.6 Mixing differential privacy with other data releases", PARTLY, ("audiences[].answers",),
     "all answers of an audience; audiences that collude add up; not other systems' releases"),
    ("Auditing and empirical measures of privacy (not in the draft)", COVERED, ("audits",),
     "lower bounds of the installed code, and what would have been seen; no proof"),
    ("3.1 Basic mechanisms and common elements", COVERED, ("mechanism",),
     "exact discrete Gaussian noise; proof notes by digest"),
    ("3.2 Utility and accuracy", PARTLY, ("accuracy",), "as the operator states it"),
    ("3.3 Bias", NOT_COVERED, (), "measure accuracy by group: noise weighs most on small ones"),
    ("3.5 Machine learning", PARTLY, ("mechanism.name",),
     "answers of neighbours, and a private model where the plan has one"),
    ("4.1 Query models", COVERED, ("audiences[].answers",),
     "interactive: queries may follow from earlier answers, and their number is limited"),
    ("4.2 Threat models (trust models)", COVERED, ("audiences[].assumptions", "parties"),
     "central model: the operator holds the records and adds the noise"),
    ("4.3 Mechanism implementation challenges: floating-point arithmetic", COVERED,
     ("mechanism.proofs",), "votes are whole numbers, noise is exact and discrete"),
    ("4.3 Mechanism implementation challenges: timing channels", PARTLY, ("does_not_mean",),
     "response times may be paced; memory, disk and processor are not covered"),
    ("4.3 Mechanism implementation challenges: backend issues, hyperparameters", PARTLY,
     ("mechanism.version", "audiences[].public"),
     "plans are made of public facts; not the machine, nor libraries"),
    ("4.4 Data security and access control", PARTLY, ("vouched_by", "deletion"),
     "keys, roles, audiences, erasure with receipts; the machine and its backups by policy"),
    ("4.5 Data collection exposure", NOT_COVERED, (), "how the records came to the operator"),
)  # fmt: skip

_AISVS: _Items = (
    ("8.3.1 Expired vectors are excluded from retrieval within a measured window", COVERED,
     ("deletion",), "an erasure is in force before its command ends; records do not expire alone"),
    ("8.3.2 A reset for security, apart from deletion by retention", PARTLY, ("deletion",),
     "subjects can be erased selectively; a whole reset is a new store"),
    ("8.3.3 Quarantined content is kept, and excluded from retrieval", NOT_COVERED, (),
     "there is no quarantine"),
    ("8.4.1 Targets for leakage resistance are defined and measured", COVERED,
     ("audiences[].epsilon", "audits"), "the guarantee is the target; audits measure the code"),
)  # fmt: skip

_COMPARED = {
    "nist_sp_800_226": "numbers and titles of the draft of December 2023; with the final text of "
    "March 2025 by a summary of it alone, which has the same titles, a section on auditing "
    "and trust models for threat models",
    "owasp_aisvs": "version 1.0, chapter C8, as in its public repository in 2026",
    "registry": "its page of tiers and the fields of its published records, as of 2026",
}
"""With which text of others each list here was compared."""


def membership_success(epsilon: float, delta: float, *, gaussian: bool) -> float:
    """Return how often the best guess of who is in the data is right, starting from one half.

    Rounded up to a tenth of a percent. For (epsilon, delta) alone (e^eps + delta) / (1 + e^eps);
    for a filter in Gaussian DP the exact Phi(mu / 2), with what the grid may add.
    """
    bound = guess_limit(epsilon, delta)
    if gaussian:
        spendable = budget(epsilon, delta * (1 - SLACK_SHARE))
        bound = min(bound, gaussian_guess_limit(spendable, SLACK_SHARE * delta))
    return min(1.0, math.ceil(bound * 1000 * (1 - 1e-12)) / 1000)


def deployment_certificate(
    facts: Mapping[str, Any],
    version: str,
    at: str,
    *,
    controller: str | None = None,
    purpose: str | None = None,
    retention: str | None = None,
    vouched_by: str | None = None,
    accuracy: str | None = None,
    audits: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return a certificate of a store, from what everybody may know of it.

    `facts` are those of ``Store.facts()``, without private numbers. Only the operator can state who
    is responsible, what for, how long records and backups stay, who vouches for the assumptions,
    and what accuracy is known. `audits` are reports of ``vicinal audit``, newest first.
    """
    audiences = [_audience(name, state) for name, state in facts["audiences"].items()]
    return {
        "format": 1,
        "at": at,
        "store": facts["identity"],
        "parties": {"controller": controller or NOT_STATED, "purpose": purpose or NOT_STATED},
        "unit": "one subject: a person with all records that carry that person's id",
        "audiences": audiences,
        "data": {
            "classes": len(facts["classes"]),
            "features": facts["features"].get("number"),
            "version": facts["version"],
        },
        "vouched_by": vouched_by or NOT_STATED,
        "accuracy": accuracy or NOT_STATED,
        "mechanism": {
            "name": "Ind-KNN, an individual filter over noisy votes of neighbours",
            "package": "vicinal",
            "version": version,
            "proofs": _proofs(facts),
        },
        "audits": [_audit(report) for report in audits],
        "deletion": {
            "policy": (
                "An erasure removes features, labels and id from every file at once. A keyed "
                "digest of the id stays with what was left of the budget; so do answers given, and "
                "the weights of private models."
            ),
            "retention": retention or NOT_STATED,
        },
        "does_not_mean": list(_MEANS_NOT),
        "nist_sp_800_226": _listed(_NIST),
        "owasp_aisvs": _listed(_AISVS),
        "registry": _registry(controller, purpose, at),
        "compared": dict(_COMPARED),
    }


def _audience(name: str, state: Mapping[str, Any]) -> dict[str, Any]:
    guarantee, plan, queries = state["guarantee"], state["plan"], state["queries"]
    gaussian = plan["release"] == "votes" and "Gaussian DP" in guarantee["method"]
    holds = bool(guarantee["holds"])
    success = membership_success(plan["epsilon"], plan["delta"], gaussian=gaussian)
    return {
        "name": name,
        "holds": holds,
        "epsilon": guarantee["epsilon"] if holds else None,
        "delta": guarantee["delta"],
        "release": plan["release"],
        "neighbouring": guarantee["neighbouring"],
        "protected": list(guarantee["protected"]),
        "public": list(guarantee["public"]),
        "assumptions": list(guarantee["assumptions"]),
        "accounting": guarantee["method"],
        "answers": {"planned": queries["planned"], "given": queries["used"]},
        "spent": (
            "The guarantee covers all planned answers, however many are given. What single people "
            "have left is private."
        ),
        "membership_guess": {"from": 0.5, "to_at_most": success if holds else 1.0},
    }


def _proofs(facts: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the proof notes of everything that spends budgets in a store, with their digests."""
    names = [name for state in facts["audiences"].values() for name in _notes(state)]
    root = files("vicinal")
    return [
        {"note": name, "sha256": hashlib.sha256(root.joinpath(name).read_bytes()).hexdigest()}
        for name in dict.fromkeys(names)
    ]


def _notes(state: Mapping[str, Any]) -> list[str]:
    plan = state["plan"]
    return [
        *_NOTES[plan["release"]],
        *(["mechanisms/linear_model.md"] if plan.get("model_share") else []),
        *(["mechanisms/count.md"] if plan["neighbor_count"] == "private" else []),
        *(["mechanisms/tally.md"] if state["evaluations"] else []),
    ]


def _audit(report: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "at": report["at"],
        "version": report["version"],
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


def _listed(items: _Items) -> list[dict[str, Any]]:
    return [
        {"item": item, "status": status, "fields": list(fields), "here": here}
        for item, status, fields, here in items
    ]


def _registry(controller: str | None, purpose: str | None, at: str) -> dict[str, Any]:
    """Return the fields of the registry's tiers: values, or the fields here that hold them."""
    return {
        "tier_1": {
            "data_curators": controller or NOT_STATED,
            "intended_use": purpose or NOT_STATED,
            "data_product_type": "Interactive answers",
            "data_product_region": NOT_STATED,
            "data_product_sector": NOT_STATED,
            "description": "answers of a nearest-neighbour classifier over private records",
            "publication_date": at,
        },
        "tier_2": {
            "dp_flavor": "Approximate DP",
            "privacy_unit": ["unit"],
            "privacy_parameters": ["audiences[].epsilon", "audiences[].delta"],
            "model_name": "Central",
            "release_type": "answers, one after the other, as many as planned",
            "data_source_type": "Dynamic",
            "access_type": "Interactive",
        },
        "tier_3": {
            "input_metric": ["audiences[].neighbouring"],
            "bound_on_input_distance": "one subject",
            "data_domain": ["data"],
            "unprotected_quantities": ["audiences[].public"],
            "privacy_unit_description": ["unit", "audiences[].protected"],
            "post_processing": "whatever is made of released answers is covered",
            "composition": ["audiences[].accounting", "audiences[].spent"],
            "pre_processing_eda_hyperparameter_tuning": ["audiences[].assumptions"],
            "mechanisms": ["mechanism", "audits"],
            "actors": ["parties", "vouched_by"],
            "justification": NOT_STATED,
        },
    }


_TITLES = {"nist_sp_800_226": "NIST SP 800-226", "owasp_aisvs": "OWASP AISVS 1.0"}


def certificate_page(certificate: Mapping[str, Any]) -> str:
    """Return a certificate as a page of HTML: one sheet that prints, and needs no network."""
    from markupsafe import Markup

    from vicinal.reports._pages import rendered  # loads templates and plots

    mechanism, digest = certificate["mechanism"], Markup('<span class="digest">{}</span>')
    assumed = [words for state in certificate["audiences"] for words in state["assumptions"]]
    return rendered(
        "certificate.html",
        **certificate,
        title="Certificate of a private prediction store",
        assumed=list(dict.fromkeys(assumed)),
        proofs=[(one["note"], digest.format(one["sha256"])) for one in mechanism["proofs"]],
        claims=[
            _claim_row(report, c) for report in certificate["audits"] for c in report["claims"]
        ],
        lists=[
            (
                title,
                certificate["compared"][name],
                [(row["item"], row["status"], row["here"]) for row in certificate[name]],
            )
            for name, title in _TITLES.items()
        ],
    )


def _claim_row(report: Mapping[str, Any], claim: Mapping[str, Any]) -> tuple[str, ...]:
    seen = claim["would_have_seen_epsilon"]
    return (
        f"{claim['mechanism']}: {claim['world']}",
        f"{report['at']}, {report['version']}",
        f"{claim['lower']:.3f} of {claim['claim']:.3f}",
        "not stated" if seen is None else f"{seen:.2f}",
        f"{claim['controls_caught']} of {claim['controls']}",
    )
