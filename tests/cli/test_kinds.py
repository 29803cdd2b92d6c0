"""What records carry, by where it can be used: every hole in the table is a decision with a reason.

A hole is tried, too: it must be refused, by name, before anything is spent.
"""

import inspect
import json

import pytest

import serving_tools
import shard_tools
import store_tools as tools
from command_line import printed
from vicinal.audit.catalogue import list_store_attacks
from vicinal.errors import InvalidInput
from vicinal.labelling import IndKNNLabeller
from vicinal.planning.plan import IndKNNPlan
from vicinal.predictors.averaging import ESTIMATORS
from vicinal.store.requests import ClassReply, LabelSetReply, NumberReply
from vicinal.targets.kinds import KINDS, declared_target

DECLARED = {
    "classes": (None, {"classes": range(3)}),
    "bounds": ("numbers", tools.TARGETS["numbers"][1]),
    "labels": ("labels", tools.TARGETS["labels"][1]),
}
"""By kind: its name in the tools of stores, and what declares it."""

REPLIES = {"classes": ClassReply, "bounds": NumberReply, "labels": LabelSetReply}
OPTIONS = {"classes": "--classes=3", "bounds": "--target=age=0..110", "labels": "--labels=a,b,c"}
ASKED = tools.Q[:35]


def made(path, kind, **more):
    return tools.make(path, DECLARED[kind][0], **more)


def carried(kind, size):
    return declared_target(DECLARED[kind][1]).make_examples(size)


def estimator(kind, _path):
    given = {**DECLARED[kind][1], "n_queries": 50, "n_records": 300, "interactions": "public"}
    fitted = ESTIMATORS[kind](**given)
    fitted.fit(tools.X, carried(kind, len(tools.X)), tools.PEOPLE, tools.R)
    assert len(fitted.predict(ASKED)) == len(ASKED)
    assert type(IndKNNPlan.from_estimator(fitted).target) is KINDS[kind]


def store(kind, path):
    names = declared_target(DECLARED[kind][1]).answer_columns
    with made(path / "store", kind) as opened:
        reply = opened.predict(ASKED)
        assert type(reply) is REPLIES[kind]
        assert {len(column) for column in reply.build_columns(names).values()} == {len(ASKED)}
        assert opened.verify().faults == ()


def cluster(kind, path):
    folder = shard_tools.clustered(path, 2, make=made, kind=kind)
    with shard_tools.local(folder) as opened:
        assert type(opened.predict(ASKED)) is REPLIES[kind]


def service(kind, path):
    with serving_tools.running(path, make=made, kind=kind) as running:
        assert running.predict(ASKED[:2].tolist()).status == 200


def evaluation(kind, path):
    with made(path / "store", kind) as opened:
        opened.predict(ASKED)
        assert opened.evaluate(
            ASKED, carried(kind, len(ASKED)), tools.PEOPLE[: len(ASKED)], accept_noise=True
        ).figures


def audit(kind, path):
    with made(path / "store", kind) as opened:
        assert list_store_attacks(opened.facts())


def command_line(kind, _path):
    assert json.loads(printed("plan", OPTIONS[kind], "--json", records=20_000, queries=500))["plan"]


def labelling(kind, _path):
    taken = {"classes", "bounds"} & inspect.signature(IndKNNLabeller).parameters.keys()
    assert kind in taken  # its `labels` are those of records


def planned(kind, **parameters):
    given = {**DECLARED[kind][1], "n_records": 60_000, **parameters}
    plan = IndKNNPlan.of_target(declared_target(given), given)
    return plan.choose_model_share(2000)


def private_model(kind, _path):
    assert planned(kind, model_share=0.7).model_share


def labels_alone(kind, _path):
    assert planned(kind, release="label").label_only


PLACES = {
    place.__name__: place
    for place in (
        estimator, store, cluster, service, evaluation, audit, command_line, labelling,
        private_model, labels_alone,
    )
}  # fmt: skip

AVERAGED = ("bounds", "labels")
HOLES = {
    "labelling": (AVERAGED, "a student learns classes: soft labels are probabilities of classes"),
    "labels_alone": (AVERAGED, "the price of a label alone is that of the largest of noisy votes"),
}
"""By place: the kinds that cannot be used there, and why that was decided."""


def test_every_kind_is_in_the_table():
    assert set(DECLARED) == set(OPTIONS) == set(KINDS) == set(ESTIMATORS) == set(REPLIES)
    assert set(HOLES) <= set(PLACES)
    assert all(set(kinds) <= set(KINDS) and reason for kinds, reason in HOLES.values())


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_records_carry_can_be_used_everywhere_but_in_a_named_hole(kind, place, tmp_path):
    if kind in HOLES.get(place, ((), ""))[0]:
        with pytest.raises((InvalidInput, AssertionError)):
            PLACES[place](kind, tmp_path)
    else:
        PLACES[place](kind, tmp_path)
