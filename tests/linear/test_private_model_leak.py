"""Two worlds of the private model: what a subject changes in the training is what it pays for.

The noisy sums of world A (with the victim) fix the weights of every step; world B (without) is
summed at the same weights. What leaves differs by the difference of the sums, under discrete
Gaussian noise of a known scale: the zCDP that an attacker gets is sum |difference|^2 / (2 s^2),
exactly, and the victim's charges must not be below it. Broken controls fail that.
"""

from dataclasses import dataclass

import numpy as np
import pytest

from made_up import clouds, components_for_few
from statistical.conftest import one_blas_thread  # noqa: F401 (a fixture)
from vicinal import IndKNNClassifier, IndKNNRegressor, mechanisms
from vicinal.accounting.budget import UNITS
from vicinal.engine.shard import LocalShardBase
from vicinal.linear import descent, losses, private_model
from vicinal.linear.losses import ClassLoss
from vicinal.linear.model_features import ModelFeatures
from vicinal.linear.private_model import LinearModel, ModelGate, PrivateModel
from vicinal.mechanisms.gradients import SubjectRows
from vicinal.mechanisms.linear_model import GradientRelease, IndividualGradient, charge_records
from vicinal.mechanisms.votes import VoteRelease
from vicinal.neighbours import Cosine
from vicinal.neighbours.kernels import int8_precision

pytestmark = [pytest.mark.statistical, pytest.mark.quick]

N, D, CLASSES = 600, 6, 3
SHARE = 0.5

X, Y = clouds(0, N, D)
R, _ = clouds(1, 150, D)
Q, _ = clouds(2, 400, D)
SIDES = 2.0 * np.eye(CLASSES)[Y] - 1
"""Numbers that records carry in place of classes."""


def classifier(*, numbers=False, **parameters):
    given = {"epsilon": 4.0, "n_queries": 400, "n_records": N, "model_share": SHARE}
    given |= {"simulation_seed": 7, **parameters}
    if numbers:
        return IndKNNRegressor(dict.fromkeys("abc", (-1, 1)), **given)
    return IndKNNClassifier(range(CLASSES), **given)


@dataclass
class Step:
    release: GradientRelease
    weights: np.ndarray
    sums: np.ndarray
    before: np.ndarray


def trained(subjects, monkeypatch, **parameters):
    """Return a fitted classifier, and the steps of its training."""
    steps, honest = [], GradientRelease.contribute_and_charge

    def watched(self, weights, remaining):
        before = remaining.copy()
        sums, spent = honest(self, weights, remaining)
        steps.append(Step(self, weights.copy(), sums.copy(), before))
        return sums, spent

    with monkeypatch.context() as patch:
        patch.setattr(GradientRelease, "contribute_and_charge", watched)
        made = classifier(**parameters)
        fitted = made.fit(X, SIDES if parameters.get("numbers") else Y, subjects, public=R)
    return fitted, steps


def without(subjects, victim, step, model, targets, encoder):
    """Return the sums of the step in the world without the victim.

    Others have the same left in both worlds: what they paid follows from public weights.
    """
    stay = subjects != victim
    made = step.release.mechanism
    slots = np.unique(subjects[stay], return_inverse=True)[1].astype(np.int32)
    rows = model.features.compute_rows(encoder.encode(X[stay]).astype(np.float32))
    people = SubjectRows(rows, targets[stay], slots, slots.max() + 1)
    twin = IndividualGradient(
        people, CLASSES, made.unit, made.clip, step.release.noise, SHARE, made._budget,
        mechanisms.create_noise_source(0), mechanisms.DeltaSlackAccountant(1e-5, needs_slack=False),
    )  # fmt: skip
    release = GradientRelease(twin, step.release.scale, step.release.rate)
    assert twin.steps_per_clip == made.steps_per_clip
    return release.contribute_and_charge(step.weights, step.before[np.unique(subjects[stay])])[0]


