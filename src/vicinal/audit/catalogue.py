"""Catalogue of attacks: those for a store, for a plan, and for every mechanism."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from vicinal.accounting.budget import gdp_epsilon
from vicinal.accounting.plan import Plan
from vicinal.audit._trials import NoisySGDTrial, attack_pate, attack_private_knn
from vicinal.audit.ind_knn import NUMBER_TARGET, IndKNNAudit
from vicinal.audit.schedule import AuditTrial
from vicinal.errors import InvalidInput
from vicinal.planning.parameter_tables import PRIVATE

Trials = dict[str, Callable[[], AuditTrial]]
"""Functions that create attacks, by the name of the attack. Creating one runs its mechanism."""

_UNUSED_CLASSES = 2
"""Number of classes in the settings of an audit whose records have vectors instead of classes."""


def ind_knn_trials(audit: IndKNNAudit, releases: Sequence[str] = ("votes", "label")) -> Trials:
    """Return the attacks on an Ind-KNN classifier.

    `releases`: the kinds of released values to attack, of "votes" and "label".
    """
    votes: Trials = {
        "votes": audit.votes,
        "votes-two-labels": audit.two_labels,
        "votes-return": audit.leaves_and_returns,
    }
    labels: Trials = {"labels": audit.labels, "labels-alone": audit.attack_labels_alone}
    return {**(votes if "votes" in releases else {}), **(labels if "label" in releases else {})}


def vector_trials(audit: IndKNNAudit, target: Mapping[str, Any]) -> Trials:
    """Return the attacks on an Ind-KNN estimator whose records have vectors instead of classes.

    `target`: the estimator parameters that declare them, for numbers or sets of labels.
    """
    return {
        "vectors": lambda: audit.votes(target),
        "vectors-opposite": lambda: audit.attack_opposite_vectors(target),
        "vectors-return": lambda: audit.leaves_and_returns(target),
    }


def all_trials(audit: IndKNNAudit) -> Trials:
    """Return attacks on every mechanism, with settings in which the claim is tight.

    Examples
    --------
    >>> from vicinal.audit import all_trials
    >>> from vicinal.audit.ind_knn import IndKNNAudit
    >>> "private-knn" in all_trials(IndKNNAudit())
    True
    """
    delta = audit.delta
    return {
        **ind_knn_trials(audit),
        "restart": audit.attack_restarts,
        "size": audit.attack_size,
        "evaluation": audit.attack_evaluation,
        "total": lambda: audit.attack_total(audit.epsilon),
        "shards": audit.attack_shards,
        **vector_trials(audit, NUMBER_TARGET),
        "count": audit.counts,
        "vectors-sparse": audit.attack_sparse_vectors,
        "model": audit.attack_model,
        "model-labels": lambda: audit.attack_model(release="label"),
        "model-vectors": lambda: audit.attack_model(target=NUMBER_TARGET),
        "private-knn": lambda: attack_private_knn("votes", delta=delta),
        "private-knn-all": lambda: attack_private_knn("all", delta=delta),
        "private-knn-labels": lambda: attack_private_knn("labels", delta=delta),
        "private-knn-plan": lambda: attack_private_knn("plan", delta=delta),
        "screening": lambda: attack_private_knn("screening", delta=delta),
        "private-knn-screened": lambda: attack_private_knn("screened", delta=delta),
        "pate": lambda: attack_pate(delta),
        "pate-plan": lambda: attack_pate(delta, exceeds_plan=True),
        "noisy-sgd": lambda: NoisySGDTrial(delta=delta),
    }


def plan_trials(plan: Mapping[str, Any]) -> Trials:
    """Return attacks on the releases of a plan.

    Each kind of release is attacked at the sampling rate of the plan, but with less noise and fewer
    queries than planned. Otherwise a useful lower bound would take far more than minutes. The
    attacked code is the same.

    - `plan`: the plan as a JSON object, as `vicinal account` reads it.

    Raises
    ------
    InvalidInput
        If the plan is invalid, or there is no attack on any of its releases.
    """
    checked = Plan.from_dict(plan)
    trials: Trials = {}
    for step in checked.steps:
        trials |= _list_release_trials(step.release.kind, step.release.values, checked.delta)
    if not trials:
        kinds = ", ".join(sorted({step.release.kind for step in checked.steps}))
        raise InvalidInput(f"Nothing in this plan can be audited: there are no attacks on {kinds}.")
    return trials


def _list_release_trials(kind: str, values: Mapping[str, Any], delta: float) -> Trials:
    """Return attacks on one release of a plan, given as in its JSON; empty if there are none."""
    gamma = float(values.get("gamma", 1.0))
    is_label = values.get("release") == "label"
    if kind == "ind_knn":
        mu = (2 * values.get("B", 0)) ** 0.5
        stated_epsilon = values.get("epsilon")
        epsilon = gdp_epsilon(mu, delta) if stated_epsilon is None else float(stated_epsilon)
        audit = IndKNNAudit(epsilon=epsilon, delta=float(values.get("delta") or delta))
        release = "label" if is_label else "votes"
        return {**ind_knn_trials(audit, (release,)), **_list_model_trials(audit, release, values)}
    if kind == "screening":
        return {"screening": lambda: attack_private_knn("screening", gamma, delta)}
    if kind == "noisy_max":
        if is_label:
            return {"private-knn-labels": lambda: attack_private_knn("labels", gamma, delta)}
        if gamma == 1:
            return {"private-knn-all": lambda: attack_private_knn("all", gamma, delta)}
        return {"private-knn": lambda: attack_private_knn("votes", gamma, delta)}
    if kind in ("gaussian", "training"):
        return {"noisy-sgd": lambda: NoisySGDTrial(gamma, delta=delta)}
    if kind in ("gnmax", "confident_gnmax"):
        return {"pate": lambda: attack_pate(delta)}
    return {}


def store_trials(facts: Mapping[str, Any], audience: str = "default") -> Trials:
    """Return attacks on an estimator with the public settings of a store.

    - `facts`: public facts of the store, as ``Store.facts()`` returns them.
    - `audience`: the audience whose plan is attacked.

    Raises
    ------
    InvalidInput
        If the store has no such audience.
    """
    audit, release, target = stored_plan(facts, audience)
    state = facts["audiences"][audience]
    label = release == "label"
    plan = state["plan"]
    trials = ind_knn_trials(audit, (release,)) if target is None else vector_trials(audit, target)
    trials["restart"] = lambda: audit.attack_restarts(label=label, target=target)
    if plan["neighbor_count"] == PRIVATE:
        trials["count"] = audit.counts
    if plan.get("size_estimated"):
        trials["size"] = lambda: audit.attack_size(label=label, target=target)
    if state.get("evaluations"):
        trials["evaluation"] = lambda: audit.attack_evaluation(label=label, target=target)
    total = facts.get("total", {})
    if total.get("capped"):
        trials["total"] = lambda: audit.attack_total(total["epsilon"])
    return {**trials, **_list_model_trials(audit, release, plan, target)}


def stored_plan(
    facts: Mapping[str, Any], audience: str
) -> tuple[IndKNNAudit, str, dict[str, Any] | None]:
    """Return the public settings of an audience's estimator, see :func:`store_trials`.

    The three values are the settings; the released values, "votes" or "label"; and the estimator
    parameters that declare vector targets, or None for classes.
    """
    if audience not in facts["audiences"]:
        raise InvalidInput("The 'audience' parameter must name an audience of the store.")
    plan = facts["audiences"][audience]["plan"]
    further = {"kernel": facts["kernel"], "accounting": plan["accounting"]}
    if facts["kernel"] == "rbf":
        further |= {"norm_bound": 1.5, "bandwidth": 1.0}
    n_classes = len(facts["classes"]) or _UNUSED_CLASSES
    interface = "shards" if "shards" in facts else "store"
    audit = IndKNNAudit(
        n_classes, plan["epsilon"], plan["delta"], further=further, interface=interface
    )
    if facts["classes"]:
        return audit, plan["release"], None
    target = {name: value for name, value in facts["target"].items() if name != "kind"}
    return audit, "votes", target


def _list_model_trials(
    audit: IndKNNAudit,
    release: str,
    values: Mapping[str, Any],
    target: Mapping[str, Any] | None = None,
) -> Trials:
    """Return the attack on a private model; empty if no budget is planned for a model.

    `values` is the plan; `release` and `target` are those of :class:`IndKNNAudit`.
    """
    share = values.get("model_share")
    n_refreshes = int(values.get("model_refreshes", 0))
    if not share:
        return {}
    return {"model": lambda: audit.attack_model(float(share), n_refreshes, release, target)}


def not_audited(facts: Mapping[str, Any], audited: Mapping[str, Collection[str]]) -> list[str]:
    """Return the applicable attacks that were not carried out, as "attack (audience)".

    `facts`: public facts, as ``Store.facts()`` returns them. `audited`: names of the attacks that
    were carried out, by audience.
    """
    return [
        f"{attack} ({audience})"
        for audience in facts["audiences"]
        for attack in store_trials(facts, audience)
        if attack not in audited.get(audience, ())
    ]
