"""Which trials audit a store, a plan, or the mechanisms with their default settings."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from vicinal.accounting.budget import gdp_epsilon
from vicinal.accounting.plan import Plan
from vicinal.audit._trials import NoisySGDTrial, pate_votes, private_knn
from vicinal.audit.ind_knn import NUMBERS, IndKNNAudit
from vicinal.audit.schedule import AuditTrial
from vicinal.errors import InvalidInput
from vicinal.planning.parameter_tables import PRIVATE

Trials = dict[str, Callable[[], AuditTrial]]
"""Attacks by name, made when they are wanted."""

_ANY = 2
"""Classes of an audit of vectors, which has none."""


def ind_knn_trials(audit: IndKNNAudit, releases: Sequence[str] = ("votes", "label")) -> Trials:
    votes: Trials = {
        "votes": audit.votes,
        "votes-two-labels": audit.two_labels,
        "votes-return": audit.leaves_and_returns,
    }
    labels: Trials = {"labels": audit.labels, "labels-alone": audit.labels_alone}
    return {**(votes if "votes" in releases else {}), **(labels if "label" in releases else {})}


def vector_trials(audit: IndKNNAudit, target: Mapping[str, Any]) -> Trials:
    """Return the attacks on an estimator of numbers or several labels, as `target` declares."""
    return {
        "vectors": lambda: audit.votes(target),
        "vectors-opposite": lambda: audit.opposite_vectors(target),
        "vectors-return": lambda: audit.leaves_and_returns(target),
    }


def all_trials(audit: IndKNNAudit) -> Trials:
    """Return an attack on every mechanism, with settings in which its claim is met.

    Examples
    --------
    >>> from vicinal.audit.ind_knn import IndKNNAudit
    >>> from vicinal.audit import all_trials
    >>> "private-knn" in all_trials(IndKNNAudit())
    True
    """
    delta = audit.delta
    return {
        **ind_knn_trials(audit),
        "restart": audit.restarts,
        "size": audit.size,
        "evaluation": audit.evaluation,
        "total": lambda: audit.total(audit.epsilon),
        "shards": audit.shards,
        **vector_trials(audit, NUMBERS),
        "count": audit.counts,
        "vectors-sparse": audit.sparse_vectors,
        "model": audit.model,
        "model-labels": lambda: audit.model(release="label"),
        "model-vectors": lambda: audit.model(target=NUMBERS),
        "private-knn": lambda: private_knn("votes", delta=delta),
        "private-knn-all": lambda: private_knn("all", delta=delta),
        "private-knn-labels": lambda: private_knn("labels", delta=delta),
        "private-knn-plan": lambda: private_knn("plan", delta=delta),
        "screening": lambda: private_knn("screening", delta=delta),
        "private-knn-screened": lambda: private_knn("screened", delta=delta),
        "pate": lambda: pate_votes(delta),
        "pate-plan": lambda: pate_votes(delta, beyond=True),
        "noisy-sgd": lambda: NoisySGDTrial(delta=delta),
    }


def plan_trials(plan: Mapping[str, Any]) -> Trials:
    """Return attacks on the releases of a plan, as `vicinal account` reads it.

    A plan of thousands of releases is attacked release by release, at its own sampling rate, with
    less noise and few answers: what a bound can be measured at in minutes. The code is the same.
    Raises InvalidInput if the plan is none, or no release of it has worlds to be audited in.
    """
    checked = Plan.from_dict(plan)
    trials: Trials = {}
    for step in checked.steps:
        trials |= _trials_of(step.release.kind, step.release.values, checked.delta)
    if not trials:
        kinds = ", ".join(sorted({step.release.kind for step in checked.steps}))
        raise InvalidInput(f"Nothing in this plan can be audited: there are no attacks on {kinds}.")
    return trials


def _trials_of(kind: str, values: Mapping[str, Any], delta: float) -> Trials:
    gamma = float(values.get("gamma", 1.0))
    label = values.get("release") == "label"
    if kind == "ind_knn":
        stated = values.get("epsilon")
        mu = (2 * values.get("B", 0)) ** 0.5
        epsilon = float(stated) if stated is not None else gdp_epsilon(mu, delta)
        audit = IndKNNAudit(epsilon=epsilon, delta=float(values.get("delta") or delta))
        release = "label" if label else "votes"
        return {**ind_knn_trials(audit, (release,)), **_model(audit, release, values)}
    if kind == "screening":
        return {"screening": lambda: private_knn("screening", gamma, delta)}
    if kind == "noisy_max":
        attack = "labels" if label else "all" if gamma == 1 else "votes"
        name = "private-knn" if attack == "votes" else f"private-knn-{attack}"
        return {name: lambda: private_knn(attack, gamma, delta)}
    if kind in ("gaussian", "training"):
        return {"noisy-sgd": lambda: NoisySGDTrial(gamma, delta=delta)}
    if kind in ("gnmax", "confident_gnmax"):
        return {"pate": lambda: pate_votes(delta)}
    return {}


def store_trials(facts: Mapping[str, Any], audience: str = "default") -> Trials:
    """Return attacks on a store's estimator, from what everybody may know of it.

    `facts`: as of ``Store.facts()``. Raises InvalidInput if there is no such audience.
    """
    audit, release, target = stored_plan(facts, audience)
    state, label = facts["audiences"][audience], release == "label"
    plan = state["plan"]
    trials = ind_knn_trials(audit, (release,)) if target is None else vector_trials(audit, target)
    further: Trials = {"restart": lambda: audit.restarts(label=label, target=target)}
    if plan["neighbor_count"] == PRIVATE:
        further["count"] = audit.counts
    if plan.get("size_estimated"):
        further["size"] = lambda: audit.size(label=label, target=target)
    if state.get("evaluations"):
        further["evaluation"] = lambda: audit.evaluation(label=label, target=target)
    if (total := facts.get("total", {})).get("capped"):
        further["total"] = lambda: audit.total(total["epsilon"])
    return {**trials, **further, **_model(audit, release, plan, target)}


def stored_plan(
    facts: Mapping[str, Any], audience: str
) -> tuple[IndKNNAudit, str, dict[str, Any] | None]:
    """Return a store's estimator, what leaves of it, and what records carry if no classes."""
    if audience not in facts["audiences"]:
        raise InvalidInput("The 'audience' parameter must name an audience of the store.")
    plan = facts["audiences"][audience]["plan"]
    further = {"kernel": facts["kernel"], "accounting": plan["accounting"]}
    if facts["kernel"] == "rbf":
        further |= {"norm_bound": 1.5, "bandwidth": 1.0}
    classes = len(facts["classes"]) or _ANY
    through = "shards" if "shards" in facts else "store"
    audit = IndKNNAudit(classes, plan["epsilon"], plan["delta"], further=further, through=through)
    if facts["classes"]:
        return audit, plan["release"], None
    return audit, "votes", {k: v for k, v in facts["target"].items() if k != "kind"}


def _model(
    audit: IndKNNAudit,
    release: str,
    values: Mapping[str, Any],
    target: Mapping[str, Any] | None = None,
) -> Trials:
    share, refreshes = values.get("model_share"), int(values.get("model_refreshes", 0))
    return {"model": lambda: audit.model(float(share), refreshes, release, target)} if share else {}


def not_audited(facts: Mapping[str, Any], audited: Mapping[str, Collection[str]]) -> list[str]:
    """Return what a store's audiences are answered by and no attack was carried out on.

    `facts`: as of ``Store.facts()``. `audited`: attacks that were carried out, of each audience.
    """
    return [
        f"{attack} ({audience})"
        for audience in facts["audiences"]
        for attack in store_trials(facts, audience)
        if attack not in audited.get(audience, ())
    ]