def loss_and_price(subjects, victim, monkeypatch, **parameters):
    """Return the zCDP that the training loses about the victim, and what the victim paid."""
    fitted, steps = trained(subjects, monkeypatch, **parameters)
    model, record_targets = fitted._model.model, fitted._shard.subject_table.targets
    targets = fitted._model.loss.convert_targets(record_targets)
    assert len(steps) == descent.STEPS
    loss = 0.0
    for step in steps:
        difference = (
            step.sums - without(subjects, victim, step, model, targets, fitted._encoder)
        ).astype(float)
        loss += np.square(difference).sum() / (2 * step.release.scale**2)
    ledger = fitted._shard.ledger
    slot = ledger.list_slots([victim])[0]
    paid = UNITS - int(ledger.remaining[slot])
    return loss, paid / UNITS * steps[0].release.mechanism._budget


ENCODER, OF_MANY = Cosine.fit_to_public(R), Cosine(int8_precision(R))
SINGLE = np.arange(N)
SEVERAL = np.concatenate([np.arange(N - 4), np.full(4, N - 4)])


KINDS = {"votes": {}, "labels": {"release": "label"}, "numbers": {"numbers": True}}


def check_loss(subjects, victim, kind, monkeypatch):
    loss, paid = loss_and_price(subjects, victim, monkeypatch, **KINDS[kind])
    assert 0 < loss <= paid * (1 + 1e-9)
    assert paid <= loss * (1 + 1e-3)


@pytest.mark.parametrize("clip", [0.4, 1.0])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("subjects", "victim"), [(SINGLE, 0), (SINGLE, 17), (SEVERAL, N - 4)])
def test_training_loses_what_the_victim_paid(subjects, victim, kind, clip, monkeypatch):
    monkeypatch.setattr(private_model, "MAX_CLIP", clip)
    check_loss(subjects, victim, kind, monkeypatch)


@pytest.mark.parametrize(("subjects", "victim"), [(SINGLE, 17), (SEVERAL, N - 4)])
def test_training_on_components_loses_what_the_victim_paid(subjects, victim, monkeypatch):
    components_for_few(monkeypatch)
    check_loss(subjects, victim, "labels", monkeypatch)


def of_private_landmarks(patch):
    """Take the kernel's likenesses, or the trees, from private records."""
    honest = ModelFeatures.for_training

    def broken(_, n_records, lifted):
        encoder = ENCODER if lifted else OF_MANY
        return honest(encoder.encode(X).astype(np.float32), n_records, lifted=lifted)

    patch.setattr(ModelFeatures, "for_training", broken)


@pytest.mark.parametrize("control", [None, of_private_landmarks])
@pytest.mark.parametrize("components", [False, True])
def test_features_are_made_of_public_rows_alone(components, control, monkeypatch):
    """Trees or landmarks, centre and factors are the same, whoever is in the data."""
    if components:
        components_for_few(monkeypatch)
    encoder = OF_MANY if components else ENCODER
    public = encoder.encode(R).astype(np.float32)
    given = ModelFeatures.for_training(public, N, lifted=encoder.lifts)
    if control is not None:
        control(monkeypatch)
    made = classifier().fit(X[:400] + 1e-3, Y[:400], public=R)._model.model.features
    assert (made.kernel is not None) == components
    rows = encoder.encode(X)
    same = np.array_equal(given.compute_rows(rows), made.compute_rows(rows))
    assert same == (control is None)


def uncharged(patch):
    honest = charge_records

    def broken(scores, derivatives, squares, labels, slots, remaining, *numbers):
        return honest(scores, derivatives, squares, labels, slots, remaining.copy(), *numbers)

    patch.setattr("vicinal.mechanisms.linear_model.charge_records", broken)


def unclipped(patch):
    """Charge clipped gradients and sum whole ones."""
    honest = charge_records

    def broken(scores, sums, squares, labels, slots, remaining, step, kind, factor, bound, *rest):
        facts = squares, labels, slots
        total = honest(scores, sums.copy(), *facts, remaining, step, kind, factor, bound, *rest)
        full = np.full_like(remaining, UNITS)
        honest(scores, sums, *facts, full, step, kind, factor, 50 * bound, *rest)
        return total

    patch.setattr("vicinal.mechanisms.linear_model.charge_records", broken)


