"""Who answers the queries of a split: the default, its rivals, and models without privacy.

Rivals get what makes them strong: the schema's features, standardised by public rows; lengths above
these rows' median cut to it where there must be a bound; and settings chosen on the tuning set.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge

from experiments.report_set.data import Matrix, Split
from vicinal import baselines, predictors
from vicinal.accounting.budget import zcdp_budget
from vicinal.mechanisms import public_draws

Scores = npt.NDArray[Any]

DELTA = 1e-5


@dataclass(frozen=True)
class Plan:
    """What a method is asked for; `epsilon` is 0 without privacy."""

    split: Split
    epsilon: float
    n_queries: int
    seed: int

    @property
    def targets(self) -> Matrix:
        """Answers of the private records, (n,)."""
        return self.split.answers[self.split.private]

    def standardised(self) -> tuple[Matrix, Matrix, float]:
        """Return private and query rows standardised by public rows, and their median length."""
        private, public, queries = self.split.columns()
        center, spread = public.mean(axis=0), public.std(axis=0)
        spread = np.where(spread > 0, spread, 1)
        private, public, queries = ((rows - center) / spread for rows in (private, public, queries))
        return private, queries, float(np.median(np.linalg.norm(public, axis=1)))

    def scaled(self) -> tuple[Matrix, Matrix]:
        """Return private and query rows as rivals need them that take lengths of 1 at most."""
        private, queries, length = self.standardised()
        return _cut(private / length), _cut(queries / length)


def _cut(rows: Matrix) -> Matrix:
    return np.asarray(rows / np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True)))


def ours(plan: Plan, *, made_up: bool = False) -> Scores:
    """Return the default's answers to the first `n_queries` queries."""
    split = plan.split
    private, public, queries = split.features(made_up=made_up)
    common: dict[str, Any] = {
        "delta": DELTA,
        "n_queries": plan.n_queries,
        "n_records": len(private),
    }
    common |= {"records_per_subject": split.records_per_subject, "simulation_seed": plan.seed}
    asked = queries[: plan.n_queries]
    if split.n_classes:
        model = predictors.IndKNNClassifier(range(split.n_classes), plan.epsilon, **common)
    else:
        model = predictors.IndKNNRegressor(split.bounds, plan.epsilon, **common)
    model.fit(private, plan.targets, split.subjects[split.private], public)
    return np.asarray(model.predict_proba(asked) if split.n_classes else model.predict(asked))


def noisy_sgd(plan: Plan) -> Scores:
    """Return our own rival's probabilities, of the columns that our model has."""
    private, public, queries = plan.split.features()
    model = baselines.NoisySGDClassifier(
        range(plan.split.n_classes), plan.epsilon, delta=DELTA, n_records=len(private),
        simulation_seed=plan.seed,
    )  # fmt: skip
    subjects = plan.split.subjects[plan.split.private]
    return np.asarray(model.fit(private, plan.targets, subjects, public).predict_proba(queries))


def ada_ssp(plan: Plan) -> Scores:
    """Return scores of private least squares (Wang 2018, Algorithm 2), of classes or a number.

    A third of the budget, as zCDP of Gaussian DP, goes to each of: the smallest eigenvalue of X'X,
    X'X, and X'y. AdaSSP splits epsilon and delta in three; this split is the tighter one.
    """
    split, (rows, asked) = plan.split, map(_with_constant, plan.scaled())
    if split.n_classes:  # codes of classes, of length 1 and mean 0
        n = split.n_classes
        codes = (np.eye(n) - 1 / n) / np.sqrt(1 - 1 / n)
        return np.asarray(asked @ _perturbed_least_squares(rows, codes[plan.targets], plan))
    low, high = split.bounds
    targets = np.clip(2 * (plan.targets - low) / (high - low) - 1, -1, 1)
    found = asked @ _perturbed_least_squares(rows, targets[:, None], plan)[:, 0]
    return np.asarray(low + (np.clip(found, -1, 1) + 1) / 2 * (high - low))


def _with_constant(rows: Matrix) -> Matrix:
    return np.column_stack([rows, np.ones(len(rows))])


def _perturbed_least_squares(rows: Matrix, targets: Matrix, plan: Plan) -> Matrix:
    """Return noisy weights (d, c); rows are of length sqrt(2) at most, targets of length 1."""
    square, length, failure = 2.0, math.sqrt(2), 0.05
    draws, size = public_draws(plan.seed), rows.shape[1]
    sigma = math.sqrt(3 / (2 * zcdp_budget(plan.epsilon, DELTA, "gdp")))
    gram, sums = rows.T @ rows, rows.T @ targets
    tail = math.sqrt(2 * math.log(6 / failure))
    least = float(np.linalg.eigvalsh(gram)[0]) + square * sigma * (draws.standard_normal() - tail)
    spread = square * sigma * math.sqrt(size * math.log(2 * size**2 / failure))
    upper = np.triu(draws.standard_normal((size, size)))
    gram = gram + square * sigma * (upper + np.triu(upper, 1).T)
    sums = sums + length * sigma * draws.standard_normal(sums.shape)
    return np.linalg.solve(gram + max(0.0, spread - max(least, 0.0)) * np.eye(size), sums)


RATE, EPOCHS, BATCHES = 0.5, 20, 4


