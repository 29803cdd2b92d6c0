"""A budget exists once: no copy, no thread, no process and no odd id gets a second one."""

import copy
import io
import multiprocessing
import pickle
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from vicinal import IndKNNClassifier, PrivateKNNClassifier
from vicinal.accounting.budget import UNITS
from vicinal.errors import PrivacyRefused
from vicinal.mechanisms.votes import VoteRelease
from vicinal.progress import show_progress

IND_KNN = IndKNNClassifier(
    range(2), n_queries=10_000, n_neighbors=1, n_records=3, noise_multiplier=0.5
)
"""Two queries near one of three people spend its budget."""


def fit(classifier):
    return classifier.fit(np.eye(3), [0, 1, 1], ["a", "b", "c"], public=2 * np.eye(3))


def units(classifier):
    return classifier._engine.shard.ledger.remaining


COPIERS = [
    copy.copy,
    copy.deepcopy,
    *(partial(pickle.dumps, protocol=protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)),
    lambda classifier: pickle.dumps(classifier.predict),
    lambda classifier: joblib.dump(classifier, io.BytesIO()),
]


@pytest.mark.parametrize("make_copy", COPIERS)
def test_a_fitted_classifier_cannot_be_copied(make_copy):
    with pytest.raises(PrivacyRefused, match="spend the same budgets"):
        make_copy(fit(clone(IND_KNN)))


def test_what_can_be_copied_holds_no_budget():
    """Fails if a clone takes records along, or a plain copy of attributes has its own budget."""
    classifier = fit(clone(IND_KNN))
    with pytest.raises(NotFittedError):
        clone(classifier).predict(np.eye(3))
    twin = object.__new__(IndKNNClassifier)
    vars(twin).update(vars(classifier))
    twin.predict(np.eye(3))
    np.testing.assert_array_equal(units(classifier), units(twin))
    assert (units(classifier) < UNITS).all()


@pytest.fixture
def crowd(monkeypatch):
    """Count how many threads charge one ledger at the same time; each takes its time."""
    inside, most = Counter(), []
    honest = VoteRelease.contribute_and_charge

    def collect(self, near, people):
        ledger = id(people.remaining)
        inside[ledger] += 1
        most.append(inside[ledger])
        time.sleep(0.1)
        result = honest(self, near, people)
        inside[ledger] -= 1
        return result

    monkeypatch.setattr(VoteRelease, "contribute_and_charge", collect)
    return most


def test_threads_take_turns(crowd):
    classifier = fit(clone(IND_KNN))
    with ThreadPoolExecutor(4) as pool:
        others = [k * np.eye(3) for k in (1.0, 2.0, 3.0, 4.0)]  # the very same are paid for once
        votes = list(pool.map(classifier.decision_function, others))
    assert max(crowd) == 1
    spent = 3 * UNITS - int(units(classifier).sum())
    assert spent == sum(classifier._engine.shard.ledger.charges_by_block)
    assert len({block.tobytes() for block in votes}) == 4


def test_threads_take_turns_while_the_classifier_is_fitted_again(crowd):
    """Fails if fitting again lets a waiting thread into the new ledger without its lock."""
    classifier = fit(clone(IND_KNN))
    asking, go_on = threading.Event(), threading.Event()

    def hold(_):
        asking.set()
        go_on.wait()

    def held():
        with show_progress(lambda *_: hold):
            classifier.predict(np.eye(3))

    with ThreadPoolExecutor(3) as pool:
        jobs = [pool.submit(held)]
        asking.wait()
        jobs.append(pool.submit(classifier.predict, np.eye(3)))
        time.sleep(0.05)
        fit(classifier)
        go_on.set()
        jobs.append(pool.submit(classifier.predict, np.eye(3)))
        for job in jobs:
            job.result()
    assert max(crowd) == 1


def predict_in_child(classifier, refusals):
    try:
        classifier.predict(np.eye(3))
    except PrivacyRefused as refused:
        refusals.put(str(refused))


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
@pytest.mark.parametrize("unfitted", [IND_KNN, PrivateKNNClassifier(range(2), 1)])
def test_a_forked_process_cannot_spend_a_copy(unfitted):
    fitted = fit(clone(unfitted))
    context = multiprocessing.get_context("fork")
    refusals = context.Queue()
    child = context.Process(target=predict_in_child, args=(fitted, refusals))
    child.start()
    assert "forked process" in refusals.get(timeout=60)
    child.join()
