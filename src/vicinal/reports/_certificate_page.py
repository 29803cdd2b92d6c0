"""The page of a certificate: one sheet that prints, and needs no network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vicinal.reports._html import Markup, document, table, tag

_LISTS = (("nist_sp_800_226", "NIST SP 800-226"), ("owasp_aisvs", "OWASP AISVS 1.0"))
_TITLE = "Certificate of a private prediction store"


def certificate_page(certificate: Mapping[str, Any]) -> str:
    """Return a certificate as a page of HTML; see :func:`deployment_certificate`."""
    audiences = [_audience(state) for state in certificate["audiences"]]
    return document(
        _TITLE,
        tag("header", tag("h1", _TITLE), tag("p", _lead(certificate), class_="lead")),
        tag("main", *audiences, *_sections(certificate)),
    )


def _lead(content: Mapping[str, Any]) -> str:
    return (
        f"Store {content['store']}, {content['at']}. "
        f"Responsible: {content['parties']['controller']}. "
        f"Purpose: {content['parties']['purpose']}. Protected unit: {content['unit']}."
    )


def _audience(state: Mapping[str, Any]) -> Markup:
    heading = tag("h2", f"Audience {state['name']}")
    if not state["holds"]:
        return tag("section", heading, tag("p", "There is no guarantee."))
    guess = state["membership_guess"]["to_at_most"]
    words = (
        "Somebody who guesses whether a given person's records are in the data, knows all other "
        f"records and sees every answer, is right at most {100 * guess:.1f} % of the time. Without "
        "any answer it is 50 %."
    )
    answers = state["answers"]
    rows = [
        ("epsilon", repr(state["epsilon"])),
        ("delta", repr(state["delta"])),
        ("what leaves", state["release"]),
        ("data sets compared", state["neighbouring"]),
        ("accounting", state["accounting"]),
        ("answers", f"{answers['given']} of {answers['planned']} given. {state['spent']}"),
    ]
    parts = [_listed(name.capitalize(), state[name]) for name in ("protected", "public")]
    return tag("section", heading, tag("p", words), table(("what", "value"), rows), *parts)


def _sections(content: Mapping[str, Any]) -> list[Markup]:
    assumed = list(dict.fromkeys(w for a in content["audiences"] for w in a["assumptions"]))
    mechanism = content["mechanism"]
    name = f"{mechanism['name']}; {mechanism['package']} {mechanism['version']}."
    proofs = [(n["note"], tag("span", n["sha256"], class_="digest")) for n in mechanism["proofs"]]
    return [
        _listed(f"Assumed. Vouched for by: {content['vouched_by']}", assumed),
        tag("section", tag("h2", "Mechanism"), tag("p", name),
            table(("proof note", "sha256"), proofs)),
        _audits(content["audits"]),
        _listed("Accuracy", [content["accuracy"]]),
        _listed("Deletion", [*content["deletion"].values()]),
        _listed("What this does not mean", content["does_not_mean"]),
        *(_compared(content, name, title) for name, title in _LISTS),
    ]  # fmt: skip


def _compared(content: Mapping[str, Any], name: str, title: str) -> Markup:
    rows = [(row["item"], row["status"], row["here"]) for row in content[name]]
    words = tag("p", f"Compared: {content['compared'][name]}.")
    return tag("section", tag("h2", title), words, table(("item", "covered", "here"), rows))


def _audits(audits: Iterable[Mapping[str, Any]]) -> Markup:
    rows = [
        (
            f"{claim['mechanism']}: {claim['world']}", f"{report['at']}, {report['version']}",
            f"{claim['lower']:.3f} of {claim['claim']:.3f}",
            _figure(claim["would_have_seen_epsilon"]),
            f"{claim['controls_caught']} of {claim['controls']}",
        )
        for report in audits
        for claim in report["claims"]
    ]  # fmt: skip
    heading = tag("h2", "Audits")
    if not rows:
        return tag("section", heading, tag("p", "None is on file. Run: vicinal audit"))
    header = ("attack", "when", "mu proved, of claimed", "epsilon seen from", "broken caught")
    return tag("section", heading, table(header, rows))


def _figure(value: float | None) -> str:
    return "not stated" if value is None else f"{value:.2f}"


def _listed(heading: str, words: Iterable[str]) -> Markup:
    return tag("section", tag("h2", heading), tag("ul", *(tag("li", word) for word in words)))