@pytest.mark.parametrize("numbers", [False, True])
@pytest.mark.parametrize("components", [False, True])
def test_broken_trainings_are_caught(components, numbers, monkeypatch):
    """The victim has the longest gradient at the end of an honest training."""
    monkeypatch.setattr(private_model, "MAX_CLIP", private_model.MIN_CLIP)  # gradients are cut
    if components:
        components_for_few(monkeypatch)
    fitted, _ = trained(SINGLE, monkeypatch)
    victim = int(fitted.model_probabilities(X)[np.arange(N), Y].argmin())
    loss, paid = loss_and_price(SINGLE, victim, monkeypatch, numbers=numbers)
    assert loss <= paid * (1 + 1e-9)
    for control in (uncharged, unclipped):
        with monkeypatch.context() as patch:
            control(patch)
            loss, paid = loss_and_price(SINGLE, victim, monkeypatch, numbers=numbers)
        assert loss > 1.2 * paid, control


# ---------------------------------------------------------------- the metric

FEATURES = ModelFeatures.from_rows(R, lifted=False)
WEIGHTS, DOUBTS = (
    np.rint(np.random.default_rng(3).normal(size=(FEATURES.width, width)) * 2**18)
    for width in (CLASSES, 20)
)


def metric(public):
    model, used = LinearModel(WEIGHTS, FEATURES), np.zeros(len(public))
    return PrivateModel(model, public, used, ClassLoss(np.ones(CLASSES) / CLASSES), DOUBTS)


def test_a_record_in_the_metric_does_not_depend_on_other_records():
    model, rng = metric(R), np.random.default_rng(4)
    everybody = model.compute_metric_rows(X)
    for _ in range(5):
        present = rng.permutation(N)[: rng.integers(1, N)]
        assert (model.compute_metric_rows(X[present]) == everybody[present]).all()
        assert (model.predict(X[present]) == model.predict(X)[present]).all()
        deviations = [model.map_rows(rows)[1].score_std for rows in (X[present], X)]
        assert (deviations[0] == deviations[1][present]).all()


def test_a_private_mean_in_the_metric_is_caught():
    """The check above, across worlds, sees a metric whose means are taken over the records."""
    others = X[1:]
    assert (metric(R).compute_metric_rows(others) == metric(R).compute_metric_rows(X)[1:]).all()
    own_rows = metric(others).compute_metric_rows(others)
    assert (own_rows != metric(X).compute_metric_rows(X)[1:]).any()


# ---------------------------------------------------------------- the gate


@dataclass
class Answers:
    """What a world answered: what leaves but for its noise, and the victim's charges in zCDP."""

    asked: np.ndarray
    labels: np.ndarray
    scales: np.ndarray
    sums: np.ndarray
    paid: float


def answered(world, queries, model, monkeypatch):
    """Return the answers of a world behind the gate of a model that is public by now.

    Nobody pays for the training here: what that loses is measured above.
    """
    scales, sums, honest = [], [], LocalShardBase.charge_and_sum

    def watched(self, release, block, thresholds):
        found = honest(self, release, block, thresholds)
        scales.append(release.scales)
        sums.append(found.copy())
        return found

    with monkeypatch.context() as patch:
        patch.setattr("vicinal.planning.engine_factory.train_private_model", lambda *_, **__: model)
        patch.setattr(LocalShardBase, "charge_and_sum", watched)
        fitted = classifier(n_queries=4 * len(queries)).fit(X[world], Y[world], world, public=R)
        found = fitted.query(queries)
    ledger = fitted._shard.ledger
    left = ledger.remaining[ledger.list_slots([world[0]])[0]]
    paid = (UNITS - int(left)) / UNITS * fitted.budget_
    labels = np.where(found.asked, -1, found.labels)  # those of votes are drawn with noise
    return Answers(found.asked, labels, np.concatenate(scales), np.concatenate(sums), paid)


