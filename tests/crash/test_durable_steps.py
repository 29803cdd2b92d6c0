"""No command that breaks off gives a budget back, answers uncharged, or leaves what nobody opens.

Every command is broken off before and after each of its durable steps (durable_steps.py), by a
kill, an interrupt and a full disk. The short form takes every step of an accepted loss, of a
restore, and of a store that retires; the soak every step of every command, with its ledger on
SQLite and on PostgreSQL.
"""

import json
import os
import re
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

import shard_tools
import store_tools as tools
from command_line import printed
from crash.durable_steps import COMMANDS, FULL, INTERRUPT, KILL, ledger_in
from crash.store_watch import Spawner
from vicinal.accounting.budget import UNITS
from vicinal.cli.main import app
from vicinal.distributed import Coordinator, is_cluster, split
from vicinal.distributed.transports import local_transports
from vicinal.errors import VicinalError
from vicinal.store import Renewal, Store
from vicinal.store.folder import SOCKET
from vicinal.testing import remaining_budgets

LOST = "accept the loss"
DONE = ("done", "must be a new folder", "was split")
"""How a command ends that is repeated once it was carried out."""


@dataclass(frozen=True)
class Case:
    """A command on a template of :func:`make`.

    `holders`: what may answer afterwards, one of them. `accept`: a loss is accepted. `again`: its
    repetition ends alike. `exact`: its steps have one order. `drawn`: noise sets charges.
    """

    command: str
    template: str = "store"
    holders: tuple[str, ...] = ("store",)
    accept: bool = False
    again: bool = True
    exact: bool = True
    drawn: bool = False

    def __str__(self):
        return f"{self.command}-{self.template}".replace(" ", "-")


LOSSES = [
    *(Case("opening", name, accept=True) for name in ("witness gone", "other way")),
    Case("restore", "old backup", ("new", "store"), accept=True),
    *(Case("opening", name, accept=True) for name in ("old", "witness damaged")),
]
RESTORE, SHARD = (
    Case("restore", "backup", ("new", "store")), Case("shard", holders=("cluster", "store"))
)  # fmt: skip
CHANGES = [
    Case("init", "nothing"), Case("opening"), Case("opening", "erasing"), Case("predict"),
    Case("evaluate", again=False), Case("add"), Case("erase"), Case("audience"),
    Case("training"), Case("allow"), Case("backup"),
    Case("refresh", "model", again=False, drawn=True),
    Case("service", again=False, exact=False),
]  # fmt: skip
IN_CLUSTER = {"template": "cluster", "holders": ("cluster",)}
CLUSTERS = [
    *(Case(name, **IN_CLUSTER) for name in ("opening", "predict", "erase", "audience", "backup")),
    Case("evaluate", **IN_CLUSTER, again=False), Case("training", **IN_CLUSTER),
    Case("refresh", "model cluster", ("cluster",), again=False),
    Case("add", **IN_CLUSTER, exact=False),
    Case("cluster_restore", "cluster backup", ("cluster",)),
    *(
        Case(command, template, ("cluster",), accept=True)
        for command, template in (
            ("opening", "old shard"), ("opening", "shard put back"),
            ("opening", "coordinator put back"), ("cluster_restore", "old cluster backup"),
        )
    ),
]  # fmt: skip


# ---------------------------------------------------------------- where it is done


class Workplace:
    """A folder in which templates are put, always at the same path, and databases likewise.

    `server`: URL of a PostgreSQL server without a database; None: SQLite. `databases`: names of
    those that the command uses: "case", and "other" for a store that is restored.
    """

    databases = ("case",)

    def __init__(self, root, spawner, server=None):
        self.place, self.root, self.spawner, self.server = root / "place", root, spawner, server
        self.truths = {}

    def put(self, name):
        """Put a copy of a template here."""
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.root / name, self.place)
        for database in self.databases:
            self.database(database, f"{name} {database}")

    def keep(self, name):
        """Make a template of what is here."""
        shutil.rmtree(self.root / name, ignore_errors=True)
        # A service that was killed leaves its socket, which nobody can copy.
        without = shutil.ignore_patterns(SOCKET)
        shutil.copytree(self.place, self.root / name, ignore=without)
        for database in self.databases:
            self.database(f"{name} {database}", database)

    def empty(self):
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir()
        for database in self.databases:
            self.database(database)
        if self.server:
            (self.place / "url").write_text(self.server)

    def database(self, name, template="template0"):
        if self.server:
            import psycopg

            with psycopg.connect(self.server.format("postgres"), autocommit=True) as connection:
                connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
                connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')

    def run(self, case, last=0, fault=KILL):
        """Carry a command out in a process of its own; return its exit code and what it said."""
        said = self.root / "said.json"
        said.unlink(missing_ok=True)
        order = {"command": case.command, "accept": case.accept, "last": last, "fault": fault}
        config = os.environ.get("XDG_CONFIG_HOME", "")
        code = self.spawner.order(place=self.place, said=said, config=config, **order)
        return code, json.loads(said.read_text()) if said.exists() else {}


