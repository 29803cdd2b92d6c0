"""A private model played through on labelled public points, as plans are; seeded.

Every point stands for n / m records. The points are halved: each half is scored by a model trained
on the other, with the noise that n records would get, so that no point is judged by a model that
saw its label. What training would have cost a point is what it costs there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vicinal._arrays import Bools, Floats, Floats32, Places
from vicinal.linear import (
    Descent,
    LinearModel,
    ModelFeatures,
    ModelRule,
    PrivateModel,
    has_components,
    release_cost,
    scores_of,
    softmax,
    training_plan,
)
from vicinal.mechanisms import whole_weights
from vicinal.neighbours import Cosine, IntegerMatrix, Reference, int8_precision
from vicinal.planning._plan import IndKNNPlan


@dataclass(frozen=True, slots=True, eq=False)
class PlayedModel:
    """What models of public points say of them, and the points in their metric.

    - `reference`: the points in the learnt metric.
    - `prior`, float64 (m, c): what joins the votes on each point, in units of their noise.
    - `sure`, bool (m,): where the model would answer alone.
    - `budget_share`: share of a budget that training leaves around points that are asked about.
    - `rule`: what neighbours make of the model.
    """

    reference: Reference
    prior: Floats
    sure: Bools
    budget_share: float
    rule: ModelRule


def played_model(points: IntegerMatrix, labels: Places, plan: IndKNNPlan, seed: int) -> PlayedModel:
    """Return what a model would make of labelled public points (m, d), were they n records.

    - `points`, array (m, d): public integer points.
    - `labels`, int64 (m,): their classes.
    - `plan`: with a share for the model.
    - `seed`: of the noise, and of the halves.
    """
    generator = np.random.default_rng(seed)  # noqa: TID251 (noise on public points only)
    numbers = np.asarray(points, dtype=np.float32)
    plan = plan.changed(n_features=numbers.shape[1], n_public=len(numbers)).replanned()
    n_classes = plan.target.n_coordinates
    many = has_components(numbers.shape[1], len(numbers), plan.size)
    features = ModelFeatures.planned(numbers.shape[1], numbers if many else None)
    first = np.isin(np.arange(len(points)), generator.permutation(len(points))[::2])
    rows = np.empty((len(points), points.shape[1] + n_classes), dtype=np.float32)
    prior, sure = np.empty((len(points), n_classes)), np.empty(len(points), dtype=np.bool_)
    uses = []
    for part in (first, ~first):
        model = _trained(numbers[~part], labels[~part], numbers[part], features, plan, generator)
        rows[part], prior[part] = model.features(numbers[part]), model.prior(numbers[part])
        sure[part] = model.sure(prior[part])
        uses.append(model.typical_use)
    kernel, left = Cosine(int8_precision(rows)), 1.0 - float(np.mean(uses))
    reference = Reference(kernel, kernel.encode(rows))
    return PlayedModel(reference, prior, sure, left, plan.model_rule)


def _trained(
    X: Floats32,
    labels: Places,
    others: Floats32,
    features: ModelFeatures,
    plan: IndKNNPlan,
    generator: np.random.Generator,  # noqa: TID251 (its type)
) -> PrivateModel:
    """Return a model of `X`, calibrated on `others`: the descent of ``train``, in floats."""
    training, followed = plan.training, training_plan(features)
    rows, known = (features.rows(each) for each in (X, others))
    unit, probes = rows.astype(np.float64) / features.unit, known.astype(np.float64)
    sigma = followed.noise(training.share * training.budget)
    noise = sigma * followed.clip / training.n_records
    lengths = np.square(probes).sum(axis=1) / (features.unit * followed.clip) ** 2
    descent = Descent(features, training.class_shares, known, noise)
    used = np.zeros(len(probes))
    for _ in range(followed.steps):
        weights = descent.weights
        used += release_cost(
            scores_of(probes, whole_weights(weights), features.unit), lengths, sigma
        )
        gradient = _mean_gradient(unit, labels, weights, followed.clip)
        descent.step(gradient + generator.normal(scale=noise, size=weights.shape))
    weights = descent.finished()
    used = np.minimum(used / training.budget, training.share)
    model = LinearModel(whole_weights(weights), features.kernel)
    return PrivateModel(model, others, used, training.class_shares, training.rule)


def _mean_gradient(rows: Floats, labels: Places, weights: Floats, clip: float) -> Floats:
    """Return the mean of gradients of norm `clip` at most, (D, c)."""
    away = softmax(rows @ weights)
    away[np.arange(len(labels)), labels] -= 1.0
    norms = np.linalg.norm(rows, axis=1) * np.linalg.norm(away, axis=1)
    away *= np.minimum(1.0, clip / np.maximum(norms, 1e-300))[:, None]
    return np.asarray(rows.T @ away / len(rows))