def gate_loss(victim, model, monkeypatch):
    """Return the zCDP that answers lose about the victim, and what it paid; inf for open answers.

    What is asked, and what the model answers alone, leaves without noise: where that differs
    between the worlds, nothing bounds the loss. The other sums leave with noise of their scale.
    """
    queries = np.vstack([Q, X[[victim]]])
    everybody = np.r_[victim, np.delete(np.arange(N), victim)]
    here, gone = (
        answered(world, queries, model, monkeypatch) for world in (everybody, everybody[1:])
    )
    if (here.asked != gone.asked).any() or (here.labels != gone.labels).any():
        return np.inf, here.paid
    assert (here.scales == gone.scales).all()
    away = np.square((here.sums - gone.sums).astype(float)).sum(axis=1)
    return float((away / (2 * here.scales.astype(float) ** 2)).sum()), here.paid


@pytest.fixture(scope="module")
def model():
    return classifier().fit(X, Y, public=R)._model


def unsure_of(model, turn):
    """Return a subject near the border of the model's classes: one that is asked about."""
    return int(np.argsort(losses.subtract_second_best(np.log(shares_of(model))))[turn])


def shares_of(model):
    return model.predict(ENCODER.encode(X).astype(np.float32))


@pytest.mark.parametrize("turn", [0, 5, 40])
def test_a_gate_loses_what_the_victim_paid(turn, model, monkeypatch):
    loss, paid = gate_loss(unsure_of(model, turn), model, monkeypatch)
    assert 0 < loss <= paid * (1 + 1e-9)
    assert paid <= loss * (1 + 1e-3)


def test_a_gate_that_saw_labels_without_noise_is_caught(model, monkeypatch):
    chances = shares_of(model)
    victim = int(chances[np.arange(N), Y].argmin())  # the model is wrong about it
    loss, paid = gate_loss(victim, model, monkeypatch)
    assert loss <= paid * (1 + 1e-9)
    records, fit = {}, IndKNNClassifier.fit

    def seen(self, features, labels, *rest, **named):
        rows = ENCODER.encode(np.asarray(features)).astype(np.float32)
        records["shares"], records["labels"] = model.predict(rows), labels
        return fit(self, features, labels, *rest, **named)

    def peeking(self, shares):  # noqa: ARG001 (a method)
        """Ask where the nearest record's label, without noise, is not the model's."""
        away = np.square(shares[:, None] - records["shares"]).sum(axis=2)
        return records["labels"][away.argmin(axis=1)] != shares.argmax(axis=1)

    monkeypatch.setattr(IndKNNClassifier, "fit", seen)
    monkeypatch.setattr(ModelGate, "select_queries", peeking)
    loss, _ = gate_loss(victim, model, monkeypatch)
    assert loss == np.inf


def test_a_gate_whose_votes_are_not_charged_is_caught(model, monkeypatch):
    charged = LocalShardBase.charge_and_sum_neighbours

    def free(self, release, near):
        before = self.ledger.remaining.copy()
        sums = charged(self, release, near)
        self.ledger.remaining[:] = before
        return sums

    monkeypatch.setattr(LocalShardBase, "charge_and_sum_neighbours", free)
    loss, paid = gate_loss(unsure_of(model, 0), model, monkeypatch)
    assert loss > paid == 0


# ---------------------------------------------------------------- one filter for all


@pytest.mark.parametrize("release", ["votes", "label"])
def test_training_and_votes_share_one_budget(release):
    fitted = classifier(release=release).fit(X, Y, public=R)
    ledger = fitted._shard.ledger
    after_fit = ledger.remaining.copy()
    assert (after_fit >= UNITS - np.floor(SHARE * UNITS)).all()
    assert (after_fit < UNITS).all()
    for _ in range(3):
        fitted.query(Q)
    assert (ledger.remaining >= 0).all()
    assert (ledger.remaining < after_fit).any()
    assert sum(ledger.charges_by_block) == int((UNITS - ledger.remaining).sum())


def test_what_joins_the_votes_moves_no_charge(monkeypatch):
    """The model's votes are public: who pays how much stays the same."""
    left = []
    for known in (100.0, 1e-9):
        monkeypatch.setattr(losses, "_DIRICHLET_VOTES", known)
        fitted = classifier(release="label").fit(X, Y, public=R)
        fitted.query(Q)
        left.append(fitted._shard.ledger.remaining.copy())
    assert (left[0] == left[1]).all()


