"""scikit-learn's own checks of the estimators, every exception with its reason."""

import warnings

import numpy as np
import pytest
from sklearn import config_context
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.frozen import FrozenEstimator
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.metrics import RocCurveDisplay
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    TunedThresholdClassifierCV,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    learning_curve,
    permutation_test_score,
    validation_curve,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from vicinal import (
    IndKNNClassifier,
    IndKNNRegressor,
    NoisySGDClassifier,
    PATEClassifier,
    PrivateKNNClassifier,
)
from vicinal.errors import PrivacyRefused, PrivacyWarning
from vicinal.testing import remaining_budgets

NOISE = "answers carry fresh noise, so calls with other rows, or two fits, never agree exactly"
COPIES = "a fitted estimator refuses to be copied: every copy could spend the same budgets again"
COUNTS = "predict counts its answers, since it spends what was planned for them"
ASKING = {
    "check_estimators_pickle": COPIES,
    "check_dict_unchanged": COUNTS,
    "check_methods_sample_order_invariance": NOISE,
    "check_methods_subset_invariance": NOISE,
}
ASKING_TWICE = {**ASKING, "check_classifiers_train": NOISE}
SCALES = "where counts are private, noise and so probabilities of one lead differ between queries"
EXCEPTIONS = {
    "IndKNNClassifier": {**ASKING, "check_decision_proba_consistency": SCALES},
    "IndKNNRegressor": ASKING,
    "PrivateKNNClassifier": ASKING_TWICE,
    "PATEClassifier": ASKING_TWICE,
    "NoisySGDClassifier": {},
}


class Declaring:
    """The checks fit many label sets; declares each, as a caller who knows them would."""

    def fit(self, X, y, subjects=None, **more):
        """Declare the labels of `y` as classes for the length of the call."""
        declared = self.classes
        self.classes = declared_classes(y)
        try:
            return super().fit(X, y, subjects, **more)
        finally:
            self.classes = declared


DeclaringIndKNN, DeclaringKNN, DeclaringPATE, DeclaringSGD = (
    type(name, (Declaring, estimator), {"__module__": __name__})
    for name, estimator in {
        "DeclaringIndKNN": IndKNNClassifier, "DeclaringKNN": PrivateKNNClassifier,
        "DeclaringPATE": PATEClassifier, "DeclaringSGD": NoisySGDClassifier,
    }.items()
)  # fmt: skip


class DeclaredBounds(IndKNNRegressor):
    """The checks fit many numbers; their bounds are declared wide enough for all."""


def declared_classes(y):
    """Return the names in `y`, two at least, or two names that fit nothing."""
    column = np.asarray(y).ravel()
    if column.dtype.kind == "O" and all(isinstance(name, int) for name in column):
        column = column.astype(int)
    if column.dtype.kind == "f" and not (column % 1).any():
        column = column.astype(int)
    names = np.unique(column) if column.dtype.kind in "iuU" and len(column) else np.arange(2)
    if column.dtype.kind == "O" and all(isinstance(name, str) for name in column):
        names = np.unique(column.astype(str))
    if len(names) > 1:
        return names
    return np.append(names, "another" if names.dtype.kind == "U" else names[0] + 1)


INDIVIDUAL = {
    "epsilon": 50.0, "min_similarity": 0.3, "neighbor_count": "private", "noise_multiplier": 0.3,
    "kernel": "rbf", "bandwidth": 1.5, "norm_bound": 20.0, "n_records": 100, "n_queries": 400,
    "simulation_seed": 0,
}  # fmt: skip
ESTIMATORS = {
    "IndKNNClassifier": DeclaringIndKNN((0, 1), **INDIVIDUAL),
    "IndKNNRegressor": DeclaredBounds((-400.0, 400.0), **INDIVIDUAL),
    "PrivateKNNClassifier": DeclaringKNN(
        (0, 1), n_neighbors=5, sampling_rate=0.9, sigma_votes=0.3, n_queries=5000,
        simulation_seed=0,
    ),
    "PATEClassifier": DeclaringPATE(
        classes=(0, 1), n_teachers=5, sigma_votes=0.3, n_queries=5000, simulation_seed=0,
        teacher=KNeighborsClassifier(1),
    ),
    "NoisySGDClassifier": DeclaringSGD(
        (0, 1), epsilon=200.0, n_steps=60, sampling_rate=0.5, n_records=100, simulation_seed=0
    ),
}  # fmt: skip