def make(at, template):
    """Make a template and keep it; return what everybody has left in it, or had before a loss."""
    at.empty()
    store = at.place / "store"
    if template == "nothing":
        at.keep(template)
        return {}
    plan = {"model_share": 0.3, "model_refreshes": 2} if template.startswith("model") else {}
    plan |= {"simulation_seed": 3} if template == "model cluster" else {}
    with tools.make(store, ledger=ledger_in(at.place, "case"), **plan) as here:
        here.predict(tools.Q[:6], idempotency_key="k")
    holder = at.place / "cluster" if CLUSTER_TEMPLATE.search(template) else store
    if holder != store:
        split(store, holder, 2)
        shutil.rmtree(store)
    truth = budgets(holder)
    if template.endswith("backup"):
        with opened(holder) as here:
            here.backup(at.place / "backup")
    if template not in ("store", "model", "cluster", "model cluster", "backup", "cluster backup"):
        at.keep("earlier")
        with opened(holder) as here:
            here.predict(tools.Q[6:12])
            if template in ("old", "other way", "old backup", "old cluster backup"):
                here.open_audience("lost", n_records=300, **tools.PLAN)
                here.erase(["person-9"])
        truth = budgets(holder)
    lose(at, template, holder)
    at.keep(template)
    return truth


CLUSTER_TEMPLATE = re.compile("cluster|shard|put back")


def lose(at, template, holder):
    """Lose what a template has lost."""
    witness, kept = at.place / "store.witness", at.root / "earlier"
    parts = at.place / "cluster.witnesses"
    match template:
        case "old" | "other way":
            content = witness.read_bytes()
            at.put("earlier")
            if template == "other way":
                with Store.open(holder) as here:
                    for number in range(20, 30):
                        here.predict(tools.Q[number : number + 1])
            witness.write_bytes(content)
        case "witness gone":
            witness.unlink()
        case "witness damaged":
            content = witness.read_bytes()
            witness.write_bytes(content[:40] + bytes([content[40] ^ 1]) + content[41:])
        case "old backup" | "cluster backup" | "old cluster backup":
            shutil.rmtree(holder)
        case "erasing":
            cut = tools.broken_off(pytest.MonkeyPatch(), "vicinal.store.erasure._truncate_files")
            with cut, Store.open(holder) as here:
                here.erase(["person-1"])
        case "old shard" | "shard put back" | "coordinator put back":
            part = "coordinator" if template.startswith("coordinator") else "shard-1"
            shutil.rmtree(holder / part)
            shutil.copytree(kept / "cluster" / part, holder / part)
            if template.endswith("put back"):
                shutil.copy(kept / "cluster.witnesses" / part, parts / part)


# ---------------------------------------------------------------- what must hold


def opened(path, *, accept=False):
    if is_cluster(path):
        return Coordinator.open(path, local_transports, shard_tools.PATIENCE, accept_loss=accept)
    return Store.open(path, accept_loss=accept)


def budgets(path, *, accept=False):
    """Open what lies at a path, check it, and return what everybody has left for each audience."""
    with opened(path, accept=accept) as answering:
        assert (found := answering.verify()), found.faults
        names = answering.audiences
        if isinstance(answering, Store):
            return {name: remaining_budgets(answering, name) for name in names}
    left = {name: shard_tools.budgets(path, name) for name in names}
    return {name: {who: units / UNITS for who, units in left[name].items()} for name in names}


def in_force(at, holders):
    """Return the budgets of all holders that open, one after the other, and why others do not."""
    found, refused = [], []
    for name in holders:
        try:
            found.append(budgets(at.place / name))
        except VicinalError as error:
            refused.append(str(error))
        else:
            if len(holders) > 1:
                with opened(at.place / name) as here:
                    here.predict(tools.Q[50:51])  # the next one must not answer as well
    return found, refused


