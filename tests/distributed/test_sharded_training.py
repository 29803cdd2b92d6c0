"""A private model trained on shards: that of one store, bit for bit, and charged once."""

import math
import os
import shutil
import signal
import threading
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest

import shard_tools as tools
import store_tools
from made_up import Killed, components_for_few, dies_at, raising
from ray_engine import list_process_ids
from store_tools import Q, X, Y, points
from vicinal.accounting.budget import UNITS
from vicinal.distributed import Coordinator
from vicinal.distributed._sharded_training import ShardedGradients
from vicinal.distributed._vote_charging import ChargeJournal
from vicinal.distributed.changes import ClusterChanges
from vicinal.distributed.messages import GradientRequest
from vicinal.distributed.shard_server import ShardServer
from vicinal.distributed.transports import local_transports
from vicinal.errors import (
    InvalidInput,
    PrivacyRefused,
    ShardMissing,
    ShardUnreachable,
    VicinalError,
)
from vicinal.ledger.ledger import Ledger
from vicinal.ledger.tables import Tables
from vicinal.linear import private_model
from vicinal.linear.descent import STEPS
from vicinal.linear.private_model import LocalGradients
from vicinal.mechanisms.linear_model import GradientRelease, IndividualGradient

PLAN = {
    "epsilon": 8.0, "n_queries": 60, "model_share": 0.5, "n_records": 300, "simulation_seed": 5,
    "model_refreshes": 1,
}  # fmt: skip
"""Plan of the second audience."""

DEFAULT_SHARE = {name: value for name, value in PLAN.items() if name != "model_share"}
AUDIENCES = {
    "classes": (None, PLAN),
    "several records": (None, {**PLAN, "records_per_subject": 2}),
    "components": (None, PLAN),
    "numbers": ("numbers", DEFAULT_SHARE),
    "labels": ("labels", DEFAULT_SHARE),
}
"""Kind of the store's targets (`store_tools.TARGETS`) and plan of the second audience, by name."""

YQ = points(60, 2)[1]
N_FEW_STEPS = 3
"""Steps of a training that is interrupted: the first, another, and the last step differ."""


def make(path, **parameters):
    """Return a store whose first audience has no model."""
    return store_tools.make(path, **{"simulation_seed": 5, **parameters})


def describe_model(store):
    """Return weights, prices and plan of the model of a store's or cluster's second audience."""
    state = store._audience_states["second"]
    model, audience = state.private_model, state.audience
    return (
        model.model.model.weights.tobytes(), model.model.spent_shares.tobytes(),
        model.n_completed_trainings, model.model.score_std,
        audience.slack, state.proxy_shares.tobytes(), state.describe_plan(),
    )  # fmt: skip


def play_history(store, audience="classes"):
    """Train the second audience's model, ask, change the data, train again, ask again."""
    target, plan = AUDIENCES[audience]
    targets = Y if target is None else store_tools.TARGETS[target][0]
    store.open_audience("second", **plan)
    yield describe_model(store)
    yield store.predict(Q[:20], audience="second").to_dict()
    store.erase(["person-3", "person-77"])
    store.add(X[:5] + 0.1, targets[:5], ["new", "new", "newer", "person-3", "person-8"])
    assert store.refresh_model("second") == 0
    yield describe_model(store)
    yield store.predict(Q[20:40], audience="second").to_dict()


def take_few_steps(patch, n_steps=N_FEW_STEPS, *, few_trees=True):
    """Train in few steps, with the noise of all, and on features of few random trees.

    Shards in other processes have the usual number of trees, which must be that of this process.
    """
    noise = property(lambda budget: math.sqrt(STEPS / (2 * budget.training_budget)))
    patch.setattr(private_model.TrainingBudget, "step_noise", noise)
    patch.setattr(private_model, "STEPS", n_steps)
    if few_trees:
        patch.setattr("vicinal.linear._random_trees.TREES", 8)


@pytest.fixture(scope="module")
def play_alone(tmp_path_factory):
    """Return a function to the history of one store, and the remaining budgets of all subjects."""

    @cache
    def play(audience):
        folder = tmp_path_factory.mktemp("alone") / "store"
        with make(folder, target=AUDIENCES[audience][0]) as store:
            return list(play_history(store, audience)), store_tools.left_of(store, "second")

    return play


