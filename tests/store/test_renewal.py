"""Renewal of budgets: one part per period, never more than the whole budget."""

import json
import math
import shutil
from contextlib import nullcontext
from dataclasses import asdict, replace
from datetime import date, timedelta

import numpy as np
import pytest

import shard_tools
import store_tools as tools
from store_tools import PEOPLE, PLAN, Q, R, X, Y, make, points
from store_tools import left_of as left
from vicinal.accounting.budget import UNITS, gdp_epsilon, zcdp_budget
from vicinal.accounting.guarantee import format_rounded_up
from vicinal.distributed import restore_cluster, split
from vicinal.errors import InvalidInput, PrivacyRefused, ShardMissing, StoreDamaged
from vicinal.planning.guarantees import compute_share_epsilon
from vicinal.store import Renewal, Store
from vicinal.store.folder import Folder
from vicinal.testing import no_noise, noise_from

pytestmark = pytest.mark.quick

START = date(2026, 1, 31)
LOUD = {"noise_multiplier": 0.5}
MODES = ("lost", "carried")


class Calendar:
    """Sets the date that stores find."""

    def __init__(self, patch):
        self.day = START
        patch.setattr("vicinal.ledger.renewal.get_today", lambda: self.day)

    def __call__(self, days):
        self.day = START + timedelta(days=days)


@pytest.fixture
def calendar(monkeypatch):
    return Calendar(monkeypatch)


def make_renewing_store(path, unspent="lost", every=10, periods=4, **plan):
    return make(path, renew=Renewal(every, periods, unspent), **{"model_share": 0, **plan})


def get_audience(store, audience="default"):
    return store._store.ledger.audiences[audience]


def begin_period(store):
    """Make a call that begins a period and charges no subject."""
    store.allow("nobody", None)


@pytest.mark.parametrize(
    ("every", "begins"),
    [
        ("monthly", ["2026-01-31", "2026-02-28", "2026-03-31", "2026-04-30"]),
        ("weekly", ["2026-01-31", "2026-02-07", "2026-02-14", "2026-02-21"]),
        ("daily", ["2026-01-31", "2026-02-01", "2026-02-02", "2026-02-03"]),
        (30, ["2026-01-31", "2026-03-02", "2026-04-01", "2026-05-01"]),
    ],
)
def test_periods_begin_on_public_dates(calendar, every, begins):
    renewal = Renewal(every, 14).begin(0.0, 28)
    assert [str(renewal.compute_first_day(period)) for period in (1, 2, 3, 4)] == begins
    assert renewal.next_date == begins[1]
    if every == "monthly":
        assert str(renewal.compute_first_day(14)) == "2027-02-28"
    for period, day in enumerate(begins[1:], 1):
        calendar.day = date.fromisoformat(day) - timedelta(days=1)
        assert renewal.advance_to_today(0).period == period
        calendar.day += timedelta(days=1)
        assert renewal.advance_to_today(0).period == period + 1
    assert renewal.advance_to_today(1).answers - 1 == 2
    assert renewal.advance_to_today(9).answers == 2 + 2, "answers beyond the part are of the next"


@pytest.mark.parametrize("unspent", MODES)
def test_parts_come_once_and_add_up_to_the_whole(tmp_path, calendar, unspent):
    """Also in a store that is never closed, and after several dates at once; then no more."""
    part = UNITS // 4
    with make_renewing_store(tmp_path / "store", unspent, **LOUD) as store:
        assert set(left(store).values()) == {part}
        store.predict(Q[:15])
        with pytest.raises(PrivacyRefused, match=r"0 of 15 answers left.*comes on 2026-02-10"):
            store.predict(Q[15:16])
        spent = left(store)
        assert min(spent.values()) < part // 10
        calendar(9)
        begin_period(store)
        assert left(store) == spent
        calendar(10)
        assert store.quota().left == 15, "what is due is known before it comes"
        ledger = store._store.ledger
        version, clock = store.version, ledger.clock
        for _ in range(3):
            begin_period(store)
        assert (store.version, store._store.witness.state.clock > clock) == (version, True)
        renewed = {who: part if unspent == "lost" else units + part for who, units in spent.items()}
        assert left(store) == renewed
        assert [e["what"] for e in store.facts()["history"]].count("renewal") == 1
        calendar(35)  # two at once
        begin_period(store)
        twice = {
            who: part if unspent == "lost" else units + 2 * part for who, units in renewed.items()
        }
        assert left(store) == twice
        assert store.quota().left == (15 if unspent == "lost" else 45)
        assert store.verify()
        for days in (1000, 30000):
            calendar(days)
            begin_period(store)
            assert left(store) == twice, "nothing comes after the last"
        assert get_audience(store).renewal.next_date is None
    with Store.open(tmp_path / "store") as store:
        assert left(store) == twice


