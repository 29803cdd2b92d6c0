"""Private-kNN as a labeller: costs add up over rounds and persist after a kill."""

import numpy as np
import pytest

from labelling.jobs import labelled
from vicinal.accounting import account
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.labelling import LabellingPlan, PrivateKNNLabeller, Round
from vicinal.labelling.labellers import ABSTAINED
from vicinal.predictors import PrivateKNNClassifier

C = 3


def knn(part, **options):
    sigma = 5.0 if part.share < 0.5 else 4.0
    defaults = {
        "n_neighbors": 30, "sampling_rate": 0.3, "sigma_votes": sigma, "simulation_seed": None,
    }  # fmt: skip
    return PrivateKNNClassifier(range(C), **{**defaults, **options})


def plan(queries=300):
    return LabellingPlan((Round(queries, 0.4, 0.7, None), Round(queries, 0.6, 0.9, None)))


def test_rounds_cost_what_the_account_of_all_their_releases_says(world):
    labeller = PrivateKNNLabeller(knn, plan(), world[1])
    releases = [
        {**release, "count": 300}
        for part in plan().rounds
        for release in knn(part).set_params(n_queries=300).plan()["releases"]
    ]
    priced = account({"delta": 1e-5, "releases": releases})
    guarantee = labeller.guarantee()
    assert guarantee.epsilon == priced["epsilon"]
    alone = knn(plan().rounds[0]).set_params(n_queries=300).guarantee().epsilon
    assert guarantee.epsilon > alone


@pytest.mark.parametrize("release", ["votes", "label"])
def test_private_knn_labels_a_pool(world, tmp_path, release):
    one = LabellingPlan((Round(300, 1.0, 0.7, None),))
    labeller = PrivateKNNLabeller(lambda part: knn(part, release=release), one, world[1])
    answers, selected = labelled(world, tmp_path, labeller, one)
    right = answers.labels == world[3][answers.queries]
    assert right.mean() > 0.8
    assert len(selected) == (210 if release == "votes" else 300)


def test_what_fails_the_screening_is_not_learnt_from(world, tmp_path):
    one = LabellingPlan((Round(300, 1.0, 1.0, None),))

    def screened(part):
        return knn(part, sigma_screen=3.0, threshold=24.0)

    labeller = PrivateKNNLabeller(screened, one, world[1])
    answers, selected = labelled(world, tmp_path, labeller, one)
    assert 0 < (answers.labels == ABSTAINED).sum() < 300
    assert (answers.labels[selected] != ABSTAINED).all()
    assert len(selected) == (answers.labels != ABSTAINED).sum()


def test_no_more_is_asked_than_was_planned_not_even_after_a_kill(world):
    records, labels, pool, _ = world
    labeller = PrivateKNNLabeller(knn, plan(100), labels)
    labeller.begin_round(records, pool, plan(100).rounds[0])
    labeller.label(pool[:60])
    heir = PrivateKNNLabeller(knn, plan(100), labels)
    heir.restore(labeller.state())
    heir.begin_round(records, pool, plan(100).rounds[0])
    with pytest.raises(PrivacyRefused):
        heir.label(pool[:41])
    heir.label(pool[:40])
    assert heir.state()["asked"].tolist() == [100]
    heir.begin_round(records, pool, plan(100).rounds[1])
    heir.label(pool[:100])
    assert heir.state()["asked"].tolist() == [100, 100]
    with pytest.raises(PrivacyRefused):
        heir.begin_round(records, pool, plan(100).rounds[1])
    assert heir.guarantee() == labeller.guarantee()


@pytest.mark.parametrize("n_answered", [[101], [-1], [50, 50], [100, 100, 1]])
def test_states_of_other_plans_are_refused(world, n_answered):
    labeller = PrivateKNNLabeller(knn, plan(100), world[1])
    with pytest.raises(InvalidInput):
        labeller.restore({"asked": np.array(n_answered)})
    with pytest.raises(InvalidInput):
        labeller.restore({})


def test_limits_of_answers_are_refused(world):
    with pytest.raises(InvalidInput, match="n_answers"):
        PrivateKNNLabeller(lambda part: knn(part, n_answers=5), plan(), world[1])
    with pytest.raises(InvalidInput, match="begin_round"):
        PrivateKNNLabeller(knn, plan(), world[1]).label(world[2])