def cases():
    """Yield every estimator with each of scikit-learn's checks."""
    for name, estimator in ESTIMATORS.items():
        for checked, check in estimator_checks_generator(estimator, legacy=True):
            yield pytest.param(name, checked, check, id=f"{name}-{check.func.__name__}")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "checked", "check"), list(cases()))
def test_scikit_learn_check(name, checked, check):
    if check.func.__name__ not in EXCEPTIONS[name]:
        check(checked)
        return
    with pytest.raises((AssertionError, PrivacyRefused)):
        check(checked)


def trial(**more):
    """Return a classifier of two classes, records far apart, and a reference."""
    rng = np.random.default_rng(1)
    y = np.arange(300) % 2
    X = rng.normal(size=(300, 4)) + 6 * y[:, None] - 3  # 12 deviations apart
    plan = {"n_queries": 400, "n_records": 300, "model_share": 0, "epsilon": 20.0, **more}
    return IndKNNClassifier([0, 1], **plan), X, y, X + rng.normal(size=X.shape)


ROUTING = config_context(enable_metadata_routing=True)


def scores(model, X, y, public):
    return cross_val_score(model, X, y, cv=3, scoring="roc_auc", params={"public": public})


def several(tool, **more):
    """Return what fits a tool around a model, and how right it is."""
    return lambda model, X, y, public: (
        tool(model, **more).fit(X, y, public=public).score(X[:60], y[:60])
    )


def fitted(look):
    """Return what looks at a model that was fitted once."""
    return lambda model, X, y, public: look(model.fit(X, y, public=public), X[:60], y[:60])


CURVES = {"cv": 3, "scoring": "roc_auc"}
TOOLS = {
    "cross_val_score, roc_auc": scores,
    "cross_validate, several scorers": lambda model, X, y, public: cross_validate(
        model, X, y, cv=3, scoring=["roc_auc", "neg_log_loss"], params={"public": public}
    )["test_roc_auc"],
    "cross_val_predict": lambda model, X, y, public: np.mean(
        cross_val_predict(model, X, y, cv=3, method="predict_proba", params={"public": public})[
            np.arange(len(y)), y
        ]
    ),
    "learning_curve": lambda model, X, y, public: learning_curve(
        model, X, y, params={"public": public}, train_sizes=[0.5, 1.0], **CURVES
    )[2],
    "permutation_test_score": lambda model, X, y, public: permutation_test_score(
        model, X, y, params={"public": public}, n_permutations=2, **CURVES
    )[0],
    "GridSearchCV": several(GridSearchCV, param_grid={"epsilon": [10.0, 20.0]}, cv=3),
    "CalibratedClassifierCV": several(CalibratedClassifierCV, cv=3),
    "CalibratedClassifierCV, one model": several(CalibratedClassifierCV, cv=3, ensemble=False),
    "CalibratedClassifierCV, temperature": several(
        CalibratedClassifierCV, cv=3, method="temperature"
    ),
    "TunedThresholdClassifierCV": several(TunedThresholdClassifierCV, cv=3),
    "TunedThresholdClassifierCV, lead": several(
        TunedThresholdClassifierCV, cv=3, response_method="decision_function"
    ),
}
ONE_FIT = {
    "FixedThresholdClassifier": several(
        FixedThresholdClassifier, threshold=0.0, response_method="decision_function"
    ),
    "Pipeline": several(lambda model: make_pipeline(StandardScaler(), model)),
    "OneVsRestClassifier": several(OneVsRestClassifier),
    "CalibratedClassifierCV, frozen": fitted(
        lambda model, X, y: CalibratedClassifierCV(FrozenEstimator(model)).fit(X, y).score(X, y)
    ),
    "permutation_importance": fitted(
        lambda model, X, y: 1 - np.abs(permutation_importance(model, X, y).importances_mean).min()
    ),
    "partial_dependence": fitted(
        lambda model, X, _: (
            1 - np.ptp(partial_dependence(model, X, [0], grid_resolution=3)["average"]) / 10
        )
    ),
    "displays": fitted(lambda model, X, y: RocCurveDisplay.from_estimator(model, X, y).roc_auc),
}
"""What fits a model once: it works with real noise, and every new row that it asks is paid for."""