def check(case, found, refused, before, after):
    """Nobody has more than before, or less than they will; of all holders one answers, or none."""
    assert len(found) <= 1, "budgets are in two places"
    for audience, people in (found[0] if found else {}).items():
        earlier, later = before.get(audience, {}), after.get(audience, {})
        for person, units in people.items():
            assert person in earlier or person in later, "an erased person came back"
            least = 0 if case.drawn else later.get(person, 0)
            most = earlier.get(person, later.get(person, 0))
            assert least <= units <= most, "a budget came back, or was lost"
    if not found:
        assert case.accept or case.command in ("init", "cluster_restore"), refused
        assert all(LOST in why or "There is no" in why for why in refused), refused


def repeated(at, case):
    """Repeat a command, after doing what its refusals say; return how it ended."""
    made_at = {"restore": "new", "shard": "cluster", "backup": "backup", "init": "store"}
    target = at.place / made_at.get(case.command, "cluster")
    for _ in range(5):
        try:
            COMMANDS[case.command](at.place, lambda: None, accept=case.accept)
        except VicinalError as error:
            way = str(error)
        else:
            return "done"
        names = ("store.json", "shard.json", "cluster.json")
        half = not any((target / name).exists() for name in names)
        if "drop its tables" in way:
            at.database("other" if case.command == "restore" else "case")
        elif "Move it away" in way:
            (at.place / "store.witness").unlink(missing_ok=True)
        elif "delete that folder" in way:
            shutil.rmtree(at.place / "cluster.witnesses")
        elif "Delete this cluster" in way or ("you can delete it" in way and half):
            shutil.rmtree(target)
        else:
            return way
    return pytest.fail("there is no way on")


def answering(at, case):
    """Return the budgets of whatever is in force, once a loss is accepted that may be accepted."""
    for name in case.holders:
        try:
            return budgets(at.place / name, accept=case.accept)
        except VicinalError:
            continue
    return pytest.fail("nothing answers")


RETIRING = 14
"""Steps of a split from the moment on in which its cluster has a description."""


def truth_of(at, case):
    """Return budgets before and after a command that nothing breaks off, and its points."""
    at.databases = ("case", "other") if case.command == "restore" else ("case",)
    if case.template not in at.truths:
        at.truths[case.template] = make(at, case.template)
    if case not in at.truths:
        at.put(case.template)
        code, said = at.run(case)
        assert (code, said["ended"], said["held"]) == (0, "done", []), said
        at.truths[case] = after, points = answering(at, case), said["points"]
        known = at.truths[case.template]
        if case.accept:  # whom the lost history had erased, it erases again
            assert all(left.keys() <= known[one].keys() for one, left in after.items())
        assert points in range(6, 2000, 2)
    return at.truths[case.template], *at.truths[case]


def break_off(at, case, last, fault):
    """Break a command off at a point, and check what is left."""
    before, after, _ = truth_of(at, case)
    at.put(case.template)
    code, said = at.run(case, last, fault)
    if case.exact:
        assert code == (-9 if fault == KILL else 0)
    assert not said.get("held"), "a lock is left"
    at.keep("half")
    for holders in {case.holders, case.holders[::-1]}:
        at.put("half")
        # A store whose loss was accepted has nothing left; a cluster, what is known of each shard.
        spent = case.accept and "cluster" not in case.holders
        paid = said.get("answered") and not case.drawn
        earlier = after if spent or paid else before
        check(case, *in_force(at, holders), earlier, after)
    if case.again:
        at.put("half")
        ended = repeated(at, case)
        assert any(one in ended for one in DONE), ended
        assert answering(at, case) == after, ended


def every_step(at, case, *, short=False, first=1):
    """Break a command off before and after each step.

    A disk is full before a step only. Nothing durable lies between a kill after a step and one
    before the next, so the short form takes one of the two; and a few full disks and interrupts.
    """
    points = truth_of(at, case)[2]
    whole = (KILL, 0, 1), (FULL, 0, 2), (INTERRUPT, 0, 1)
    for fault, start, by in ((KILL, 0, 2), (FULL, 0, 8), (INTERRUPT, 5, 8)) if short else whole:
        for last in range(first + start, points + 1, by):
            try:
                break_off(at, case, last, fault)
            except (AssertionError, pytest.fail.Exception) as error:
                raise AssertionError(f"{case}: {fault} at {last} of {points}: {error}") from error


@pytest.fixture(scope="module")
def spawner(tmp_path_factory):
    spawner = Spawner(tmp_path_factory.mktemp("spawner"), "durable_steps.py")
    yield spawner
    spawner.close()


@pytest.fixture(scope="module")
def workplace(tmp_path_factory, spawner):
    return Workplace(tmp_path_factory.mktemp("workplace"), spawner)


@pytest.fixture(scope="module")
def on_server(tmp_path_factory, spawner, postgres):
    return Workplace(tmp_path_factory.mktemp("server"), spawner, postgres)


