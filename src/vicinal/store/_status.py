"""What may be known about a store, and what only its curator may know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from vicinal._checks import SubjectId
from vicinal.accounting import UNITS
from vicinal.engine import QUANTILES
from vicinal.errors import InvalidInput
from vicinal.ledger import EVALUATED, Analyst, Ledger, Standing
from vicinal.store._audience_state import AudienceState
from vicinal.store._evaluation import evaluations
from vicinal.store._opening import OpenStore


@dataclass(frozen=True, slots=True)
class Quota:
    """How many new answers are planned, used and left; of an audience, and of one analyst.

    Attributes
    ----------
    planned, used, left : int
        Of the audience.
    analyst_quota, analyst_left : int or None
        Of the analyst; None if there is no limit but the audience's.
    analyst_used : int
        Answers that the analyst was charged.

    Examples
    --------
    >>> from vicinal.store import Quota
    >>> Quota(planned=1000, used=120, left=880).left
    880
    """

    planned: int
    used: int
    left: int
    analyst_quota: int | None = None
    analyst_used: int = 0
    analyst_left: int | None = None


@dataclass(frozen=True, slots=True)
class Presence:
    """How many of some ids are in a store. Private.

    Attributes
    ----------
    enrolled, erased, unknown : int
        Ids that are there; that left, and whose keyed hashes are known; that never were there.
        Whoever was evaluated only never was there.

    Examples
    --------
    >>> from vicinal.store import Presence
    >>> Presence(enrolled=2, erased=1, unknown=0).erased
    1
    """

    enrolled: int
    erased: int
    unknown: int

    @classmethod
    def of(cls, standings: Iterable[int]) -> Presence:
        """Count how subjects are known, each counted once."""
        counts = Counter(standings)
        here, erased = counts.pop(Standing.ENROLLED, 0), counts.pop(Standing.ERASED, 0)
        return cls(here, erased, counts.total())


def presence_in(ledger: Ledger, subjects: Iterable[SubjectId]) -> Presence:
    """Return how many of `subjects`, each counted once, a ledger has, or had."""
    return Presence.of(ledger.standings(set(subjects)))


def remaining_quota(state: AudienceState, analyst: str | None) -> Quota:
    """Return what a plan has left, and an analyst of it."""
    if analyst is not None and not isinstance(analyst, str):
        raise InvalidInput("The 'analyst' parameter must be text.")
    entry = state.audience.analysts.get(analyst or "", Analyst(None, 0))
    remaining = None if entry.quota is None else max(0, entry.quota - entry.used)
    used = state.audience.used
    return Quota(
        state.settings.n_queries, used, state.remaining, entry.quota, entry.used, remaining
    )


def public_facts(parts: OpenStore, states: Mapping[str, AudienceState]) -> dict[str, Any]:
    """Return what everybody may know, as plain values."""
    schema = parts.schema
    history = parts.database.read("SELECT at, what, version FROM history ORDER BY clock")
    return {
        "identity": parts.folder.identity,
        "ledger": parts.database.kind,
        "classes": schema.classes,
        "target": schema.target.facts,
        "features": {"number": schema.n_features, **schema.extractor.spec()},
        "kernel": schema.kernel,
        "index": schema.index,
        "version": parts.ledger.version,
        "history": [{"at": at, "what": kind, "version": v} for at, kind, v in history],
        "audiences": {name: _audience(parts, state) for name, state in states.items()},
    }


def _audience(parts: OpenStore, state: AudienceState) -> dict[str, Any]:
    return {
        "plan": state.plan(),
        "queries": {
            k: v for k, v in asdict(remaining_quota(state, None)).items() if "analyst" not in k
        },
        "wear": _wear(state),
        "evaluations": evaluations(parts, state),
        "guarantee": state.guarantee().to_dict(),
    }


def _wear(state: AudienceState) -> dict[str, Any] | None:
    """Return how worn the budgets are as far as public points tell; None if they tell nothing."""
    if state.proxies is None or not state.audience.initial_budget:
        return None
    wear = state.proxies.budget_usage()
    quantiles = {f"{q:.0%}": used for q, used in zip(QUANTILES, wear.quantiles, strict=True)}
    return {"mean": wear.used, "quantiles": quantiles, "retired": wear.retired}


def curator_facts(parts: OpenStore) -> dict[str, Any]:
    """Return what only the curator may know: numbers of records, people and budgets."""
    departed = (
        "SELECT COUNT(DISTINCT hash) FROM departed WHERE hash NOT IN "
        "(SELECT hash FROM departed WHERE audience = ?)"
    )
    return {
        "warning": "These numbers are private. Do not log, show or publish them.",
        "records": len(parts.shard),
        "subjects": len(parts.ledger.slot_table),
        "departed": int(parts.database.read(departed, (EVALUATED,))[0][0]),
        "budgets": {
            name: _budgets(audience.account.remaining[parts.ledger.slot_table.taken])
            for name, audience in parts.ledger.audiences.items()
        },
        "analysts": {
            name: {who: asdict(analyst) for who, analyst in audience.analysts.items()}
            for name, audience in parts.ledger.audiences.items()
        },
    }


def _budgets(remaining: np.ndarray) -> dict[str, Any]:
    """Return how budgets are spread, as shares of a full one."""
    if not len(remaining):
        return {"untouched": 0, "spent": 0}
    shares = remaining / UNITS
    return {
        "untouched": int((remaining == UNITS).sum()),
        "spent": int((remaining == 0).sum()),
        "mean": float(shares.mean()),
        "quartiles": np.quantile(shares, [0.25, 0.5, 0.75]).tolist(),
    }
