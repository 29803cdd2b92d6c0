"""Estimator parameters are declared once, in tables; invalid values are refused."""

import inspect
import math
import re
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pytest

from vicinal import (
    IndKNNClassifier,
    IndKNNMultiLabelClassifier,
    IndKNNRegressor,
    NoisySGDClassifier,
    PATEClassifier,
    PrivateKNNClassifier,
)
from vicinal.baselines.noisy_sgd import NoisySGDPlan
from vicinal.baselines.pate import PATEPlan
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.parameters import (
    REQUIRED,
    Checked,
    Choice,
    Integer,
    Real,
    Unless,
    get_checks,
    get_parameters,
)
from vicinal.planning.plan import IndKNNPlan
from vicinal.predictors.private_knn import PrivateKNNPlan

SETTINGS = {
    IndKNNClassifier: IndKNNPlan, IndKNNMultiLabelClassifier: IndKNNPlan,
    IndKNNRegressor: IndKNNPlan, PrivateKNNClassifier: PrivateKNNPlan,
    PATEClassifier: PATEPlan, NoisySGDClassifier: NoisySGDPlan,
}  # fmt: skip
FIRST = {IndKNNRegressor: (0.5, 2.0)}
"""First arguments of estimators that do not take class names first."""


def create(estimator, **parameters):
    return estimator(FIRST.get(estimator, range(3)), **parameters)


every_estimator = pytest.mark.parametrize(
    ("estimator", "settings"), SETTINGS.items(), ids=lambda value: value.__name__
)


@every_estimator
def test_an_estimator_takes_what_its_tables_declare(estimator, settings):
    """Fails if signature and tables differ in a parameter, or if settings lack a checked one."""
    parameters = inspect.signature(estimator).parameters.values()
    signature = {
        parameter.name: REQUIRED if parameter.default is parameter.empty else parameter.default
        for parameter in parameters
    }
    declared = {field.name: field.default for field in get_parameters(estimator)}
    assert signature == declared
    checked = settings.from_estimator(create(estimator))
    names = vars(checked).keys() | vars(vars(checked).get("target", checked)).keys()
    assert signature.keys() <= names
    assert sorted(signature) == sorted(create(estimator).get_params())
    shown_types = str(inspect.signature(estimator))
    assert "Given[" not in shown_types, "callers pass another type than settings hold"
    assert "<class" not in shown_types


@every_estimator
def test_the_docstring_describes_every_parameter(estimator, settings):  # noqa: ARG001
    section = inspect.getdoc(estimator).split("Parameters\n-")[1].split("\nAttributes\n")[0]
    described = re.findall(r"^(\w+) : (.+?)(?:, default=(.+))?$\n    (.+)", section, re.MULTILINE)
    assert [(name, kind) for name, kind, *_ in described] == [
        (name, check.type_name) for name, check in get_checks(estimator)
    ]
    hidden = {REQUIRED: "", None: ""}
    fields = get_parameters(estimator)
    defaults = [hidden.get(field.default, f"{field.default}") for field in fields]
    assert [default.strip('"') for _, _, default, _ in described] == defaults
    assert all(field.metadata["doc"].endswith(".") for field in fields)


def test_settings_do_not_change():
    settings = IndKNNPlan.from_estimator(IndKNNClassifier(range(3)))
    with pytest.raises(AttributeError, match="changed"):
        settings.epsilon = 2.0
    assert settings.changed(epsilon=2.0).epsilon == 2.0
    assert settings.epsilon == 1.0


NO_NUMBERS = (math.nan, "1", b"1", True, [1], {}, object())
REFUSED = {
    "ClassNames": (None, [], [1], [1, 1], "abc", [[1, 2]], [1.5, 2.5], 3),
    "NumberPerClass": (
        [], [1.0, 0.0], [0.5, math.nan], [0.5, math.inf], [[0.5, 0.5]], "another", 0.5
    ),
    "BoundsOfTargets": (
        None, 3.0, (1,), (1, 2, 3), (2, 1), (1, 1), (0, math.nan), (0, math.inf), "01", {},
        {"age": 3}, {"age": (2, 1)}, {5: (0, 1)},
    ),
    "IndexOptions": (
        "hnsw", {"kind": "exact", "bits": 8}, {"kind": "hnsw"}, {"tables": 3}, {}, None
    ),
    "bool": ("neighbors", 0, 1, None),
    'int or "public"': (0, -1, 10**6 + 1, 1.5, "some", None, True),
    "scikit-learn classifier, optional": ("a teacher", 3, []),
}  # fmt: skip


