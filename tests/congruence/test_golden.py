"""Answers, budgets and prices are those of the version before modules and names were moved.

``golden.json`` was written by commit 9d23fa4, whose parameters had other names. A redesign must not
change it; a change of a mechanism or a plan writes it anew, and says so in the changelog.

Labels and charges are the same on every machine. Public scales agree to a billionth: NumPy's exp
and log differ in the last bit between processors with AVX-512 and without.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from vicinal import IndKNNClassifier, NoisySGDClassifier, PATEClassifier, PrivateKNNClassifier

pytestmark = pytest.mark.quick

GOLDEN = json.loads(Path(__file__).with_name("golden.json").read_text())
PLAN = {"epsilon": 1.0, "delta": 1e-5, "n_queries": 60, "simulation_seed": 5}
OPTIONS = {
    "default": {},
    "rbf": {"kernel": "rbf"},
    "label": {"release": "label"},
    "rdp": {"accounting": "rdp"},
    "lsh": {"index": {"kind": "lsh", "tables": 6, "bits": 4, "seed": 3}},
    "sequential": {"execution": "sequential"},
    "private count": {"neighbor_count": "private", "min_similarity": 0.2, "noise_multiplier": 0.5},
    "fixed k": {"n_neighbors": 40, "n_records": 900, "noise_multiplier": 0.4},
}


def near(hexadecimal):
    """Return a public scale of the file as one that other processors meet."""
    return pytest.approx(float.fromhex(hexadecimal), rel=1e-9, abs=0)


@pytest.fixture(scope="module")
def world():
    """Return records, labels, subjects, public reference and queries."""
    rng = np.random.default_rng(7)
    centres = rng.normal(size=(3, 12))

    y = rng.integers(0, 3, 900)
    X = centres[y] + rng.normal(size=(900, 12))
    public = centres[rng.integers(0, 3, 200)] + rng.normal(size=(200, 12))
    queries = centres[rng.integers(0, 3, 60)] + rng.normal(size=(60, 12))
    return X, y, rng.integers(0, 400, 900), public, queries


def remaining(classifier):
    """Return a digest of what every subject has left."""
    units = np.ascontiguousarray(classifier._shard.ledger.remaining, dtype="<i8")
    return hashlib.sha256(units.tobytes()).hexdigest()[:24]


@pytest.mark.parametrize("name", OPTIONS)
def test_ind_knn_answers_and_charges_as_before(world, name):
    X, y, subjects, public, queries = world
    classifier = IndKNNClassifier(range(3), **PLAN, **OPTIONS[name])
    classifier.fit(X, y, subjects, public=public)
    golden = GOLDEN[f"ind_knn {name}"]
    assert classifier.predict(queries).tolist() == golden["labels"]
    assert remaining(classifier) == golden["remaining"]
    assert classifier.budget_ == near(golden["budget"])
    assert classifier.noise_multiplier_ == near(golden["noise"])


def test_the_published_algorithm_answers_as_before(world):
    X, y, subjects, public, queries = world
    classifier = IndKNNClassifier.zhu2023(range(3), **PLAN, tau=0.2, noise_multiplier=0.5)
    classifier.fit(X, y, subjects, public=public)
    labels = classifier.predict(queries).tolist()
    assert {"labels": labels, "remaining": remaining(classifier)} == GOLDEN["zhu2023"]


@pytest.mark.parametrize("execution", ["block", "sequential"])
def test_earlier_answers_vote_in_the_published_algorithm_as_before(world, execution):
    X, y, subjects, public, queries = world
    plan = {**PLAN, "execution": execution, "reuse_predictions": True}
    classifier = IndKNNClassifier.zhu2023(range(3), **plan, tau=0.2, noise_multiplier=0.5)
    classifier.fit(X, y, subjects, public=public)
    found = {"labels": classifier.predict(queries).tolist(), "remaining": remaining(classifier)}
    assert found == GOLDEN[f"zhu2023 with earlier answers, {execution}"]


@pytest.mark.parametrize("name", ["private_knn", "pate", "noisy_sgd"])
def test_the_others_answer_and_cost_as_before(world, name):
    X, y, subjects, public, queries = world
    plan = {"n_queries": 60, "delta": 1e-5, "simulation_seed": 5}
    if name == "private_knn":
        classifier = PrivateKNNClassifier(
            range(3), n_neighbors=30, sampling_rate=0.3, sigma_votes=8.0, n_answers=60, **plan
        ).fit(X, y, subjects, public=public)
    elif name == "pate":
        classifier = PATEClassifier(range(3), n_teachers=20, sigma_votes=4.0, **plan)
        classifier.fit(X, y, subjects)
    else:
        classifier = NoisySGDClassifier(
            range(3),
            1.0,
            n_steps=50,
            sampling_rate=0.1,
            n_records=900,
            simulation_seed=5,
            clip=0.5,
            learning_rate=4.0,
        ).fit(X, y, subjects)
    golden = GOLDEN[name]
    assert classifier.predict(queries).tolist() == golden["labels"]
    if name == "noisy_sgd":
        assert classifier.noise_multiplier_ == near(golden["noise"])
    else:
        assert classifier.guarantee().epsilon == near(golden["epsilon"])