class Unruly:
    """Messages and answers come in any order, late, twice, or not at all the first time."""

    def __init__(self, transport, rng):
        self.transport, self.rng, self.earlier = transport, rng, []

    def send(self, message):
        waiting = [message] if isinstance(message.task, GradientRequest) else []
        if not waiting:
            return self.transport.send(message)
        # Earlier messages may be repeated, before or after this one.
        waiting += [self.earlier[self.rng.integers(len(self.earlier))] for _ in self.earlier[:2]]
        self.rng.shuffle(waiting)
        answers = {id(one): self.transport.send(one) for one in waiting}
        self.earlier = [*self.earlier[-5:], message]
        lost = self.rng.random() < 0.3

        def reply(seconds):
            if lost:
                raise ShardUnreachable("The answer was lost.")
            return answers[id(message)](seconds)

        return reply

    def close(self):
        self.transport.close()


def open_unruly(path, seed):
    rng = np.random.default_rng(seed)

    def links(paths):
        return [Unruly(one, rng) for one in local_transports(paths)]

    return Coordinator.open(path, links, tools.PATIENCE)


def shuffle_shards(patch, seed):
    """Have shards be asked for gradients, and these be summed, in another order at every step."""
    rng, honest = np.random.default_rng(seed), ClusterChanges.run_on_shards

    def run_on_shards(self, task, *concerned):
        order = sorted(self._shards)
        if isinstance(task, GradientRequest):
            rng.shuffle(order)
        self._shards = {number: self._shards[number] for number in order}
        return honest(self, task, *concerned)

    patch.setattr(ClusterChanges, "run_on_shards", run_on_shards)


def test_a_model_that_is_trained_again_pays_for_the_grid_again(path):
    with tools.local(path) as cluster:
        (*_, once, _, _), _, (*_, twice, _, _), _ = play_history(cluster)
    assert twice >= 2 * once > 0


@pytest.mark.parametrize(
    ("audience", "shards"),
    [
        ("classes", 1), pytest.param("classes", 2, marks=pytest.mark.quick), ("classes", 16),
        ("several records", 2), ("components", 2), ("numbers", 3), ("labels", 3),
    ],
)  # fmt: skip
def test_shards_train_the_model_of_one_store_bit_for_bit(
    audience, shards, play_alone, tmp_path, monkeypatch
):
    """Weights, charges, slack, plan and answers; some of 16 shards have no subject."""
    take_few_steps(monkeypatch, n_steps=10)
    if audience == "components":
        components_for_few(monkeypatch)
    history, units = play_alone(audience)
    shuffle_shards(monkeypatch, shards)
    make_store = partial(make, target=AUDIENCES[audience][0])
    place = tools.scattered(shards, shards)
    path = tools.clustered(tmp_path, shards, place=place, make=make_store)
    with open_unruly(path, shards) as cluster:
        assert list(play_history(cluster, audience)) == history
        assert cluster.verify()
    assert tools.budgets(path, "second") == units
    with tools.local(path) as again:
        assert describe_model(again)[:4] == history[2][:4]


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    folder = tmp_path_factory.mktemp("template")
    return tools.clustered(folder, 2, place=tools.scattered(2, 2), make=make)


@pytest.fixture
def path(template, tmp_path, monkeypatch):
    """Path of a new cluster of two shards, whose models are trained in few steps."""
    take_few_steps(monkeypatch)
    return tools.transplanted(template, tmp_path / "cluster")


@pytest.fixture(scope="module")
def trained_store(tmp_path_factory):
    """Model and remaining budgets of one store after the first training, of few steps."""
    folder = tmp_path_factory.mktemp("opened") / "store"
    with pytest.MonkeyPatch.context() as patch, make(folder) as store:
        take_few_steps(patch)
        store.open_audience("second", **PLAN)
        return describe_model(store), store_tools.left_of(store, "second")


def train_until_killed(
    path, patch, call, owner=ShardedGradients, name="charge_and_publish", *, done=True, **plan
):
    """Have a training die at a call of a method, or of a step, and its process with it."""
    with patch.context() as killing_patch:
        cluster = tools.local(path)
        dies_at(killing_patch, owner, name, call, done=done)
        with pytest.raises(Killed):
            cluster.open_audience("second", **{**PLAN, **plan})
    cluster._failed = True
    cluster.close()


