"""Catalogue of attacks: those for a store, for a plan, and for every mechanism.

Attacks are returned as functions that create them, by name. Arguments: `audit`, public settings of
the Ind-KNN estimator that is attacked; `target_spec`, estimator parameters that declare vector
targets, None if records have classes; `facts`, public facts of a store, see ``Store.facts()``.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from vicinal.accounting.budget import gdp_epsilon
from vicinal.accounting.plan import Plan
from vicinal.audit._attacks import NoisySGDAttack, create_pate_attack, create_private_knn_attack
from vicinal.audit.ind_knn import NUMBER_TARGET_SPEC, IndKNNAudit, TargetSpec
from vicinal.audit.schedule import Attack
from vicinal.errors import InvalidInput
from vicinal.planning.parameter_tables import PRIVATE

AttackFactories = dict[str, Callable[[], Attack]]
"""Functions that create an attack, by its name. Creating an attack runs its mechanism."""

_PLACEHOLDER_N_CLASSES = 2
"""Number of classes in the settings of an audit whose records have vectors instead of classes."""


def list_ind_knn_attacks(
    audit: IndKNNAudit, releases: Sequence[str] = ("votes", "label")
) -> AttackFactories:
    """Return the attacks on an Ind-KNN classifier.

    `releases`: the kinds of released values to attack, of "votes" and "label".
    """
    attacks: AttackFactories = {}
    if "votes" in releases:
        attacks["votes"] = audit.build_votes_attack
        attacks["votes-two-labels"] = audit.build_two_class_attack
        attacks["votes-return"] = audit.build_reenrolment_attack
    if "label" in releases:
        attacks["labels"] = audit.build_labels_attack
        attacks["labels-alone"] = audit.build_isolated_labels_attack
    return attacks


def list_vector_attacks(audit: IndKNNAudit, target_spec: TargetSpec) -> AttackFactories:
    """Return the attacks on an Ind-KNN estimator for vector targets: numbers or sets of labels."""
    return {
        "vectors": lambda: audit.build_votes_attack(target_spec),
        "vectors-opposite": lambda: audit.build_opposite_vectors_attack(target_spec),
        "vectors-return": lambda: audit.build_reenrolment_attack(target_spec),
    }


def list_all_attacks(audit: IndKNNAudit) -> AttackFactories:
    """Return attacks on every mechanism, with settings in which the claim is tight.

    `audit`: public settings of the Ind-KNN estimators; the other mechanisms use its delta.

    Examples
    --------
    >>> from vicinal.audit import list_all_attacks
    >>> from vicinal.audit.ind_knn import IndKNNAudit
    >>> "private-knn" in list_all_attacks(IndKNNAudit())
    True
    """
    delta = audit.delta
    return {
        **list_ind_knn_attacks(audit),
        "restart": audit.build_restart_attack,
        "size": audit.build_size_attack,
        "evaluation": audit.build_evaluation_attack,
        "total": lambda: audit.build_all_audiences_attack(audit.epsilon),
        "shards": audit.build_shards_attack,
        **list_vector_attacks(audit, NUMBER_TARGET_SPEC),
        "count": audit.build_count_attack,
        # Sparse vectors: at most 2 of 50 labels.
        "vectors-sparse": lambda: audit.build_reenrolment_attack({"labels": range(50), "tau": 2.0}),
        "model": audit.build_model_attack,
        "model-labels": lambda: audit.build_model_attack(release="label"),
        "model-vectors": lambda: audit.build_model_attack(target_spec=NUMBER_TARGET_SPEC),
        "private-knn": lambda: create_private_knn_attack("votes", delta=delta),
        "private-knn-all": lambda: create_private_knn_attack("all", delta=delta),
        "private-knn-labels": lambda: create_private_knn_attack("labels", delta=delta),
        "private-knn-plan": lambda: create_private_knn_attack("over_plan", delta=delta),
        "screening": lambda: create_private_knn_attack("screening", delta=delta),
        "private-knn-screened": lambda: create_private_knn_attack("screening+votes", delta=delta),
        "pate": lambda: create_pate_attack(delta),
        "pate-plan": lambda: create_pate_attack(delta, exceeds_plan=True),
        "noisy-sgd": lambda: NoisySGDAttack(delta=delta),
    }


def list_plan_attacks(plan: Mapping[str, Any]) -> AttackFactories:
    """Return attacks on the releases of a plan.

    Each kind of release is attacked at the sampling rate of the plan, but with less noise and fewer
    queries than planned; otherwise a useful bound would take far too long. The code is the same.

    - `plan`: the plan as a JSON object, as `vicinal account` reads it.

    Raises
    ------
    InvalidInput
        If the plan is invalid, or there is no attack on any of its releases.
    """
    checked = Plan.from_dict(plan)
    attacks: AttackFactories = {}
    for step in checked.steps:
        attacks |= _list_release_attacks(step.release.kind, step.release.values, checked.delta)
    if not attacks:
        kinds = ", ".join(sorted({step.release.kind for step in checked.steps}))
        raise InvalidInput(f"Nothing in this plan can be audited: there are no attacks on {kinds}.")
    return attacks


def _list_release_attacks(kind: str, values: Mapping[str, Any], delta: float) -> AttackFactories:
    """Return attacks on one release of a plan; empty if there are none for its kind.

    `kind`: field "kind" of the release in the plan's JSON object, such as "ind_knn". `values`: its
    further fields. `delta`: delta of the plan.
    """
    gamma = float(values.get("gamma", 1.0))
    is_label = values.get("release") == "label"
    if kind == "ind_knn":
        mu = (2 * values.get("B", 0)) ** 0.5
        stated_epsilon = values.get("epsilon")
        epsilon = gdp_epsilon(mu, delta) if stated_epsilon is None else float(stated_epsilon)
        audit = IndKNNAudit(epsilon=epsilon, delta=float(values.get("delta") or delta))
        release = "label" if is_label else "votes"
        return {
            **list_ind_knn_attacks(audit, (release,)),
            **_list_model_attacks(audit, release, values),
        }
    if kind == "screening":
        return {"screening": lambda: create_private_knn_attack("screening", gamma, delta)}
    if kind == "noisy_max":
        if is_label:
            return {"private-knn-labels": lambda: create_private_knn_attack("labels", gamma, delta)}
        if gamma == 1:
            return {"private-knn-all": lambda: create_private_knn_attack("all", gamma, delta)}
        return {"private-knn": lambda: create_private_knn_attack("votes", gamma, delta)}
    if kind in ("gaussian", "training"):
        return {"noisy-sgd": lambda: NoisySGDAttack(gamma, delta=delta)}
    if kind in ("gnmax", "confident_gnmax"):
        return {"pate": lambda: create_pate_attack(delta)}
    return {}


def list_store_attacks(facts: Mapping[str, Any], audience: str = "default") -> AttackFactories:
    """Return attacks on an estimator with the public settings of a store's audience.

    - `audience`: name of the audience whose plan is attacked.

    Raises
    ------
    InvalidInput
        If the store has no such audience.
    """
    audit, release, target_spec = read_audit_settings(facts, audience)
    state = facts["audiences"][audience]
    plan = state["plan"]
    if target_spec is None:
        attacks = list_ind_knn_attacks(audit, (release,))
    else:
        attacks = list_vector_attacks(audit, target_spec)
    attacks["restart"] = lambda: audit.build_restart_attack(release, target_spec)
    if plan["neighbor_count"] == PRIVATE:
        attacks["count"] = audit.build_count_attack
    if plan.get("size_estimated"):
        attacks["size"] = lambda: audit.build_size_attack(release, target_spec)
    if state.get("evaluations"):
        attacks["evaluation"] = lambda: audit.build_evaluation_attack(release, target_spec)
    total = facts.get("total", {})
    if total.get("capped"):
        attacks["total"] = lambda: audit.build_all_audiences_attack(total["epsilon"])
    return {**attacks, **_list_model_attacks(audit, release, plan, target_spec)}


def read_audit_settings(
    facts: Mapping[str, Any], audience: str
) -> tuple[IndKNNAudit, str, dict[str, Any] | None]:
    """Return the audited settings, released values and target_spec of an audience's estimator.

    The released values are "votes" or "label". `audience`: name of the audience.
    """
    if audience not in facts["audiences"]:
        raise InvalidInput("The 'audience' parameter must name an audience of the store.")
    plan = facts["audiences"][audience]["plan"]
    further = {"kernel": facts["kernel"], "accounting": plan["accounting"]}
    if facts["kernel"] == "rbf":
        further |= {"norm_bound": 1.5, "bandwidth": 1.0}
    n_classes = len(facts["classes"]) or _PLACEHOLDER_N_CLASSES
    interface = "shards" if "shards" in facts else "store"
    audit = IndKNNAudit(
        n_classes, plan["epsilon"], plan["delta"], further_parameters=further, interface=interface
    )
    if facts["classes"]:
        return audit, plan["release"], None
    target_spec = {name: value for name, value in facts["target"].items() if name != "kind"}
    return audit, "votes", target_spec


def _list_model_attacks(
    audit: IndKNNAudit, release: str, plan: Mapping[str, Any], target_spec: TargetSpec | None = None
) -> AttackFactories:
    """Return the attack on a private model; empty without a planned model.

    `release`: released values, "votes" or "label". `plan`: JSON object with the fields
    "model_share" and "model_refreshes", if there is a model.
    """
    share = plan.get("model_share")
    n_refreshes = int(plan.get("model_refreshes", 0))
    if not share:
        return {}
    return {
        "model": lambda: audit.build_model_attack(float(share), n_refreshes, release, target_spec)
    }


def list_unaudited_attacks(
    facts: Mapping[str, Any], audited: Mapping[str, Collection[str]]
) -> list[str]:
    """Return the names of applicable attacks that were not run, as "attack (audience)".

    `audited`: names of the attacks that were run, by audience.
    """
    return [
        f"{attack} ({audience})"
        for audience in facts["audiences"]
        for attack in list_store_attacks(facts, audience)
        if attack not in audited.get(audience, ())
    ]


def list_unaudited_releases(plan: Mapping[str, Any], audited: Collection[str]) -> list[str]:
    """Return the applicable attacks on a plan that were not run, and the kinds without an attack.

    - `plan`: the plan as a JSON object.
    - `audited`: names of the attacks that were run.
    """
    checked = Plan.from_dict(plan)
    unaudited: dict[str, None] = {}
    for step in checked.steps:
        kind = step.release.kind
        attacks = _list_release_attacks(kind, step.release.values, checked.delta)
        unaudited |= dict.fromkeys(name for name in attacks or [kind] if name not in audited)
    return list(unaudited)