@pytest.mark.parametrize(
    "case", [pytest.param(LOSSES[0], marks=pytest.mark.quick), *LOSSES[1:3], RESTORE], ids=str
)
def test_a_loss_or_a_restore_that_breaks_off_gives_nothing_back(workplace, case):
    """Fails if a witness agrees with a ledger before what makes that right is committed."""
    every_step(workplace, case, short=True)


def test_a_store_that_breaks_off_as_it_retires_answers_once(workplace):
    """Fails if store and cluster both answer, or neither, whatever step breaks off at the end."""
    first = truth_of(workplace, SHARD)[2] - 2 * RETIRING + 1
    workplace.put(SHARD.template)
    workplace.run(SHARD, first)
    assert not is_cluster(workplace.place / "cluster"), "these are not all steps"
    every_step(workplace, SHARD, short=True, first=first)


@pytest.mark.parametrize(
    ("holder", "stride"),
    [("store", 1), ("cluster", 9), pytest.param("cluster", 1, marks=pytest.mark.soak)],
)
def test_a_renewal_that_breaks_off_happens_once(workplace, monkeypatch, holder, stride):
    """Two parts are due: both come or none, on all shards, and the next command misses none."""
    begun = datetime.now(UTC).date() - timedelta(days=65)  # far from the next date: it is midnight
    with monkeypatch.context() as patch:
        patch.setattr("vicinal.ledger.renewal.get_today", lambda: begun)
        workplace.empty()
        plan = {"renew": Renewal(30, 4, "carried"), "model_share": 0}
        with tools.make(workplace.place / "store", **plan) as store:
            store.predict(tools.Q[:15])
        if holder == "cluster":
            split(workplace.place / "store", workplace.place / holder, 2)
    before = budgets(workplace.place / holder)["default"]
    after = {person: units + 2 / 4 for person, units in before.items()}
    workplace.keep("renewing")
    case, last, found = Case("allow", "renewing"), 0, []
    while True:
        workplace.put("renewing")
        _, said = workplace.run(case, last := last + stride)
        if said.get("ended") == "done":
            break
        found.append(budgets(workplace.place / holder)["default"])
        assert found[-1] in (before, after), last
        for _ in range(2):  # the next command, and one more
            COMMANDS["allow"](workplace.place, lambda: None, accept=False)
            assert budgets(workplace.place / holder)["default"] == after
    assert before in found
    assert after in found


INTERRUPTED = {
    "add": "an addition of records",
    "erase": "an erasure",
    "audience": "a new audience",
    "predict": "a commit of answers, charges or a quota",
}
"""Pending change that `vicinal verify` names after a kill of a command."""


@pytest.mark.parametrize(
    "case",
    [
        *(Case(name) for name in ("add", "erase", "audience", "predict")),
        *(Case(name, **IN_CLUSTER) for name in ("add", "erase", "audience")),
    ],
    ids=str,
)
def test_verify_names_the_change_that_a_kill_left_pending(workplace, case):
    """Fails if the message lacks the change, or if the command that it names completes nothing."""
    points = truth_of(workplace, case)[2]
    holder = workplace.place / case.holders[0]
    pending = []
    for last in range(points, 0, -2):
        workplace.put(case.template)
        workplace.run(case, last)
        result = CliRunner().invoke(app, ["verify", str(holder)])
        if result.exit_code == 0:
            continue
        message = " ".join(result.output.split())
        assert result.exit_code == 3, message
        assert "A command was interrupted here. Nothing was lost." in message
        pending.append(message.partition("To be completed: ")[2].partition(". This")[0])
        printed("backup", holder, workplace.place / "completed")
        assert "All is well" in printed("verify", holder)
        if INTERRUPTED[case.command] in pending:
            return
    pytest.fail(f"The change was not named, but: {pending}")


@pytest.mark.parametrize("case", [Case("predict"), LOSSES[0]], ids=str)
def test_charges_and_a_loss_on_a_server_that_break_off_give_nothing_back(on_server, case):
    every_step(on_server, case, short=True)


@pytest.mark.soak
@pytest.mark.parametrize("case", [*LOSSES, RESTORE, *CHANGES, SHARD, *CLUSTERS], ids=str)
def test_no_step_of_a_command_gives_anything_back(workplace, case):
    every_step(workplace, case)


@pytest.mark.soak
@pytest.mark.parametrize("case", [*LOSSES, RESTORE, *CHANGES, SHARD], ids=str)
def test_no_step_of_a_command_on_a_server_gives_anything_back(on_server, case):
    every_step(on_server, case)