@pytest.mark.parametrize(
    ("owner", "name", "done"),
    [
        (ShardServer, "_charge_gradient", False),  # before any charge
        (Ledger, "write_charges", False),  # a sum that is kept before its charges is free later
        (ShardServer, "_charge_gradient", True),  # one shard's charges are durable, its sum is lost
        (GradientRelease, "publish", True),  # noise was drawn, and is lost
        (ShardedGradients, "charge_and_publish", True),  # the noisy sum is durable
    ],
)
@pytest.mark.parametrize("call", [1, pytest.param(2, marks=pytest.mark.quick), N_FEW_STEPS])
def test_a_coordinator_that_is_killed_goes_on_where_it_was(
    owner, name, done, call, path, trained_store, monkeypatch
):
    train_until_killed(path, monkeypatch, call, owner, name, done=done)
    with pytest.raises(PrivacyRefused, match="interrupted"):
        Coordinator.open(path, local_transports, read_only=True)
    with tools.local(path) as again:
        if "second" not in again.audiences:  # it was never decided
            again.open_audience("second", **PLAN)
        assert describe_model(again) == trained_store[0]
        assert again.verify()
    assert tools.budgets(path, "second") == trained_store[1]


def die_at_step(step, *, charged):
    """Return a hearing of a shard that dies in a step, before or after its charges are durable."""
    left = [step]

    def hear(message, send):
        left[0] -= isinstance(message.task, GradientRequest)
        if left[0] == 0:
            left[0] = -1
            if charged:
                send(message)(1.0)
            send.__self__.close()  # the next message opens the folder again
            raise ShardUnreachable("It died.")
        return send(message)

    return hear


@pytest.mark.parametrize("charged", [False, True])
@pytest.mark.parametrize("step", [1, 2, N_FEW_STEPS])
def test_a_shard_that_dies_is_asked_again_and_charges_once(step, charged, path, trained_store):
    with tools.heard(path, die_at_step(step, charged=charged)) as cluster:
        cluster.open_audience("second", **PLAN)
        assert describe_model(cluster) == trained_store[0]
    assert tools.budgets(path, "second") == trained_store[1]


def test_nothing_is_answered_while_a_shard_is_away_and_the_training_goes_on_later(
    path, trained_store
):
    left = [3]

    def away(message, send):
        left[0] -= isinstance(message.task, GradientRequest)
        if left[0] <= 0:
            raise ShardUnreachable("It is away.")
        return send(message)

    with tools.heard(path, away, 0.1) as cluster:
        with pytest.raises(ShardMissing):
            cluster.open_audience("second", **PLAN)
        for ask in (lambda: cluster.predict(Q[:1]), lambda: cluster.erase(["person-1"])):
            with pytest.raises(ShardMissing):
                ask()
        left[0] = 10**6
        assert cluster.predict(Q[:1]).charged == 1
        with pytest.raises(InvalidInput, match="must be new"):
            cluster.open_audience("second", **PLAN)
        left[0] = 0
        with pytest.raises(ShardMissing):
            cluster.refresh_model("second")
        left[0] = 10**6
        assert cluster.predict(Q[1:2]).charged == 1
        assert describe_model(cluster) == trained_store[0], "a refresh is not begun without it"
    assert tools.budgets(path, "second") == trained_store[1]


# ---------------------------------------------------------------- broken versions are caught


def charges_again(patch):
    """A shard forgets that it has charged a step."""
    honest = ChargeJournal.find_sums

    def forgets(self, request):
        if isinstance(request, GradientRequest):
            self._database.delete(Tables.CARRIED, "name = ?", (request.name,))
            return None
        return honest(self, request)

    patch.setattr(ChargeJournal, "find_sums", forgets)


def charges_nobody(patch):
    """A shard sums gradients that its subjects do not pay for."""
    honest = GradientRelease.contribute_and_charge

    def free(self, weights, remaining):
        sums, _ = honest(self, weights, remaining.copy())
        return sums, 0

    patch.setattr(GradientRelease, "contribute_and_charge", free)


def charges_half(patch):
    """A shard prices steps as if noise had one and a half times the scale."""
    honest = GradientRelease.contribute_and_charge

    def cheap(self, weights, remaining):
        release = replace(self, rate=self.rate / 1.5**2)
        return honest(release, weights, remaining)

    patch.setattr(GradientRelease, "contribute_and_charge", cheap)