@ROUTING
@pytest.mark.filterwarnings("ignore::vicinal.errors.PrivacyWarning", "ignore:The queries do not")
@pytest.mark.parametrize("name", TOOLS)
def test_tools_work_where_nothing_is_protected(name):
    model, X, y, public = trial(interactions="public")
    model.set_fit_request(public=True)
    assert np.min(TOOLS[name](model, X, y, public)) > 0.9


@ROUTING
@pytest.mark.parametrize("name", TOOLS)
def test_tools_are_refused_loudly_with_real_noise(name):
    """Not a single fold is answered, and no score is NaN."""
    model, X, y, public = trial()
    model.set_fit_request(public=True)
    with pytest.raises((PrivacyRefused, ValueError), match="fit several times") as caught:
        TOOLS[name](model, X, y, public)
    assert "interactions" in str(caught.value)
    model.fit(X, y, public=public)  # nothing was claimed


@ROUTING
def test_a_validation_curve_says_why_it_has_no_scores():
    """Of all tools this one shows refused fits as NaN, and says nothing."""
    model, X, y, public = trial()
    model.set_fit_request(public=True)
    given = {"param_name": "epsilon", "param_range": [10.0, 20.0], "params": {"public": public}}
    with warnings.catch_warnings(record=True, action="always") as told:
        train, test = validation_curve(model, X, y, **given, **CURVES)
    assert np.isnan([train, test]).all()
    assert {each.category for each in told} >= {PrivacyWarning}
    model.set_params(interactions="public")
    assert np.min(validation_curve(model, X, y, **given, **CURVES)) > 0.9


@ROUTING
@pytest.mark.filterwarnings("ignore::vicinal.errors.PrivacyWarning", "ignore:The queries do not")
@pytest.mark.parametrize("name", ONE_FIT)
def test_one_fit_with_real_noise_passes(name):
    model, X, y, public = trial()
    model.set_fit_request(public=True)
    X = X + 1e-3 * (1 + list(ONE_FIT).index(name))  # records that no other test has claimed
    assert ONE_FIT[name](model, X, y, public) > 0.9


PUBLIC_SCALER = FrozenEstimator(StandardScaler().fit(np.arange(6.0).reshape(3, 2)))
STEPS = {
    "StandardScaler": (StandardScaler(), True),
    "frozen": (PUBLIC_SCALER, False),
    "Normalizer": (Normalizer(), False),
    "FunctionTransformer": (FunctionTransformer(), False),
    "passthrough": ("passthrough", False),
    "Pipeline": (make_pipeline(Normalizer(), StandardScaler()), True),
    "frozen components": (make_union(PUBLIC_SCALER, Normalizer()), False),
    "FeatureUnion": (make_union(PUBLIC_SCALER, StandardScaler()), True),
    "ColumnTransformer": (make_column_transformer((StandardScaler(), [0, 1])), True),
    "remaining columns": (
        make_column_transformer((PUBLIC_SCALER, []), remainder=StandardScaler()),
        True,
    ),
    "frozen columns": (make_column_transformer((PUBLIC_SCALER, [0, 1])), False),
}


