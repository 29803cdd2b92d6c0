"""What a data protection officer files about a store, as plain values; everything in it is public.

Fields follow NIST SP 800-226 (Guidelines for Evaluating Differential Privacy Guarantees, 2025) and
the tiers of the Differential Privacy Deployments Registry; what is not covered is said.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from vicinal.accounting._budget import budget
from vicinal.mechanisms._vote_grid import SLACK_SHARE
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

_NIST: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    ("Privacy parameters", COVERED, ("audiences[].epsilon", "audiences[].delta"),
     "epsilon and delta of each audience; not why they were chosen"),
    ("Variant of differential privacy", COVERED, ("audiences[].accounting",),
     "(epsilon, delta), by Gaussian or Renyi composition; a guess of membership in plain figures"),
    ("Unit of privacy and neighbouring relation", COVERED, ("unit", "audiences[].neighbouring"),
     "one subject with all records, added or removed; ids must name people"),
    ("Composition and post-processing", PARTLY, ("audiences[].spent", "audiences[].answers"),
     "all answers of an audience; audiences that collude add up; not other systems' answers"),
    ("Algorithms and their correctness", COVERED, ("mechanism", "audits"),
     "proof notes by digest, and audits of the installed code"),
    ("Utility and accuracy", PARTLY, ("accuracy",), "as the operator states it"),
    ("Bias and differences between groups", NOT_COVERED, (),
     "measure accuracy by group: noise weighs most on small ones"),
    ("Query model", COVERED, ("audiences[].answers",),
     "interactive: queries may follow from earlier answers, and their number is limited"),
    ("Trust model", COVERED, ("audiences[].assumptions", "parties"),
     "central: the operator holds the records and adds the noise"),
    ("Floating-point arithmetic", COVERED, ("mechanism.proofs",),
     "votes are whole numbers, noise is exact and discrete"),
    ("Timing and other side channels", PARTLY, ("does_not_mean",),
     "response times may be paced; memory, disk and processor are not covered"),
    ("Software and its dependencies", PARTLY, ("mechanism.version",),
     "version and digests of proofs; not the machine, nor libraries"),
    ("Security and access control", PARTLY, ("vouched_by",),
     "keys, roles and audiences of the service; the machine is not covered"),
    ("Data collection exposure", NOT_COVERED, (), "how the records came to the operator"),
    ("Retention and deletion", COVERED, ("deletion",), "erasure, with receipts; backups by policy"),
)  # fmt: skip


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
            "proofs": [
                note
                for release in sorted({a["release"] for a in audiences})
                for note in _proofs(release)
            ],
        },
        "audits": [_audit(report) for report in audits],
        "deletion": {
            "policy": (
                "An erasure removes features, labels and id from every file at once. A keyed "
                "digest of the id stays with what was left of the budget."
            ),
            "retention": retention or NOT_STATED,
        },
        "does_not_mean": list(_MEANS_NOT),
        "nist_sp_800_226": [
            {"item": item, "status": status, "fields": list(fields), "here": here}
            for item, status, fields, here in _NIST
        ],
        "registry": _registry(controller, purpose, at),
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


def _proofs(release: str) -> list[dict[str, str]]:
    root = files("vicinal")
    return [
        {"note": name, "sha256": hashlib.sha256(root.joinpath(name).read_bytes()).hexdigest()}
        for name in _NOTES[release]
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


def _registry(controller: str | None, purpose: str | None, at: str) -> dict[str, Any]:
    """Return the fields of the registry's tiers: values, or the fields here that hold them."""
    return {
        "tier_1": {
            "curator": controller or NOT_STATED,
            "intended_use": purpose or NOT_STATED,
            "data_product": "interactive answers",
            "description": "answers of a nearest-neighbour classifier over private records",
            "publication_date": at,
        },
        "tier_2": {
            "flavor": "approximate differential privacy, add or remove one subject",
            "privacy_unit": ["unit"],
            "privacy_loss": ["audiences[].epsilon", "audiences[].delta"],
            "deployment_model": "central, interactive",
        },
        "tier_3": {
            "data_domain": ["data"],
            "unprotected_quantities": ["audiences[].public"],
            "privacy_unit_in_detail": ["unit", "audiences[].protected"],
            "post_processing": "whatever is made of released answers is covered",
            "composition": ["audiences[].accounting", "audiences[].spent"],
            "implementation": ["mechanism", "audits"],
            "security": ["audiences[].assumptions", "vouched_by"],
            "not_covered": "why these parameters, this unit and this model were chosen",
        },
    }