def adds_noise_on_shards(patch):
    """Every shard adds noise, as if it published."""
    honest = LocalGradients.charge_and_sum

    def noisy(self, release, weights):
        sums = honest(self, release, weights)
        return sums + self.mechanism._noise.discrete_gaussian(release.scale, sums.size).reshape(
            sums.shape
        )

    patch.setattr(LocalGradients, "charge_and_sum", noisy)


def publishes_twice(patch):
    """A resumed coordinator draws new noise for published sums."""
    honest = ShardedGradients.charge_and_publish

    def anew(self, release, weights):
        self._published = {}
        return honest(self, release, weights)

    patch.setattr(ShardedGradients, "charge_and_publish", anew)


@pytest.mark.parametrize(
    "control", [charges_again, charges_nobody, charges_half, adds_noise_on_shards]
)
def test_a_broken_shard_is_caught(control, path, trained_store, monkeypatch):
    control(monkeypatch)
    with pytest.raises(AssertionError):
        test_a_shard_that_dies_is_asked_again_and_charges_once(3, True, path, trained_store)


def test_a_sum_is_published_with_one_noise(path, monkeypatch):
    """Two noises on one sum would average out; published sums are read from the ledger."""
    drawn = []
    honest = GradientRelease.publish

    def watched(self, sums):
        drawn.append((sums.any(), honest(self, sums)))
        return drawn[-1][1]

    monkeypatch.setattr(GradientRelease, "publish", watched)
    train_until_killed(path, monkeypatch, 2, simulation_seed=None)
    assert len(drawn) == 2
    tools.local(path).close()
    assert len(drawn) == 2 + N_FEW_STEPS
    # Those that were published before are drawn on nothing, the others on gradients.
    assert [private for private, _ in drawn] == [True, True, False, False, True]


def test_two_noises_on_one_sum_are_caught(path, monkeypatch):
    publishes_twice(monkeypatch)
    with pytest.raises((AssertionError, VicinalError)):
        test_a_sum_is_published_with_one_noise(path, monkeypatch)


# ---------------------------------------------------------------- refusals of a shard


def record_steps(path, patch, **plan):
    """Train the second audience's model; return the requests to all shards, and their sums."""
    asked, honest = [], ClusterChanges.run_on_shards

    def watched(self, task, *concerned):
        sums = honest(self, task, *concerned)
        if isinstance(task, GradientRequest):
            asked.append((task, sum(sums.values())))
        return sums

    with patch.context() as watching, tools.local(path) as cluster:
        watching.setattr(ClusterChanges, "run_on_shards", watched)
        cluster.open_audience("second", **{**PLAN, **plan})
    return asked


