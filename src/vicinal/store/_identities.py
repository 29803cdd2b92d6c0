"""Ids of subjects in their one form: stores of earlier versions, which knew several, get it here.

Earlier versions kept 5 and "5", or two Unicode spellings of a name, as two people with two budgets.
A store without such twins is respelled when it is opened. One with twins is refused, and
:mod:`vicinal.store._subject_merging` merges them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vicinal import _checks
from vicinal._checks import SubjectId
from vicinal.errors import PrivacyRefused
from vicinal.ledger._chain import attach
from vicinal.ledger._database import Database
from vicinal.ledger._departed import SPELLINGS
from vicinal.ledger._id_encoding import earlier_spellings, framed, keyed_hash, unframed
from vicinal.ledger._subject_pages import read_framed, write_subjects

FORM = "subject_form"
"""Fact of a ledger: whether its ids have their one form."""

MERGING = "merging"
"""Where a ledger keeps the records of subjects that are being merged."""

ONE_FORM_EVERYWHERE = "cluster_form"
"""Fact of a coordinator's ledger: "1" once no two shards have spellings of one id."""

ONE_FORM = "1"
_OLD_PAGES = "pages"

_FAULTY = {"Cc", "Cn", "Cs", "Zl", "Zp"}
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True, slots=True)
class Spellings:
    """The ids of a ledger, as they are and as they must be. Private.

    `one_form`: the one form of every enrolled id. `twins`: by one form: enrolled ids that are one
    person with another id, enrolled or gone, or that no table and no command can name any more.
    """

    one_form: dict[SubjectId, SubjectId]
    twins: dict[SubjectId, list[SubjectId]]


def repaired(subject: SubjectId) -> SubjectId:
    """Return the one form of an id that may hold what ids may hold no longer.

    Blanks around it and invisible characters go; other faulty characters become U+FFFD.
    """
    if _checks.id_fault(subject) is None:
        return _checks.subject_id("subjects", subject)
    usable = "".join(_usable(character) for character in str(subject).strip()).strip()
    if usable and _checks.id_fault(usable) is not None:
        usable = usable.split(".")[0]  # a whole number written with a decimal point
    return _checks.subject_id("subjects", usable or _REPLACEMENT)


def _usable(character: str) -> str:
    kind = unicodedata.category(character)
    if kind == "Cf":
        return ""
    return _REPLACEMENT if kind in _FAULTY else character


def spellings(enrolled: Iterable[SubjectId], departed: set[bytes], key: bytes) -> Spellings:
    """Return what ids must become; `departed` holds the keyed hashes of those who left."""
    one_form = {subject: repaired(subject) for subject in enrolled}
    groups: dict[SubjectId, list[SubjectId]] = {}
    for subject, name in one_form.items():
        groups.setdefault(name, []).append(subject)
    twins = {
        name: group
        for name, group in groups.items()
        if len(group) > 1
        or _checks.id_fault(group[0]) is not None
        or (departed and _left_too(name, departed, key))
    }
    return Spellings(one_form, twins)


def _left_too(name: SubjectId, departed: set[bytes], key: bytes) -> bool:
    every = [name, *earlier_spellings(name)]
    return any(keyed_hash(key, spelling) in departed for spelling in every)


def spellings_of(database: Database, key: bytes) -> Spellings:
    """Return the spellings of a ledger."""
    ids = (unframed(stored) for _, stored in sorted(read_framed(database)))
    departed = {hashed for (hashed,) in database.execute("SELECT DISTINCT hash FROM departed")}
    return spellings(ids, departed, key)


def refuse_duplicate_ids(database: Database, key: bytes) -> None:
    """Raise PrivacyRefused if one person has two budgets; nothing is written."""
    if not database.has_table("meta") or database.get(FORM) == ONE_FORM:
        return
    if database.get(MERGING) or spellings_of(database, key).twins:
        raise PrivacyRefused(
            "The store holds ids that are spellings of one id, so that one person has two budgets, "
            "or ids that nothing can name any more. Merge them with: vicinal merge-subjects STORE"
        )


def unify_ids(database: Database, key: bytes) -> bool:
    """Give all ids their one form, durably, unless there are twins; tell whether ids changed."""
    form = database.get(FORM)
    if form == ONE_FORM:
        return False
    if form != _OLD_PAGES:
        attach(database, key)
        variants = spellings_of(database, key)
        if variants.twins or database.get(MERGING):
            return False
        with database.transaction():
            _respell(database, variants)
    database.scrub()  # free pages hold the earlier spellings
    with database.transaction():
        database.put(FORM, ONE_FORM)
    return True


def _respell(database: Database, variants: Spellings) -> None:
    entries = list(read_framed(database))
    new = {slot: framed(variants.one_form[unframed(stored)]) for slot, stored in entries}
    write_subjects(database, {slot: new[slot] for slot, stored in entries if new[slot] != stored})
    if database.execute("SELECT hash FROM departed LIMIT 1"):
        database.put(SPELLINGS, "1")
    database.put(FORM, _OLD_PAGES)


def hashes_of(spelled: Sequence[SubjectId], name: SubjectId, key: bytes) -> list[bytes]:
    """Return the keyed hashes of a name and of all spellings of it, that of the name first."""
    every = dict.fromkeys([name, *spelled, *earlier_spellings(name)])
    return list(dict.fromkeys(keyed_hash(key, spelling) for spelling in every))