def test_a_clock_takes_nothing_back_and_gives_at_most_the_whole(tmp_path, calendar):
    with make_renewing_store(tmp_path / "store", "carried") as store:
        calendar(25)
        begin_period(store)
        early = left(store)
        assert set(early.values()) == {3 * (UNITS // 4)}
        for days in (0, -400, 12, 25, 29):
            calendar(days)
            begin_period(store)
            assert left(store) == early
    calendar(-9)
    with Store.open(tmp_path / "store") as store:
        begin_period(store)
        assert left(store) == early
        calendar(10**5)
        begin_period(store)
        assert set(left(store).values()) == {4 * (UNITS // 4)}


@pytest.mark.parametrize("unspent", MODES)
@pytest.mark.parametrize("seed", range(3))
def test_nobody_ever_pays_more_than_has_come(tmp_path, calendar, unspent, seed):
    """Charges of every call add up correctly over queries, evaluations, erasures and additions."""
    rng = np.random.default_rng(seed)
    part, paid, in_period, period = UNITS // 6, {}, {}, 1
    store = make_renewing_store(
        tmp_path / "store", unspent, every=5, periods=6, n_queries=300, **LOUD
    )
    for step in range(40):
        calendar(int(step * rng.uniform(0.5, 1.2)))
        begin_period(store)
        if get_audience(store).renewal.period != period:
            period, in_period = get_audience(store).renewal.period, {}
        before = left(store)
        ask = points(12, rng.integers(1 << 30))[0]
        ask[:6] = ask[0]  # one neighbourhood pays
        ask[:6] += 1e-3 * rng.normal(size=(6, 4))
        if store.quota().left >= len(ask):
            store.predict(ask)
        if step % 7 == 3:
            known = [*rng.choice(PEOPLE, 7, replace=False), "visitor"]
            store.evaluate(ask[:8], Y[:8], known, share=0.1, accept_noise=True)
        after = left(store)
        for who, units in before.items():
            charge = units - after[who]
            assert charge >= 0
            paid[who] = paid.get(who, 0) + charge
            in_period[who] = in_period.get(who, 0) + charge
            most = part if unspent == "lost" else UNITS - (6 - period) * part
            assert in_period[who] <= (most if period > 1 else UNITS - 5 * part)
            assert paid[who] <= UNITS - (6 - period) * part, "more than has come"
        if step % 5 == 4:
            erased_ids = [str(one) for one in rng.choice(PEOPLE, 2)]
            store.erase(erased_ids)
            store.add(*points(3, step), [erased_ids[0], erased_ids[0], f"new {step}"])
        if step % 9 == 8:
            assert (found := store.verify()), found.faults
            store.close()
            store = Store.open(tmp_path / "store")
    assert max(paid.values()) > 0.9 * UNITS, "the test must reach the bound"
    store.close()


@pytest.mark.parametrize("unspent", MODES)
def test_nobody_else_pays_or_adds_anything_else_in_any_period(tmp_path, calendar, unspent):
    """Two worlds, with and without the subject near the queries; shifts are compared."""
    worlds, summed = [], [[], []]
    for number, here in enumerate((np.ones(len(X), bool), np.array(PEOPLE) != "person-7")):
        calendar(0)
        sums = summed[number]
        subject_ids = np.array(PEOPLE)[here]
        renew = Renewal(10, 3, unspent)
        plan = {**PLAN, **LOUD, "model_share": 0, "renew": renew, "simulation_seed": 1}
        world = Store.init(
            tmp_path / str(number), X[here], Y[here], subject_ids, classes=range(3), public=R,
            n_records=300, **plan,
        )  # fmt: skip
        seen = []
        for period in range(3):
            calendar(10 * period)
            away = Q[period * 6 : period * 6 + 6]
            near = X[14:16] + 1e-3 * (period + 1)  # near the records of person-7
            far = away[~np.isin(points(60, 2)[1][period * 6 : period * 6 + 6], Y[14:16])][:1]
            for asked in (near, away, far + 1e-4):
                sums.append(world.predict(asked).votes)
            if period == 1:
                world.erase(["person-7"])
            who = left(world)
            who.pop("person-7", None)
            seen.append((who, get_audience(world).renewal))
        worlds.append(seen)
        world.close()
    assert worlds[0] == worlds[1]
    apart = [not np.array_equal(*pair) for pair in zip(*summed, strict=True)]
    assert apart[0], "the person must take part"
    assert apart[3], "and with a new part again"
    assert not apart[2], "others add the same where the person is far"
    assert not apart[5]
    assert not any(apart[6:]), "once gone, nothing of them is left in what others add"


@pytest.mark.parametrize("unspent", MODES)
def test_who_leaves_finds_what_was_left_and_later_what_came(tmp_path, calendar, unspent):
    part = UNITS // 4
    with make_renewing_store(tmp_path / "store", unspent, **LOUD) as store:
        store.predict(X[:2])
        spent = tools.units(store, "person-0")
        assert spent < part // 2
        for days, least in ((0, spent), (10, part if unspent == "lost" else spent + part)):
            store.erase(["person-0"])
            calendar(days)
            store.add(X[:1], Y[:1], ["person-0"])
            assert tools.units(store, "person-0") == least
        store.add(X[:1], Y[:1], ["new"])
        assert tools.units(store, "new") == (part if unspent == "lost" else 2 * part)
        store.predict(Q[:5])
        store.evaluate(Q[:5], Y[:5], ["visitor"] * 5, share=0.2, accept_noise=True)
        ledger = store._store.ledger
        before = ledger.load_unenrolled_units(get_audience(store), ["visitor", "nobody"]).tolist()
        assert before[0] < before[1] == (part if unspent == "lost" else 2 * part)
        calendar(20)
        begin_period(store)
        after = ledger.load_unenrolled_units(get_audience(store), ["visitor", "nobody"]).tolist()
        assert after == ([part, part] if unspent == "lost" else [one + part for one in before])
        assert (found := store.verify()), found.faults


def test_a_store_whose_loss_was_accepted_renews_nothing(tmp_path, calendar):
    with make_renewing_store(tmp_path / "store") as store:
        store.predict(Q[:15])
        store.backup(tmp_path / "backup")
    calendar(10)
    with Store.restore(tmp_path / "backup", tmp_path / "new", accept_loss=True) as store:
        for days in (10, 20, 30, 1000):
            calendar(days)
            store.add(X[:1], Y[:1], [f"new {days}"])
            assert set(left(store).values()) == {0}
        assert store.verify()
        assert store.quota().left <= 15


def test_training_is_paid_from_the_first_part(tmp_path, calendar):
    """Nine tenths of it, unless a share of the whole is declared; noise fits the other parts."""
    plain = make(tmp_path / "plain", noise_multiplier="auto", n_neighbors="auto", model_share=0)
    with (
        plain,
        make_renewing_store(tmp_path / "even", noise_multiplier="auto", n_neighbors="auto") as even,
    ):
        one, other = (each._audience_states["default"].engine for each in (plain, even))
        assert one.noise_multiplier == other.noise_multiplier, "1/P of budget pays 1/P of answers"
    for unspent in MODES:
        calendar(0)
        kinds = {"noise_multiplier": "auto", "n_neighbors": "auto", "model_share": "auto"}
        with make_renewing_store(tmp_path / unspent, unspent, **kinds) as store:
            share = 0.9 / (4 * 0.1 + 0.9)
            state, renewal = store._audience_states["default"], get_audience(store).renewal
            assert math.isclose(state.plan.model_share, share)
            assert renewal.part == int((1 - share) * UNITS) // 4
            assert math.isclose(renewal.released_units / UNITS, share / 0.9)
            assert renewal.part < max(left(store).values()) <= renewal.released_units
            if unspent == "lost":
                assert math.isclose(state.plan.get_vote_share(state.private_model.model), 1 - share)
            gates = [state.engine.model_gate.max_private_queries]
            calendar(30)
            begin_period(store)
            gates.append(state.engine.model_gate.max_private_queries)
            assert gates == [math.ceil(6 * 15 / 60), 6 if unspent == "carried" else 2]
            assert store.verify()


def test_the_size_is_paid_from_the_first_part(tmp_path, calendar):
    calendar(0)
    ids = np.repeat([f"many-{i}" for i in range(30)], 10)
    plan = {"classes": range(3), "public": R, "model_share": 0, "epsilon": 4.0, "n_queries": 60}
    with Store.init(tmp_path / "s", X, Y, ids, renew=Renewal("daily", 60), **plan) as store:
        renewal = get_audience(store).renewal
        assert renewal.part == int(0.95 * UNITS) // 60
        assert renewal.part <= min(left(store).values()) < renewal.released_units - 0.04 * UNITS


@pytest.mark.parametrize("accounting", ["gdp", "rdp", "label"])
def test_the_guarantee_states_a_part_and_the_whole(tmp_path, calendar, accounting):
    calendar(0)
    kinds = {"release": "label"} if accounting == "label" else {"accounting": accounting}
    with make_renewing_store(tmp_path / "store", "carried", **kinds) as store:
        stated, settings = store.guarantee(), store._audience_states["default"].plan
        assert (stated.epsilon, stated.delta) == (4.0, settings.delta)
        part = compute_share_epsilon(settings, 0.25)
        assert f"of each later period by at most e^{format_rounded_up(part)}" in str(stated)
        assert any("clock is right" in words for words in stated.assumptions)
        assert "4 parts, one every 10 days, and what is not spent is carried" in stated.periods
        assert stated.periods in store.facts()["audiences"]["default"]["guarantee"]["text"]
        half, whole = (compute_share_epsilon(settings, share) for share in (0.5, 1.0))
        assert 1.0 < part < half < whole <= 4.0
        if accounting == "gdp":
            budget = zcdp_budget(4.0, settings.delta * 0.99)
            least = gdp_epsilon(math.sqrt(budget / 2), settings.delta * 0.99)
            assert least <= part <= least * (1 + 1e-6)


@pytest.mark.parametrize("unspent", MODES)
def test_a_total_binds_what_renews(tmp_path, calendar, unspent):
    calendar(0)
    plan = {**LOUD, "n_records": 300, "model_share": 0}
    with make_renewing_store(tmp_path / "store", unspent, epsilon_total=4.0, **LOUD) as store:
        store.open_audience("plain", **{**PLAN, **plan})
        for period in range(4):
            calendar(10 * period)
            store.predict(Q[period * 15 : period * 15 + 15])
            store.predict(Q[period * 15 : period * 15 + 15], audience="plain")
            total = store._store.ledger.total
            account = total.audience.account.remaining
            assert (account >= 0).all()
            assert (
                get_audience(store).account.remaining <= total.compute_max_units(1, account)
            ).all()
            assert (found := store.verify()), found.faults
        assert account.min() < UNITS // 100
        late = Renewal(10, 2, unspent)
        store.open_audience("late", renew=late, **{**PLAN, **plan})
        assert (
            get_audience(store, "late").account.remaining <= total.compute_max_units(3, account)
        ).all()
        assert store.verify()


def test_what_a_stranger_wrote_is_refused_or_works(calendar):
    good = asdict(Renewal("monthly", 4).begin(0.0, 60))
    calendar(400)
    junk = [None, 0, -1, 2**70, 1.5, "x", "", [], {}, True, "9999-12-31", math.nan]
    for fields in [*junk[1:], *({**good, name: value} for name in good for value in junk)]:
        try:
            found = Renewal.from_plan(json.dumps({"renewal": fields}))
        except StoreDamaged:
            continue
        assert 0 <= found.advance_to_today(0).max_units <= UNITS


def test_what_cannot_renew_is_refused(tmp_path, calendar):
    calendar(0)
    schedules = {
        "'renew' parameter must be 'monthly'": ("yearly", 3),
        "'renew' parameter must be an integer": (0, 3),
        "'renew' parameter": (367, 4),
        "'periods' parameter": ("daily", 1),
        "'periods' parameter must": (10, 367),
        "'unspent' parameter": ("daily", 2, "kept"),
    }
    for words, arguments in schedules.items():
        with pytest.raises(InvalidInput, match=words):
            Renewal(*arguments)
    assert Renewal(366, 366).periods == 366
    renewal = Renewal(np.int64(10), np.int64(4))
    assert json.loads(json.dumps(renewal.to_dict()))["periods"] == 4
    plans = {
        "'n_queries' parameter must be at least 4": {"n_queries": 3},
        "'interactions' parameter must be 1": {"interactions": 2},
        "'model_refreshes' parameter must be 0": {"model_refreshes": 1},
    }
    for words, plan in plans.items():
        with pytest.raises(InvalidInput, match=words):
            make_renewing_store(tmp_path / "s", **plan)
    assert not (tmp_path / "s").exists()
    with make_renewing_store(tmp_path / "s") as store:
        store.predict(Q[:5])
        with pytest.raises(InvalidInput, match=r"'share' parameter must be at most 0\.25"):
            store.evaluate(Q[:5], Y[:5], ["v"] * 5, share=0.26, accept_noise=True)


@pytest.mark.parametrize("unspent", MODES)
def test_a_cluster_renews_as_its_store_does(tmp_path, calendar, unspent):
    """Split between two dates, asked, erased from, returned to, and given a further audience."""
    path, more = tmp_path / "cluster", {**PLAN, "n_records": 300, "model_share": 0.3}

    def halved(store, days, act):
        calendar(days)
        act(store)
        version = store.version if days < 21 else 0  # a cluster's model is a change of its own
        return store.quota().left, store.facts()["audiences"]["default"]["renewal"], version

    with make_renewing_store(tmp_path / "s", unspent, **LOUD) as one:
        one.predict(Q[:15])
    shutil.copytree(tmp_path / "s", tmp_path / "twin")
    moved = Folder.read(tmp_path / "twin")
    shutil.copy(moved.witness, tmp_path / "twin.witness")
    replace(moved, witness=tmp_path / "twin.witness").save()
    calendar(9)
    split(tmp_path / "s", path, 2)
    acts = {
        9: lambda store: store.predict(Q[15:16]) if store.quota().left else None,
        10: lambda store: store.predict(Q[15:25]),
        15: lambda store: store.erase([PEOPLE[0]]),
        20: lambda store: store.add(X[:1], Y[:1], [PEOPLE[0]]),
        21: lambda store: store.open_audience("more", renew=Renewal(3, 4, unspent), **more),
        25: lambda store: store.predict(Q[:10], audience="more"),
        1000: begin_period,
    }
    for days, act in acts.items():
        with noise_from(no_noise()), Store.open(tmp_path / "twin") as store:
            expected, units = halved(store, days, act), left(store)
            assert store.verify()
            later = left(store, "more") if days > 20 else {}
        with noise_from(no_noise()), shard_tools.local(path) as cluster:
            assert halved(cluster, days, act) == expected, days
            assert (found := cluster.verify()), found.faults
        assert shard_tools.budgets(path) == units, days
        assert not later or shard_tools.budgets(path, "more") == later, days


def test_a_cluster_renews_when_every_shard_is_there(tmp_path, calendar):
    """Meanwhile it answers nothing, and nothing is renewed."""
    with make_renewing_store(tmp_path / "s") as store:
        store.predict(Q[:10])
    split(tmp_path / "s", tmp_path / "cluster", 3)
    before = shard_tools.budgets(tmp_path / "cluster")
    calendar(10)
    away = tmp_path / "cluster" / "shard-1"
    shutil.move(away, tmp_path / "away")
    with pytest.raises(ShardMissing), shard_tools.local(tmp_path / "cluster") as cluster:
        begin_period(cluster)
    shutil.move(tmp_path / "away", away)
    with shard_tools.heard(tmp_path / "cluster", shard_tools.Dead(), 0.2) as cluster:
        with pytest.raises(ShardMissing):
            begin_period(cluster)
        assert not cluster._changes.is_unfinished, "no period was decided"
    assert shard_tools.budgets(tmp_path / "cluster") == before
    with shard_tools.local(tmp_path / "cluster") as cluster:
        begin_period(cluster)
    assert set(shard_tools.budgets(tmp_path / "cluster").values()) == {UNITS // 4}
    with shard_tools.local(tmp_path / "cluster") as cluster:
        assert [e["what"] for e in cluster.facts()["history"]].count("renewal") == 1


@pytest.mark.parametrize("away", [False, True])
def test_a_cluster_in_its_next_period_is_as_its_store(tmp_path, calendar, away):
    """Repeated answers are not charged, and the model plans for the released part of answers."""
    with make_renewing_store(tmp_path / "s", "carried", model_share=0.3) as store:
        store.predict(Q[:3])
    split(tmp_path / "s", tmp_path / "cluster", 2)
    late = shard_tools.Dead("SetAudience", 10**9 if away else 0)
    with shard_tools.heard(tmp_path / "cluster", late, 0.2) as cluster:
        gate = cluster._audience_states["default"].engine.model_gate
        before = gate.max_private_queries
        calendar(11)
        with pytest.raises(ShardMissing) if away else nullcontext():
            begin_period(cluster)
        late.messages = 0
        assert cluster.predict(Q[:3]).charged == 0
        now = gate.max_private_queries
    with shard_tools.local(tmp_path / "cluster") as cluster:
        assert (
            cluster._audience_states["default"].engine.model_gate.max_private_queries
            == now
            > before
        )


def test_a_cluster_whose_loss_was_accepted_renews_nothing(tmp_path, calendar):
    make_renewing_store(tmp_path / "s").close()
    split(tmp_path / "s", tmp_path / "old", 2)
    with shard_tools.local(tmp_path / "old") as cluster:
        cluster.backup(tmp_path / "backup")
    restore_cluster(tmp_path / "backup", tmp_path / "cluster", accept_loss=True)
    for days in (0, 10, 1000):
        calendar(days)
        with shard_tools.local(tmp_path / "cluster") as cluster:
            cluster.add(X[:1], Y[:1], [f"new {days}"])
        assert set(shard_tools.budgets(tmp_path / "cluster").values()) == {0}


def test_a_clock_that_leaves_no_dates_for_all_periods_is_refused(tmp_path, calendar):
    """Fails if a plan is committed that the next opening refuses as damaged."""
    make(tmp_path / "store").close()
    calendar.day = date(9990, 1, 31)
    with pytest.raises(InvalidInput, match="before the year 10000"):
        make_renewing_store(tmp_path / "new", every="monthly", periods=200)
    assert not (tmp_path / "new").exists()
    with Store.open(tmp_path / "store") as store:
        plan = {**PLAN, "renew": Renewal("monthly", 200), "model_share": 0}
        with pytest.raises(InvalidInput, match="before the year 10000"):
            store.open_audience("second", **plan)
        store.predict(Q[:1])
    with Store.open(tmp_path / "store") as store:
        assert store.audiences == ("default",)


@pytest.mark.parametrize("damage", ["{", '{"renewal": {"every": 1, "periods": 9, "period": 10}}'])
def test_a_change_that_no_opening_could_read_is_not_committed(tmp_path, damage):
    """Before each commit the rows of audiences are read as an opening reads them."""
    with make(tmp_path / "store") as store:
        store.predict(Q[:1])
        get_audience(store).plan = damage
        change = store._store.ledger.change("add")
        with pytest.raises(StoreDamaged), store._change_data(), change:
            get_audience(store).write_row(store._store.database)
    with Store.open(tmp_path / "store") as store:
        assert store.verify()
        store.predict(Q[1:2])