def test_a_late_step_or_another_noise_charges_nobody(path, monkeypatch):
    task, _ = record_steps(path, monkeypatch)[-2]
    before = tools.budgets(path, "second")
    changed = {"name": b"another", "clock": 10**6}
    cases = [
        (task, PrivacyRefused, "is over"),
        (replace(task, **changed, scale=task.scale // 2), PrivacyRefused, "another plan"),
        (replace(task, **changed, weights=task.weights[1:]), InvalidInput, "those of the"),
        (replace(task, **changed, weights=task.weights * np.nan), InvalidInput, "finite"),
        (replace(task, **changed, audience="nobody's"), InvalidInput, "has budgets for"),
    ]
    with closing(ShardServer.open(path / "shard-1")) as server:
        for one, error, words in cases:
            with pytest.raises(error, match=words):
                server.run_task(one)
    assert tools.budgets(path, "second") == before


def test_a_step_at_other_weights_is_another_step(path, monkeypatch):
    """Fails if it finds the sum of the weights before, or is summed under a charge of theirs."""
    task = replace(record_steps(path, monkeypatch)[-1][0], name=b"another", clock=10**6)
    other = replace(task, weights=task.weights + 1)
    names = []

    def named(_, request):
        names.append(request.name)
        raise Killed

    with monkeypatch.context() as patch, tools.local(path) as cluster:
        patch.setattr(ClusterChanges, "run_on_shards", named)
        for one in (task, task, other):
            audience = cluster._ledger.audiences["second"]
            steps = ShardedGradients(cluster._store, audience, cluster._changes)
            with pytest.raises(Killed):
                steps.charge_and_publish(steps.mechanism.prepare_release(1e6), one.weights)
    assert names[0] == names[1] != names[2]
    with closing(ShardServer.open(path / "shard-1")) as server:
        sums, account = server.run_task(task), server._store.ledger.audiences["second"].account
        charged = account.remaining.copy()
        with pytest.raises(InvalidInput, match="Another block was charged under this name"):
            server.run_task(other)
        assert (server.run_task(task) == sums).all()
        assert (account.remaining == charged).all()


def test_nobody_pays_more_than_the_share_whatever_comes(path, monkeypatch):
    """Further steps cost a subject no more than the plan's share for training."""
    first, _ = record_steps(path, monkeypatch, model_refreshes=0)[0]
    rng = np.random.default_rng(0)
    with closing(ShardServer.open(path / "shard-0")) as server:
        for step in range(60):
            weights = rng.normal(size=first.weights.shape) * 9
            server.run_task(replace(first, name=b"%d" % step, clock=10**6 + step, weights=weights))
        account = server._store.ledger.audiences["second"].account
        assert (account.remaining >= UNITS - UNITS // 2 - 1).all()
        assert (account.durable == account.remaining).all()


def test_the_index_of_an_earlier_model_is_detached(path):
    """Fails if indexes stay attached that no query searches; the coordinator has no records."""
    with tools.local(path) as cluster:
        list(play_history(cluster))
        servers = [client.transport._server for client in cluster._clients]
        assert not cluster._store.shard._mapped
        assert [len(server._store.shard._mapped) for server in servers] == [1, 1]


@pytest.mark.parametrize("broken", [False, True])
def test_what_a_training_loses_about_somebody_is_paid(
    broken, path, template, tmp_path, monkeypatch
):
    """The same steps with and without one subject.

    Gradients and charges of all other subjects are equal; the sums differ by its gradient.
    """
    victim = "person-7"
    if broken:
        charges_half(monkeypatch)
    asked = record_steps(path, monkeypatch)
    with tools.local(path) as cluster:
        budget = cluster._audience_states["second"].plan.interaction_budget
    others = tools.transplanted(template, tmp_path / "others")
    with tools.local(others) as cluster:
        cluster.erase([victim])
        with monkeypatch.context() as patch:
            dies_at(patch, ShardedGradients, "charge_and_publish", 1, done=False)
            with pytest.raises(Killed):
                cluster.open_audience("second", **PLAN)
    loss = 0.0
    with ExitStack() as opened:
        paths = [others / f"shard-{number}" for number in range(2)]
        servers = [opened.enter_context(closing(ShardServer.open(one))) for one in paths]
        for task, sums in asked:
            later = replace(task, clock=task.clock + 10)
            away = sums - sum(server.run_task(later) for server in servers)
            loss += (away.astype(float) ** 2).sum() / (2 * float(task.scale) ** 2)
    units = tools.budgets(path, "second")
    paid = (UNITS - units.pop(victim)) / UNITS * budget
    assert tools.budgets(others, "second") == units
    assert (0 < loss <= paid) == (not broken)


@pytest.mark.parametrize("part", ["coordinator", "shard-0", "shard-1"])
def test_a_part_that_is_put_back_within_a_training_is_refused(part, path, tmp_path, monkeypatch):
    """Folder and witness: its sums could be published with another noise, or without a charge."""
    at = (path / part, tools.get_witness_path(path, part))

    train_until_killed(path, monkeypatch, 1)
    for number, place in enumerate(at):
        (shutil.copytree if place.is_dir() else shutil.copy)(place, tmp_path / f"{number}")
    with monkeypatch.context() as patch:
        dies_at(patch, ShardedGradients, "charge_and_publish", 3, done=True)
        with pytest.raises(Killed):
            tools.local(path)
    shutil.rmtree(at[0])
    shutil.copytree(tmp_path / "0", at[0])
    shutil.copy(tmp_path / "1", at[1])
    with pytest.raises((PrivacyRefused, ShardMissing), match="is an old copy"):
        tools.local(path)


def test_a_cluster_trains_while_records_come_and_queries_are_answered(path, monkeypatch):
    errors = []
    monkeypatch.setattr(private_model, "STEPS", STEPS)  # as long as the other threads work

    def meanwhile(work):
        try:
            for number in range(10):
                work(number)
        except BaseException as error:  # noqa: BLE001 (shown below)
            errors.append(error)

    with tools.local(path) as cluster:
        new = points(30, 50)
        works = [
            lambda i: cluster.add(*new, [f"new-{i}-{j}" for j in range(30)]),
            lambda i: cluster.predict(Q[i : i + 1]),
        ]
        threads = [threading.Thread(target=meanwhile, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        cluster.open_audience("second", **PLAN)
        cluster.refresh_model("second")
        cluster.erase(["person-3", "new-0-1"])
        for thread in threads:
            thread.join()
        assert not errors
        assert cluster.verify()
        assert cluster.predict(Q[:5], audience="second").charged == 5
    assert len(tools.budgets(path, "second")) in (150 + 300 - 1, 150 + 300 - 2)


# ---------------------------------------------------------------- kinds of audiences and targets


@pytest.mark.parametrize(
    "parameters",
    [
        {"release": "label"},
        {"class_prior": [0.5, 0.25, 0.25], "cost": "balanced"},
        {"model_share": "auto", "n_records": None},
    ],
    ids=["labels", "rare classes", "auto"],
)
def test_audiences_of_every_kind_have_their_model(parameters, path):
    plan = {**PLAN, **parameters}
    with tools.local(path) as cluster:
        cluster.open_audience("second", **plan)
        assert cluster.models_stay
        reply = cluster.predict(Q, audience="second")
        assert (reply.labels == YQ).mean() > 0.85
        assert "stays in the model" in repr(cluster.guarantee("second"))
        found = cluster.evaluate(
            Q, YQ, [f"v{i}" for i in range(len(Q))], audience="second", share=0.9
        )
        assert found.scores is not None or plan.get("release") == "label"
        assert cluster.verify()
    with tools.local(path) as again:
        assert again.predict(Q, audience="second").charged == 0


def test_a_plan_whose_grid_costs_too_much_is_refused_before_anything_changes(path, monkeypatch):
    with tools.local(path) as cluster:
        cluster.open_audience("second", **PLAN)
        version = cluster.version
        monkeypatch.setattr(IndividualGradient, "check_slack", raising(PrivacyRefused("The grid.")))
        for change in (cluster.refresh_model, lambda name: cluster.open_audience("x" + name)):
            with pytest.raises(PrivacyRefused, match="The grid"):
                change("second")
        assert cluster.version == version
        assert cluster.is_consistent
        assert cluster.audiences == ("default", "second")
        assert cluster.predict(Q[:1]).charged == 1  # no training was begun


def test_a_loss_that_is_accepted_in_a_training_leaves_a_cluster_that_goes_on(path, monkeypatch):
    """Every budget is spent then, so that the rest of the training is noise."""
    train_until_killed(path, monkeypatch, 2)
    (path.with_name("cluster.witnesses") / "shard-1").unlink()
    with Coordinator.open(path, local_transports, tools.PATIENCE, accept_loss=True) as again:
        assert again.predict(Q[:2], audience="second").charged == 2
        assert again.verify()
    assert set(tools.budgets(path, "second").values()) == {0}


def test_processes_of_ray_that_are_killed_in_a_change_or_a_training_charge_once(
    template, tmp_path, ray_engine, monkeypatch
):
    take_few_steps(monkeypatch, few_trees=False)
    with make(tmp_path / "one") as store:
        store.open_audience("second", **PLAN)
        model, units = describe_model(store), store_tools.left_of(store, "second")
    honest = ShardedGradients.charge_and_publish

    def deadly(self, release, weights):
        if self._step == 1:
            os.kill(list_process_ids(ray_engine)[1], signal.SIGKILL)
        return honest(self, release, weights)

    monkeypatch.setattr(ShardedGradients, "charge_and_publish", deadly)
    path = tools.transplanted(template, tmp_path / "cluster")
    with tools.on_ray(ray_engine)(path) as cluster:
        cluster.open_audience("second", **PLAN)
        assert describe_model(cluster) == model
        for shard, process in enumerate(list_process_ids(ray_engine)):
            killer = threading.Timer(0.01 * shard, os.kill, (process, signal.SIGKILL))
            killer.start()
            new = [f"new-{i // 2} of {shard}" for i in range(40)]
            cluster.add(*points(40, 9), new)
            cluster.erase(new[:1])
            killer.join()
        assert cluster.predict(Q[5:9]).charged == 4
        assert cluster.verify(["new-0 of 0"])
        private = cluster.facts(curator=True)["private"].values()
        assert sum(counts["records"] for counts in private) == 300 + 2 * 38
    tools.in_peace(path)
    left = tools.budgets(path, "second")
    assert {person: left[person] for person in units} == units
