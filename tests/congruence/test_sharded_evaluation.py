"""A cluster is evaluated as a store is: the same counts, the same charges, each of them once."""

import shutil

import numpy as np
import pytest

import shard_tools
import store_tools as tools
from command_line import printed
from made_up import NoNoise
from vicinal import Store
from vicinal.accounting.budget import UNITS
from vicinal.distributed import ShardMissing, split
from vicinal.distributed.folders import list_shard_folders
from vicinal.distributed.messages import EvaluationRequest
from vicinal.distributed.shard_server import ShardServer
from vicinal.errors import PrivacyRefused, ShardUnreachable

SHARDS = 3
_, TRUTH = tools.points(60, 2)
ROWS = np.vstack([tools.Q, tools.Q[:20], tools.X[:4]])
LABELS = np.concatenate([TRUTH, TRUTH[:20], tools.Y[:4]])
WHO = [*tools.PEOPLE[:30], *(f"visitor-{i}" for i in range(30)), *tools.PEOPLE[:10], *["one"] * 14]
"""People with records, people without, some of them with several rows, some never asked."""


@pytest.fixture(scope="module")
def answered(tmp_path_factory):
    """A store that has answered, closed."""
    path = tmp_path_factory.mktemp("sharded")
    with tools.make(path / "store", class_prior=[0.3, 0.3, 0.4]) as store:
        store.predict(tools.Q)
    return path


@pytest.fixture
def path(answered, tmp_path):
    """A copy of the store, and a cluster that another copy was split into; closed."""
    for place in (tmp_path, tmp_path / "other"):
        shutil.copytree(answered, place, dirs_exist_ok=True)
    split(tmp_path / "other" / "store", tmp_path / "cluster", SHARDS)
    return tmp_path


def evaluated(opened, who=WHO, share=0.3, coverage=None):
    """Return an evaluation without noise by a store or a cluster."""
    opened._audience_states["default"].engine.votes.noise_source = NoNoise()
    return opened.evaluate(ROWS, LABELS, who, share=share, accept_noise=True, coverage=coverage)


def of_store(path, coverage=None):
    with Store.open(path / "store") as store:
        found = evaluated(store, coverage=coverage)
        left = {person: tools.units(store, person) for person in set(tools.PEOPLE)}
        assert store.verify()
    return found, left


@pytest.mark.parametrize("coverage", [None, "per-class"])
def test_a_cluster_counts_and_charges_as_a_store(path, coverage):
    with shard_tools.local(path / "cluster") as cluster:
        found = evaluated(cluster, coverage=coverage)
        (kept,) = cluster.facts()["audiences"]["default"]["evaluations"]
        assert cluster.verify()
    expected, left = of_store(path, coverage)
    np.testing.assert_array_equal(found.confusion, expected.confusion)
    np.testing.assert_array_equal(found.scores, expected.scores)
    assert (found.noise, found.share) == (expected.noise, expected.share)
    assert found.people == pytest.approx(46, abs=1e-4), "15 and 30 people, and one with many rows"
    assert kept == expected.to_dict()
    assert shard_tools.budgets(path / "cluster") == left
    assert min(left.values()) < 0.71 * UNITS


def test_the_noise_is_added_once_however_many_shards(path):
    with shard_tools.local(path / "cluster") as cluster:
        draws = []

        class Counting(NoNoise):
            def discrete_gaussian(self, scale, size):
                draws.append((scale, size))
                return super().discrete_gaussian(scale, size)

        cluster._audience_states["default"].engine.votes.noise_source = Counting()
        found = cluster.evaluate(ROWS, LABELS, WHO, accept_noise=True)
    assert [size for _, size in draws] == [found.confusion.size + found.scores.size]


def test_visitors_have_one_budget_whichever_shard_they_come_to(path):
    with shard_tools.local(path / "cluster") as cluster:
        for _ in range(2):
            cluster.evaluate(ROWS[:1], LABELS[:1], ["visitor"], share=0.4, accept_noise=True)
        cluster.add(tools.Q[:1], TRUTH[:1], ["visitor"])
        assert cluster.presence(["visitor"]).enrolled == 1
    assert shard_tools.budgets(path / "cluster")["visitor"] < 0.21 * UNITS


def test_an_evaluation_that_was_broken_off_is_charged_once(path, monkeypatch):
    """The shards had paid when the coordinator's disk failed; the same again finds their sums."""
    cluster = shard_tools.local(path / "cluster")
    with shard_tools.full_disk(cluster, monkeypatch):
        evaluated(cluster)
    cluster.close()
    expected, left = of_store(path)
    assert shard_tools.budgets(path / "cluster") == left
    with shard_tools.local(path / "cluster") as again:
        assert not again.facts()["audiences"]["default"]["evaluations"]
        np.testing.assert_array_equal(evaluated(again).confusion, expected.confusion)
        slack = again._audience_states["default"].slack.spent
    assert shard_tools.budgets(path / "cluster") == left
    with shard_tools.local(path / "cluster") as again:
        assert again._audience_states["default"].slack.spent == slack
        evaluated(again)  # another one, which costs again
    assert shard_tools.budgets(path / "cluster") != left


def test_a_shard_that_is_lost_on_the_way_pays_once(path):
    """The answer to a tally is lost, once, after the shard has paid."""
    lost = ["once"]

    def hear(message, send):
        reply = send(message)
        if isinstance(message.task, EvaluationRequest) and lost:
            lost.pop()
            reply(60)
            raise ShardUnreachable
        return reply

    with shard_tools.heard(path / "cluster", hear, shard=0) as cluster:
        found = evaluated(cluster)
    expected, left = of_store(path)
    np.testing.assert_array_equal(found.confusion, expected.confusion)
    assert shard_tools.budgets(path / "cluster") == left


def test_without_a_shard_nobody_is_evaluated_or_charged(path):
    gone = shard_tools.Dead()
    before = shard_tools.budgets(path / "cluster")
    with shard_tools.heard(path / "cluster", gone, 0.05, shard=0) as cluster:
        with pytest.raises(ShardMissing):
            evaluated(cluster)
        gone.messages = 0
        assert evaluated(cluster).people > 40
    assert shard_tools.budgets(path / "cluster") != before


def test_sums_without_noise_do_not_outlive_the_evaluation(path):
    with shard_tools.local(path / "cluster") as cluster:
        evaluated(cluster)
    for folder in list_shard_folders(path / "cluster", SHARDS):
        server = ShardServer.open(folder)
        assert not shard_tools.kept_votes(server)
        server.close()


def test_a_shard_refuses_noise_that_nobody_paid_for(path):
    server = ShardServer.open(list_shard_folders(path / "cluster", SHARDS)[0])
    request = EvaluationRequest(
        b"x" * 16, 99, "default", (9, 4), 0.3, 1, np.zeros((1, 2), dtype=np.int64), ["somebody"]
    )
    with pytest.raises(PrivacyRefused, match="another plan"):
        server.run_task(request)
    server.close()
    left = shard_tools.budgets(path / "cluster")
    assert max(left.values()) <= UNITS


def test_the_command_evaluates_a_cluster(path):
    lines = [
        ",".join(map(repr, row)) + f",{label},{who}"
        for row, label, who in zip(tools.Q.tolist(), TRUTH, WHO, strict=False)
    ]
    (path / "rows.csv").write_text("a,b,c,d,y,who\n" + "\n".join(lines))
    options = ["--data", path / "rows.csv", "--label", "y", "--subject", "who", "--share", 1]
    assert "Balanced accuracy" in printed("evaluate", path / "cluster", *options)
