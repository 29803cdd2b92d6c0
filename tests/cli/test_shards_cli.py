"""The commands of a cluster: a store is spread, answers on Ray, and is looked after as one."""

import json
import shutil
import signal
import sys
from types import SimpleNamespace

import pytest
from pyarrow import parquet

import shard_tools
import store_tools as tools
from command_line import make_table, write_table
from command_line import printed as run
from made_up import raising
from ray_engine import get_address
from serving_tools import FAST, Service, listening, serving_process
from vicinal import distributed
from vicinal.cli.records import connect_ray
from vicinal.distributed import Coordinator
from vicinal.distributed.shard_server import ShardServer
from vicinal.distributed.transports import local_transports
from vicinal.errors import ShardUnreachable, StoreOutdated
from vicinal.serving.app import create_app
from vicinal.serving.keys import ROLES
from vicinal.store import Store


@pytest.fixture
def queries(tmp_path):
    return write_table(tmp_path / "queries.csv", tools.Q[:5])


@pytest.fixture
def cluster(tmp_path):
    tools.make(tmp_path / "store").close()
    told = run("shard", "--yes", "--json", tmp_path / "store", shards=2, out=tmp_path / "cluster")
    assert json.loads(told)["shards"] == 2
    return tmp_path / "cluster"


def test_a_store_that_was_spread_answers_no_more(tmp_path, cluster, queries):
    run("predict", tmp_path / "store", "--data", queries, code=3)
    run("shard", "--yes", tmp_path / "store", "--out", tmp_path / "again", code=3)
    run("shard", "--yes", tmp_path / "nothing", "--out", tmp_path / "again", code=2)
    run("verify", cluster)


def test_what_only_reads_finishes_nothing(tmp_path, monkeypatch, queries):
    """Fails if looking at a folder retires a store, erases anybody, or makes a change."""
    tools.make(tmp_path / "store").close()

    def refused(path):
        for command in ("inspect", "verify", "export-guarantee"):
            assert "command only reads" in run(command, path, code=3)
        assert "command only reads" in run("certificate", path, out=tmp_path, code=3)

    with tools.broken_off(monkeypatch, "vicinal.distributed.splitting._close_for_good"):
        distributed.split(tmp_path / "store", tmp_path / "cluster", 2)
    refused(tmp_path / "cluster")
    run("allow", tmp_path / "store", "anna", 5)  # it is as it was, and goes on
    run("predict", tmp_path / "cluster", "--data", queries, code=3)
    shutil.rmtree(tmp_path / "cluster")
    assert "delete that folder" in run(
        "shard", "--yes", tmp_path / "store", "--out", tmp_path / "cluster", code=2
    )
    shutil.rmtree(tmp_path / "cluster.witnesses")
    with (
        tools.broken_off(monkeypatch, "vicinal.store.erasure._truncate_files"),
        Store.open(tmp_path / "store") as store,
    ):
        store.erase(["person-3"])
    refused(tmp_path / "store")
    run("shard", "--yes", tmp_path / "store", "--out", tmp_path / "cluster")  # finishes the erasure
    with (
        tools.broken_off(monkeypatch, "vicinal.distributed.changes.ClusterChanges.finish_pending"),
        shard_tools.local(tmp_path / "cluster") as cluster,
    ):
        cluster.erase(["person-4"])
    refused(tmp_path / "cluster")
    run("predict", tmp_path / "cluster", "--data", queries)
    for who in ("person-3", "person-4"):
        run("verify", tmp_path / "cluster", "--erased", who)


SILENT = raising(ShardUnreachable("It is away."))
OUTDATED = raising(StoreOutdated("Shard 0 is an old copy."))


def test_local_is_an_engine_of_its_own(monkeypatch):
    """Fails if `--ray local` reaches an engine, or leaves the one that it has started."""
    calls = []
    engine = SimpleNamespace(stop=lambda: calls.append("stop"))

    def started(*address, memory):
        assert memory > 0
        calls.append(address)
        return engine

    monkeypatch.setattr("vicinal.distributed.ray_cluster.RayCluster", started)
    with connect_ray("local") as found:
        assert found is engine
        assert calls == [(None,)]
    assert calls[1:] == ["stop"]


def test_ray_is_for_clusters(tmp_path):
    tools.make(tmp_path / "plain").close()
    for place in ("plain", "nothing"):
        told = run("serve", tmp_path / place, "--ray", "local", code=2)
        assert "vicinal shard" in told