def list_invalid_values(check):
    """Return values that a check must refuse: just outside every bound, and of other types."""
    match check:
        case Real(above=above, below=below, minimum=least, maximum=most):
            low = [math.nextafter(b, -math.inf) for b in (above, least) if b is not None]
            high = [math.nextafter(b, math.inf) for b in (below, most) if b is not None]
            strict = [b for b in (above, below) if b is not None]
            return [*strict, *low, *high, math.inf, -math.inf, *NO_NUMBERS]
        case Integer(minimum=least, maximum=most):
            highest = 10**400 if most is None else most  # no JSON of a plan may hold it
            return [least - 1, highest + 1, least + 0.5, *NO_NUMBERS]
        case Choice(options=words):
            return ["another", "", words[0].upper(), None, 1, True, [words[0]]]
        case Unless(automatic=word, check=inner):
            other_words = ("auto",) if word is None else (None, "another")
            return [*(bad for bad in list_invalid_values(inner) if bad is not word), *other_words]
        case Checked(type_name=words):
            return REFUSED[words]
    return REFUSED[type(check).__name__]


@pytest.mark.parametrize(
    ("estimator", "name", "check"),
    [
        pytest.param(estimator, name, check, id=f"{estimator.__name__}-{name}")
        for estimator in SETTINGS
        for name, check in get_checks(estimator)
    ],
)
def test_a_bad_parameter_is_refused_by_name_before_anything_changes(estimator, name, check):
    for value in list_invalid_values(check):
        classifier = create(estimator).set_params(**{name: value})
        original = dict(vars(classifier))
        with pytest.raises(InvalidInput, match=f"'{name}"):
            classifier.fit(np.eye(4), [0, 1, 2, 0])
        assert vars(classifier).keys() == original.keys()


@pytest.mark.parametrize(
    ("estimator", "options"),
    [(PrivateKNNClassifier, {"sampling_rate": 1.0}), (PATEClassifier, {"interactions": 3})],
)
def test_a_plan_with_an_epsilon_keeps_it_and_wastes_little(estimator, options):
    """Fails if the noise ends on the wrong side, or if another release of the plan is changed."""
    planned = estimator(range(3), epsilon=3.0, n_queries=50, **options)
    assert 3.0 * (1 - 2e-3) < planned.guarantee().epsilon <= 3.0
    vote_noise = SETTINGS[estimator].from_estimator(planned).vote_noise
    same_plan = estimator(range(3), sigma_votes=vote_noise, n_queries=50, **options).plan()
    assert same_plan == planned.plan()


def test_with_screening_only_the_noise_on_votes_is_calibrated(monkeypatch):
    calls = []

    def calibrate(plan, epsilon, field, release):
        calls.append((len(plan["releases"]), epsilon, field, release))
        return SimpleNamespace(value=7.5)

    monkeypatch.setattr("vicinal.planning.guarantees.calibrate", calibrate)
    shared = {"sigma_screen": 40.0, "threshold": 30.0, "epsilon": 3.25, "n_answers": 20}
    screening, votes = PrivateKNNClassifier(range(3), **shared).plan()["releases"]
    assert (screening["sigma"], votes["sigma"], votes["count"]) == (40.0, 7.5, 20)
    (release,) = PATEClassifier(range(3), **shared).plan()["releases"]
    assert (release["sigma_screen"], release["sigma_votes"], release["answered"]) == (40.0, 7.5, 20)
    assert calls == [(2, 3.25, "sigma", 1), (1, 3.25, "sigma_votes", 0)]


def test_an_epsilon_that_no_noise_keeps_is_refused_before_anything_changes():
    teachers = PATEClassifier(range(3), epsilon=1e-9, n_queries=10**9)
    original = dict(vars(teachers))
    with pytest.raises(PrivacyRefused, match="larger epsilon"):
        teachers.fit(np.eye(4), [0, 1, 2, 0])
    assert vars(teachers).keys() == original.keys()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("noise_multiplier", value) for value in (5e-324, 1e-310, 1e-7)),
        *(("model_share", value) for value in (5e-324, 1e-7)),
        *(("delta", value) for value in (5e-324, 1e-20, 9e-13)),
        ("records_per_subject", 0.5),
    ],
)
def test_values_below_the_floor_of_a_parameter_are_refused_by_its_name(name, value):
    """Fails if a value is accepted although its square or inverse over- or underflows."""
    with pytest.raises(InvalidInput, match=rf"The '{name}' parameter must be .*>= 1"):
        IndKNNPlan.from_estimator(IndKNNClassifier(range(2), **{name: value}))


@pytest.mark.parametrize("estimator", [NoisySGDClassifier, PrivateKNNClassifier])
def test_a_fixed_plan_has_a_smallest_delta(estimator):
    X, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
    with pytest.raises(InvalidInput, match="The 'delta' parameter"):
        estimator(range(2), delta=5e-324, simulation_seed=0).fit(X, y)


@pytest.mark.parametrize(
    "value", [np.False_, 0j, np.array(0), np.array([0]), Decimal(0), np.zeros(2), False, "0"]
)
def test_only_a_real_number_switches_the_model_off(value):
    assert IndKNNPlan.from_estimator(IndKNNClassifier(range(2), model_share=0)).model_share == 0
    with pytest.raises(InvalidInput, match="'model_share'"):
        IndKNNPlan.from_estimator(IndKNNClassifier(range(2), model_share=value))