@ROUTING
@pytest.mark.filterwarnings("ignore:The queries do not")
@pytest.mark.parametrize("name", STEPS)
def test_a_step_that_a_pipeline_fits_on_private_rows_is_named(name):
    step, learns = STEPS[name]
    model, X, y, public = trial(n_queries=5)
    model.set_fit_request(public=True)
    X = X[:, :2] + 1e-3 * (50 + list(STEPS).index(name))  # records that no other test has claimed
    pipeline = make_pipeline(step, model, transform_input=["public"])
    with warnings.catch_warnings(record=True, action="always") as recorded:
        pipeline.fit(X, y, public=public[:, :2])
    texts = [str(each.message) for each in recorded if each.category is PrivacyWarning]
    assert len(texts) == learns
    if learns:
        assert f"The Pipeline fitted {type(step).__name__} on the private records" in texts[0]
        (warned,) = [each for each in recorded if each.category is PrivacyWarning]
        assert warned.filename == __file__
        assert "FrozenEstimator" in texts[0]


class Untagged:
    """A step without scikit-learn's base class, whose fit may learn anything."""

    def fit(self, _rows, _labels=None):
        return self

    def transform(self, rows):
        return rows


def test_a_step_without_tags_may_learn():
    model, X, y, public = trial(n_queries=5)
    with pytest.warns(PrivacyWarning, match="The Pipeline fitted Untagged"):
        Pipeline([("step", Untagged()), ("model", model)]).fit(X + 0.321, y, model__public=public)


@ROUTING
def test_the_warning_of_a_step_comes_before_the_claim_and_not_for_open_records():
    model, X, y, public = trial(n_queries=5)
    X = X + 0.123
    model.set_fit_request(public=True)
    inner = make_pipeline(Normalizer(), model, transform_input=["public"])
    with pytest.raises(PrivacyWarning, match="StandardScaler"):
        make_pipeline(StandardScaler(), inner, transform_input=["public"]).fit(X, y, public=public)
    model.fit(X, y, public=public)  # nothing was claimed
    for options in ({"simulation_seed": 3}, {"interactions": "public"}):
        simulated = trial(**options)[0].set_fit_request(public=True)
        pipeline = make_pipeline(StandardScaler(), simulated, transform_input=["public"])
        pipeline.fit(X, y, public=public)


@pytest.mark.parametrize("more", [{}, {"model_share": 0.5}, {"neighbor_count": "private"}])
def test_the_very_same_rows_are_paid_for_once_and_answered_alike(more):
    model, X, y, public = trial(simulation_seed=5, epsilon=4.0, n_queries=200, **more)
    model.fit(X, y, public=public)
    labels, paid = model.predict(X[:40]), remaining_budgets(model)
    np.testing.assert_array_equal(model.predict_proba(X[:40]).argmax(axis=1), labels)
    np.testing.assert_array_equal(model.decision_function(X[:40]) > 0, labels == 1)
    np.testing.assert_array_equal(model.predict(X[:40].copy()), labels)
    assert model.score(X[:40], y[:40]) == (labels == y[:40]).mean()
    assert remaining_budgets(model) == paid
    assert model.n_answers_ == 40
    model.predict(X[:39])  # other rows
    assert model.n_answers_ == 79
    model.erase([0])
    model.predict(X[:40])  # other records
    model.add(X[:1] + 7, y[:1])
    model.predict(X[:40])
    assert model.n_answers_ == 159


def test_nobody_changes_what_is_said_again():
    model, X, y, public = trial(simulation_seed=5)
    answers = model.fit(X, y, public=public).query(X[:4])
    with pytest.raises(ValueError, match="read-only"):
        answers.votes[:] = 0
    np.testing.assert_array_equal(model.predict(X[:4]), model.classes_[answers.labels])


@pytest.mark.parametrize("largest", [1e308, 1.7e308])
def test_no_warning_tells_of_a_record_out_of_all_bounds(largest, recwarn):
    rng = np.random.default_rng(0)
    X, y, public = rng.normal(size=(60, 80)), np.arange(60) % 2, rng.normal(size=(60, 80))
    X[0] = largest * (-1.0) ** np.arange(80)
    IndKNNClassifier(range(2), n_queries=50, n_records=60, model_share=0).fit(X, y, public=public)
    assert not [each for each in recwarn if issubclass(each.category, RuntimeWarning)]