def test_without_ray_there_is_one_sentence(cluster, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    told = run("serve", cluster, "--ray", "auto", code=2)
    assert "vicinal[ray]" in told


def test_a_cluster_is_changed_and_looked_after_as_a_store(tmp_path, cluster, queries):
    who = ["x", "x", "y", "person-3"]
    more = write_table(tmp_path / "more.csv", tools.X[:4] + 0.01, y=tools.Y[:4], who=who)
    run("add", cluster, data=more, label="y", subject="who")
    assert run("erase", "--yes", cluster, "--subject", "person-3", "--curator").endswith(
        "3 records were erased.\n"
    )
    assert "All is well" in run("verify", cluster, "--erased", "person-3")
    assert "enrolled" in run("verify", cluster, "--erased", "x", code=2)
    run("audience", cluster, "press", "--queries", 5)
    run("allow", cluster, "anna", 2, "--audience", "press")
    assert json.loads(run("inspect", cluster, "--json"))["shards"] == 2
    assert "PRIVATE" in run("inspect", cluster, "--curator")
    assert "privacy" in run("export-guarantee", cluster)
    run("backup", cluster, tmp_path / "backup")
    cluster.rename(tmp_path / "lost")
    run("restore", tmp_path / "backup", cluster)
    run("predict", cluster, "--data", queries)
    run("verify", cluster)


def test_how_long_a_block_waits_for_shards_is_an_option(cluster, queries, monkeypatch):
    """Fails if `predict` has another wait than the one that it was given."""
    monkeypatch.setattr(ShardServer, "handle", SILENT)
    said = run("predict", cluster, "--data", queries, "--shard-s", "0.05", code=2)
    assert "within 0.05 seconds" in said
    run("predict", cluster, "--data", queries, "--shard-s", "0", code=2)


def test_a_cluster_is_filled_from_a_folder_of_parts(tmp_path, cluster):
    """Each part once, whatever breaks off; and a model is trained on all of it."""
    folder, made = tmp_path / "parts", []
    folder.mkdir()
    for number in range(3):
        X, y = tools.points(40, 20 + number)
        made.append(make_table(X, label=y, who=[f"new-{i % 15}" for i in range(40)]))
        parquet.write_table(made[-1], folder / f"part-{number}.parquet")
    parquet.write_table(made[1].drop_columns(["who"]), folder / "part-1.parquet")
    add = ("add", cluster, "--data", folder, "--label", "label", "--subject", "who")
    assert "--key option must be given" in run(*add, code=2)
    said = run(*add, key="fill", code=2)
    assert "part-1.parquet" in said
    assert "Files added before it: 1." in " ".join(said.split())
    parquet.write_table(made[1], folder / "part-1.parquet")
    run(*add, key="fill")
    run(*add, key="fill")
    facts = json.loads(run("inspect", cluster, "--curator", "--json"))["private"].values()
    assert sum(one["records"] for one in facts) == 300 + 3 * 40
    assert sum(one["subjects"] for one in facts) == 150 + 15
    run("audience", cluster, "everybody", epsilon=8, queries=20, records=420)
    assert "stays in the model" in run("export-guarantee", cluster, audience="everybody")
    assert "All is well" in run("verify", cluster)


def test_a_cluster_on_ray_is_served_as_a_store(cluster, ray_engine):
    """Fails if the service of a cluster answers, changes or ends otherwise than that of a store."""
    keys = {role: run("keys", "add", cluster, role, role=role).strip() for role in ROLES}
    # On a busy machine, shards take long to start.
    options = ("--shard-s", "480", "--ray", get_address(ray_engine))
    with serving_process(cluster, keys, *options) as (service, process):
        assert service.predict(tools.Q[:3].tolist(), "analyst", "k").body["charged"] == 3
        assert service.predict(tools.Q[:3].tolist(), "analyst", "k").body["charged"] == 0
        body = {"vectors": (tools.X[:2] + 0.01).tolist(), "labels": [0, 1], "subjects": ["x", "x"]}
        assert service.call("POST", "/v1/records", body, "curator").body["version"] == 3
        assert service.call("DELETE", "/v1/subjects/person-3", key="curator").status == 200
        assert service.call("GET", "/v1/status").body["classes"] == [0, 1, 2]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=240) == 0
    shard_tools.in_peace(cluster)
    assert "All is well" in run("verify", cluster, erased="person-3")


def test_a_shard_that_is_missing_is_no_failure_of_the_service(cluster, monkeypatch, caplog):
    """Fails if the service gives up for good when a shard is away for a while."""
    with Coordinator.open(cluster, local_transports, 0.05) as opened:
        keys = {"analyst": run("keys", "add", cluster, "anna").strip()}
        keys["monitor"] = run("keys", "add", cluster, "prom", "--role", "monitor").strip()
        with listening(create_app(opened, cluster, FAST)) as port:
            service = Service(port, cluster, None, keys)
            with monkeypatch.context() as patch:
                patch.setattr(ShardServer, "handle", SILENT)
                gone = service.predict(tools.Q[:3].tolist())
                assert gone.status == 503
                assert gone.body["type"].endswith("shard-missing")
                assert gone.headers["retry-after"] == "5"
            assert "Shard 0: It is away." in caplog.text
            metrics = service.call("GET", "/metrics", key="monitor").body
            assert "vicinal_shard_missing_total 1\n" in metrics
            assert service.call("GET", "/healthz").status == 200
            with monkeypatch.context() as patch:
                patch.setattr(ShardServer, "handle", OUTDATED)
                wrong = service.predict(tools.Q[:3].tolist())
                assert wrong.status == 503
                assert wrong.body["type"].endswith("storage-failed"), "no quota is used up"
            assert "Shard 0 is an old copy." in caplog.text
            assert service.predict(tools.Q[:3].tolist()).body["charged"] == 3