def opacus(plan: Plan) -> Scores:
    """Return logits of a linear layer trained by DP-SGD."""
    torch, engine = import_module("torch"), import_module("opacus").PrivacyEngine
    torch.manual_seed(plan.seed)
    rows, asked, _ = plan.standardised()
    data = torch.utils.data.TensorDataset(torch.tensor(rows).float(), torch.tensor(plan.targets))
    layer = torch.nn.Linear(rows.shape[1], plan.split.n_classes)
    torch.nn.init.zeros_(layer.weight)
    model, steps, batches = engine().make_private_with_epsilon(
        module=layer, optimizer=torch.optim.SGD(layer.parameters(), lr=RATE),
        data_loader=torch.utils.data.DataLoader(data, batch_size=len(rows) // BATCHES),
        target_epsilon=plan.epsilon, target_delta=DELTA, epochs=EPOCHS,
        max_grad_norm=1.0,
    )  # fmt: skip
    for _ in range(EPOCHS):
        for some, labels in batches:
            steps.zero_grad()
            torch.nn.functional.cross_entropy(model(some), labels).backward()
            steps.step()
    return np.asarray(model(torch.tensor(asked).float()).detach().numpy())


EBM_RATE = 0.03


def dp_ebm(plan: Plan) -> Scores | None:
    """Return what DP-EBM makes of the columns; None for several classes, which it refuses."""
    if plan.split.n_classes > 2:
        return None
    split, privacy = plan.split, import_module("interpret.privacy")
    named = np.array([hasattr(column, "values") for column in split.schema.columns])
    public = split.codes(split.public)
    absent = np.where(named, -1, np.nanmedian(public, axis=0))  # it takes no missing values
    parts = (split.codes(which) for which in (split.private, split.queries))
    rows, asked = (np.where(np.isnan(part), absent, part) for part in parts)
    common = {
        "feature_types": ["nominal" if own else "continuous" for own in named],
        "privacy_bounds": np.column_stack([np.nanmin(public, axis=0), np.nanmax(public, axis=0)]),
        "epsilon": plan.epsilon, "delta": DELTA, "learning_rate": EBM_RATE,
        "random_state": plan.seed, "n_jobs": 1,
    }  # fmt: skip
    if split.n_classes:
        model = privacy.DPExplainableBoostingClassifier(**common).fit(rows, plan.targets)
        return np.asarray(model.predict_proba(asked))
    low, high = split.bounds
    model = privacy.DPExplainableBoostingRegressor(
        **common, privacy_target_min=low, privacy_target_max=high
    )
    model.fit(rows, np.clip(plan.targets, low, high))
    return np.asarray(np.clip(model.predict(asked), low, high))


_OBJECTIVE = "diffprivlib.models"


def objective(plan: Plan) -> Scores:
    """Return diffprivlib's probabilities, with (epsilon, 0); it needs scikit-learn before 1.6."""
    models = import_module(_OBJECTIVE)
    rows, asked = plan.scaled()
    model = models.LogisticRegression(epsilon=plan.epsilon, data_norm=1.0, random_state=plan.seed)
    return _all_classes(model.fit(rows, plan.targets), asked, plan.split.n_classes)


def trees(plan: Plan) -> Scores:
    """Return what boosted trees answer without privacy."""
    private, _, queries = plan.split.columns()
    if plan.split.n_classes:
        model = HistGradientBoostingClassifier(random_state=0).fit(private, plan.targets)
        return _all_classes(model, queries, plan.split.n_classes)
    return np.asarray(
        HistGradientBoostingRegressor(random_state=0).fit(private, plan.targets).predict(queries)
    )


def linear(plan: Plan) -> Scores:
    """Return what a linear model answers without privacy."""
    rows, asked, _ = plan.standardised()
    if plan.split.n_classes:
        model = LogisticRegression(max_iter=1000).fit(rows, plan.targets)
        return _all_classes(model, asked, plan.split.n_classes)
    return np.asarray(Ridge().fit(rows, plan.targets).predict(asked))


def _all_classes(model: Any, rows: Matrix, n_classes: int) -> Scores:
    found = np.zeros((len(rows), n_classes))
    found[:, model.classes_] = np.nan_to_num(model.predict_proba(rows))
    return found


def _made_up(plan: Plan) -> Scores:
    return ours(plan, made_up=True)


OURS, MADE_UP, EBM_NAME = "vicinal", "vicinal, public rows from the schema", "DP-EBM"
CEILING, LINEAR = "boosted trees, not private", "linear, not private"
RIVALS: dict[str, Callable[[Plan], Scores | None]] = {
    "NoisySGD": noisy_sgd,
    "Opacus, linear layer": opacus,
    "AdaSSP": ada_ssp,
    EBM_NAME: dp_ebm,
    "diffprivlib": objective,
}
FREE: dict[str, Callable[[Plan], Scores | None]] = {CEILING: trees, LINEAR: linear}
METHODS: dict[str, Callable[[Plan], Scores | None]] = {
    OURS: ours,
    MADE_UP: _made_up,
    **RIVALS,
    **FREE,
}
OF_NUMBERS = {OURS, MADE_UP, "AdaSSP", EBM_NAME, *FREE}
BY_SUBJECT = {OURS, MADE_UP, "NoisySGD"}
"""They take all records of a person; others get one of each."""

_NEEDS = {
    "Opacus, linear layer": "opacus",
    EBM_NAME: "interpret.privacy",
    "diffprivlib": _OBJECTIVE,
}


def absent(methods: Iterable[str]) -> list[str]:
    """Return those that need a package which cannot be imported here."""
    return [name for name in methods if name in _NEEDS and not _imports(_NEEDS[name])]


def _imports(name: str) -> bool:
    try:
        import_module(name)
    except ImportError:
        return False
    return True
