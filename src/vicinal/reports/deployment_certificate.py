"""What a data protection officer files about a store, as plain values; everything in it is public.

Lists of others are mapped to its fields: sections of NIST SP 800-226 (Guidelines for Evaluating
Differential Privacy Guarantees), tiers of the Differential Privacy Deployments Registry, items of
OWASP AISVS. What is not covered is said, and with which text each list was compared. These lists
stand in templates/certificate.json.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from statistics import NormalDist
from typing import Any

from vicinal.accounting.budget import zcdp_budget as budget
from vicinal.audit.catalogue import not_audited
from vicinal.mechanisms.votes import SLACK_SHARE
from vicinal.reports.text import gaussian_guess_limit, guess_limit, rendered

STATED = ("controller", "purpose", "retention", "vouched_by", "accuracy")
NOT_STATED = "not stated by the operator"

_NOTES = {
    "votes": ("mechanisms/votes.md", "noise/gaussian.md"),
    "label": ("mechanisms/votes.md", "accounting/label_only.md", "noise/gaussian.md"),
}

_TITLES = {"nist_sp_800_226": "NIST SP 800-226", "owasp_aisvs": "OWASP AISVS 1.0"}


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
    audits: Sequence[Mapping[str, Any]] = (),
    **stated: str | None,
) -> dict[str, Any]:
    """Return a certificate of a store, from what everybody may know of it.

    `facts` are those of ``Store.facts()``, without private numbers. `audits` are reports of
    ``vicinal audit``, newest first. `stated` is what only the operator can state: the `controller`
    who is responsible, the `purpose`, the `retention` of records and backups, who has `vouched_by`
    name for the assumptions, and what `accuracy` is known.
    """
    says = {name: stated.get(name) or NOT_STATED for name in STATED}
    audited = _audited(audits)
    audiences = [
        _audience(name, state, audited.get(name, {})) for name, state in facts["audiences"].items()
    ]
    total = facts["total"]
    worst = max([state["membership_guess"]["to_at_most"] for state in audiences], default=0.5)
    if total["capped"] or len(audiences) > 1:  # which may tell each other, or come yet
        worst = 1.0
        if total["epsilon"] is not None:
            whole = total["epsilon"], total["delta"]
            worst = membership_success(*whole, gaussian=total["capped"])
    lists = json.loads(files(__package__).joinpath("templates/certificate.json").read_bytes())
    lists["registry"]["tier_1"].update(
        data_curators=says["controller"], intended_use=says["purpose"], publication_date=at
    )
    return {
        "format": 1,
        "at": at,
        "store": facts["identity"],
        "parties": {name: says[name] for name in ("controller", "purpose")},
        "unit": "one subject: a person with all records that carry that person's id",
        "audiences": audiences,
        "total": {
            **total,
            "membership_guess_at_most": worst,
            "why": (
                "Budgets are kept for each audience, and data adapt: what is done because of an "
                "answer to one audience may change records that answer another, whose budgets were "
                "never charged for it. Then only what is stated for all audiences together holds."
            ),
        },
        "data": {
            "classes": len(facts["classes"]),
            "features": facts["features"].get("number"),
            "version": facts["version"],
        },
        "vouched_by": says["vouched_by"],
        "accuracy": says["accuracy"],
        "mechanism": {
            "name": "Ind-KNN, an individual filter over noisy votes of neighbours",
            "package": "vicinal",
            "version": version,
            "proofs": _proofs(facts),
        },
        "audits": [_audit(report) for report in audits],
        "not_audited": not_audited(facts, audited),
        "deletion": {
            "policy": (
                "An erasure removes features, labels and id from every file at once. A keyed "
                "digest of the id stays with what was left of the budget; so do answers given, and "
                "the weights of private models."
            ),
            "retention": says["retention"],
        },
        **lists,
    }


def _audited(audits: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for report in audits:
        own = found.setdefault(report.get("audience") or "", {})
        for claim in report["claims"]:
            own[claim["attack"]] = max(claim["lower"], own.get(claim["attack"], 0.0))
    return found


def _guess(shift: float) -> float:
    """Return the share of right guesses that a Gaussian shift allows, to a tenth of a percent."""
    return round(NormalDist().cdf(shift / 2), 3)


def _audience(name: str, state: Mapping[str, Any], proved: Mapping[str, float]) -> dict[str, Any]:
    guarantee, plan, queries = state["guarantee"], state["plan"], state["queries"]
    gaussian = "Gaussian DP" in guarantee["method"]
    holds = bool(guarantee["holds"])
    success = membership_success(plan["epsilon"], plan["delta"], gaussian=gaussian)
    own = [shift for attack, shift in proved.items() if attack != "total"]
    usage, spendable = (
        state.get("usage"),
        budget(plan["epsilon"], plan["delta"] * (1 - SLACK_SHARE)),
    )
    used = usage["mean"] * spendable if usage and gaussian else None
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
        "spent": (
            "The guarantee covers all planned answers, however many are given. What single people "
            "have left is private."
        ),
        "membership_guess": {
            "from": 0.5,
            # Of somebody with as much used as public points stand for; an estimate, no bound.
            "expected": None if used is None else _guess(math.sqrt(2 * used)),
            "to_at_most": success if holds else 1.0,
            "measured": _guess(max(own)) if own else None,
        },
    }


def _proofs(facts: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the proof notes of everything that spends budgets in a store, with their digests."""
    names = [name for state in facts["audiences"].values() for name in _notes(state)]
    names += ["ledger/total.md"] if facts["total"]["capped"] else []
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
        *(["ledger/renewal.md"] if state["renewal"] else []),
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


def certificate_page(certificate: Mapping[str, Any]) -> str:
    """Return a certificate as a page of HTML: one sheet that prints, and needs no network."""
    from markupsafe import Markup

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
