"""Evaluation of stores of numbers and of several labels: released counts and charges."""

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import r2_score

from command_line import shown
from store_tools import copied, left_of, silence_noise
from vicinal import Store
from vicinal.accounting.budget import UNITS
from vicinal.errors import InvalidInput
from vicinal.store.evaluation import LabelSetEvaluation, NumberEvaluation

N = 400
rng = np.random.default_rng(3)
X, R, Q = rng.normal(size=(N, 3)), rng.normal(size=(100, 3)), rng.normal(size=(60, 3))
IDS = [f"p{i}" for i in range(N)]
VISITORS = [f"v{i}" for i in range(len(Q))]


def numbers(rows):
    return np.stack([50 + 20 * np.tanh(rows[:, 0]), 3 + rows[:, 1]], axis=1)


def labels(rows):
    return (rows > 0).astype(int)


KINDS = {
    "numbers": (numbers, {"bounds": {"age": (0, 110), "stay": (0, 10)}}),
    "log": (lambda rows: numbers(rows)[:, 0], {"bounds": (1, 110), "scale": "log"}),
    "labels": (labels, {"labels": ["left", "up", "near"]}),
}


every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The folder of a closed store with answered queries, for each kind of target."""
    made = {}
    for kind, (of, target) in KINDS.items():
        made[kind] = tmp_path_factory.mktemp(kind) / "store"
        settings = {"public": R, "n_records": N, "epsilon": 8.0, "n_queries": 200, **target}
        with Store.init(made[kind], X, of(X), IDS, **settings) as store:
            store.predict(Q)
    return made


@pytest.fixture
def store(folders, kind, tmp_path):
    with Store.open(copied(folders[kind], tmp_path)) as opened:
        yield opened


@every_kind
def test_counts_without_noise_give_the_figures_of_the_answers(store, kind, monkeypatch):
    """Fails if a row is compared with another answer, on another scale, or counted elsewhere."""
    silence_noise(store, monkeypatch)
    answers, truth = store.predict(Q).labels, KINDS[kind][0](Q)
    rows, row_targets = np.vstack([Q, X[:5]]), np.concatenate([truth, KINDS[kind][0](X[:5])])
    evaluation = store.evaluate(rows, row_targets, [*VISITORS, *IDS[:5]], accept_noise=True)
    assert evaluation.people == pytest.approx(60)
    figures = evaluation.compute_metrics(evaluation.counts)
    if kind == "labels":
        assert isinstance(evaluation, LabelSetEvaluation)
        assert figures["accuracy"] == pytest.approx((answers == truth).mean())
        assert figures["up accuracy"] == pytest.approx((answers == truth)[:, 1].mean())
        recalls = [(answers[truth[:, 2] == t, 2] == t).mean() for t in (0, 1)]
        silent = type(evaluation)(evaluation.labels, evaluation.tables, 1e-9, evaluation.share)
        balanced = silent.compute_metrics(silent.counts)["near balanced_accuracy"]
        assert balanced == pytest.approx(np.mean(recalls))
        return
    assert isinstance(evaluation, NumberEvaluation)
    onto = np.log if kind == "log" else np.asarray
    answers, truth = onto(answers).reshape(60, -1), onto(truth).reshape(60, -1)
    widest = np.diff(evaluation.error_edges, axis=1).max(axis=1)
    for i, name in enumerate(evaluation.targets):
        errors = answers[:, i] - truth[:, i]
        rmse = np.sqrt(np.square(errors).mean())
        assert figures[f"{name} rmse"] == pytest.approx(rmse, abs=widest[i] / 4)
        assert figures[f"{name} mean_error"] == pytest.approx(errors.mean(), abs=widest[i] / 4)
        exact = replace(evaluation, noise=1e-9)
        r2 = exact.compute_metrics(exact.counts)[f"{name} r2"]
        off = ((rmse + widest[i] / 4) ** 2 - rmse**2) / truth[:, i].var()
        assert r2 == pytest.approx(r2_score(truth[:, i], answers[:, i]), abs=off)


@every_kind
def test_people_evaluated_pay_at_most_the_share_and_nobody_else_pays(store, kind):
    before = left_of(store)
    evaluation = store.evaluate(
        Q[:20], KINDS[kind][0](Q[:20]), IDS[:20], share=0.01, accept_noise=True
    )
    after = left_of(store)
    spent = np.array([before[subject] - after[subject] for subject in IDS])
    assert (spent[:20] > 0).all()
    assert (spent[:20] <= 0.01 * UNITS + 1).all()
    assert not spent[20:].any()
    plain_figures = json.loads(json.dumps(evaluation.to_dict(), allow_nan=False))
    assert store.facts()["audiences"]["default"]["evaluations"] == [plain_figures]
    assert all(
        set(figure) == {"value", "low", "high", "noise"}
        for figure in plain_figures["figures"].values()
    )
    assert store.verify()


@every_kind
def test_unusable_truth_is_refused_before_anybody_pays(store, kind):
    before, truth = left_of(store), KINDS[kind][0](Q)
    given = {"X": Q, "y": truth, "subjects": VISITORS, "accept_noise": True}
    cases = [{"y": truth[:3]}, {"y": None}, {"share": 0.0}, {"X": Q[:, :2]}]
    cases += [{"subjects": None}, {"subjects": VISITORS[:3]}, {"largest_error": 0.0}]
    for case in cases:
        with pytest.raises(InvalidInput):
            store.evaluate(**{**given, **case})
    assert left_of(store) == before


@pytest.mark.parametrize("kind", ["numbers"])
def test_errors_beyond_the_largest_count_as_that_large(store, monkeypatch):
    silence_noise(store, monkeypatch)
    far_truth = np.tile([0.0, 10.0], (60, 1))
    evaluation = store.evaluate(Q, far_truth, VISITORS, largest_error=0.05, accept_noise=True)
    assert evaluation.compute_metrics(evaluation.counts)["age rmse"] <= 0.05 * 110
    assert evaluation.errors[0, -1] == pytest.approx(60)


@pytest.mark.parametrize(
    ("kind", "names", "figure_name"),
    [("numbers", ["age", "stay"], "RMSE"), ("labels", ["left", "up", "near"], "Balanced accuracy")],
)
def test_the_command_prints_the_figures(store, kind, names, figure_name, tmp_path):
    store.close()
    truth = KINDS[kind][0](Q)
    rows = [
        ",".join(map(repr, [*x.tolist(), *y.tolist()])) + f",v{i}"
        for i, (x, y) in enumerate(zip(Q, truth, strict=True))
    ]
    (tmp_path / "rows.csv").write_text(f"a,b,c,{','.join(names)},who\n" + "\n".join(rows))
    given = ["evaluate", tmp_path / "store", "--data", tmp_path / "rows.csv"]
    shown(*given, "--label", "a", "--subject", "who", code=2)
    shown(*given, code=2)  # without ids
    assert figure_name in shown(*given, "--subject", "who", "--share", "1")