# ---------------------------------------------------------------- nothing else enters


@dataclass
class Descent:
    """A fitted estimator, and all that enters and leaves its training.

    `arguments`: those of the filter of weights; `gradients`: of its updates; `published`: the noisy
    sums of all steps; `metric_rows`: public rows from which the kernel of the metric is made.
    """

    fitted: object
    arguments: tuple
    gradients: list
    published: list
    metric_rows: np.ndarray


def watch_descent(world, monkeypatch, *, numbers):
    """Train on the records of a world; return what the descent is given, and what it gives."""
    arguments, gradients, published, metric_rows = [], [], [], []
    weights, publish = descent.KalmanWeights, GradientRelease.publish
    begin, update = weights.__init__, weights.update

    def watch_begin(self, *args):
        arguments.append((*args[:3], repr(args[3]), *args[4:]))
        begin(self, *args)

    def watch_update(self, gradient):
        gradients.append(gradient.copy())
        update(self, gradient)

    def watch_publish(self, sums):
        clip, noise_std = arguments[-1][5:7]
        assert noise_std == pytest.approx(self.noise * clip / N, rel=1e-6)
        published.append(publish(self, sums))
        return published[-1]

    def watch_kernel(rows):
        metric_rows.append(rows.copy())
        return private_model.build_metric_kernel(rows)

    with monkeypatch.context() as patch:
        patch.setattr(weights, "__init__", watch_begin)
        patch.setattr(weights, "update", watch_update)
        patch.setattr(GradientRelease, "publish", watch_publish)
        patch.setattr("vicinal.planning.engine_factory.build_metric_kernel", watch_kernel)
        targets = SIDES if numbers else Y
        fitted = classifier(numbers=numbers).fit(X[world], targets[world], world, public=R)
    return Descent(fitted, arguments[0], gradients, published, metric_rows[0])


@pytest.mark.parametrize("numbers", [False, True])
def test_a_descent_is_given_public_facts_and_what_was_published(numbers, monkeypatch):
    """Fails if the number of records, what they carry or un-noised sums find a way in."""
    worlds = np.arange(N), np.flatnonzero(Y == 0)
    first, second = (watch_descent(world, monkeypatch, numbers=numbers) for world in worlds)
    if numbers:
        assert first.fitted._model.score_std == second.fitted._model.score_std > 0
    for ours, theirs in zip(first.arguments, second.arguments, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for seen in (first, second):
        factor = seen.arguments[5] / N  # the clip over the declared number, in both worlds
        for gradient, sums in zip(seen.gradients, seen.published, strict=True):
            np.testing.assert_allclose(gradient, sums * factor, rtol=1e-12)
        rows = seen.fitted._model.compute_metric_rows(ENCODER.encode(R).astype(np.float32))
        np.testing.assert_array_equal(seen.metric_rows, rows)


def test_what_joins_the_sums_is_public_and_on_their_grid(monkeypatch):
    """Fails if an un-noised sum decides what joins it, or it joins in another unit."""
    sums, joined, honest = [], [], LocalShardBase.charge_and_sum

    def summed(self, release, block, thresholds):
        sums.append(honest(self, release, block, thresholds))
        return sums[-1].copy()

    def publish(release, total, honest=VoteRelease.publish):
        joined.append((release, total.copy()))
        return honest(release, total)

    monkeypatch.setattr(LocalShardBase, "charge_and_sum", summed)
    monkeypatch.setattr(VoteRelease, "publish", publish)
    fitted = classifier().fit(X, Y, public=R)
    answers = fitted.query(Q)
    integers = fitted._encode_features(Q[answers.asked])
    expected = fitted._engine.radius.estimate_counts(integers)
    grid = fitted._engine.votes.grid.steps
    said = fitted._model.map_rows(ENCODER.encode(Q[answers.asked]).astype(np.float32))[1]
    votes = fitted._model.loss.convert_to_votes(said, answers.noise[answers.asked], expected)
    found = np.concatenate([total - own for (_, total), own in zip(joined, sums, strict=True)])
    np.testing.assert_allclose(found / grid, votes, rtol=1e-6, atol=1 / grid)
