"""Arguments of wrong types: InvalidInput that names the parameter, and no change of state."""

import inspect

import pytest

from store_tools import PEOPLE, PLAN, Q, R, X, Y, make
from vicinal import IndKNNClassifier, IndKNNRegressor
from vicinal.errors import InvalidInput
from vicinal.store import Store

pytestmark = pytest.mark.filterwarnings("ignore:The public reference is too small")

NAMES_IN_MESSAGES = {"queries": "'X'", "subjects": "'subject", "schema": "schema"}
"""Names of parameters in messages that serve several functions or the command line, too."""

WRONG = (3, -1.5, object(), "x", b"x", [], {}, None)
PLAN_NAMES = ("epsilon", "delta", "n_queries")
CREATION = {"X": X, "y": Y, "subjects": PEOPLE, "classes": range(3), "public": R, **PLAN}
ESTIMATORS = [(IndKNNClassifier, {"classes": range(3)}), (IndKNNRegressor, {"bounds": (0, 2)})]
ROWS = {"X": Q[:2], "y": [0, 1], "subjects": ["new-1", "new-2"]}
METHODS = {
    Store.open_audience: {"name": "further", **PLAN},
    Store.predict: {"queries": Q[:2]},
    Store.evaluate: ROWS | {"accept_noise": True},
    Store.add: ROWS,
    Store.erase: {"subjects": ["person-1"]},
    Store.backup: {},
}


def list_parameters(function, *more):
    """Return the names of a function's parameters, and `more` of its keywords."""
    names = list(inspect.signature(function).parameters)
    return [name for name in (*names, *more) if name not in ("self", "plan")]


def is_accepted(name, function, /, *arguments, **keywords):
    """Return whether a call succeeds; it may only fail with InvalidInput that names `name`."""
    try:
        function(*arguments, **keywords)
    except InvalidInput as error:
        message = str(error)
    else:
        return True
    assert NAMES_IN_MESSAGES.get(name, f"'{name}'") in message
    return False


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", list_parameters(Store.init, *PLAN_NAMES))
def test_creation(folder, name):
    for index, value in enumerate(WRONG):
        given = {"path": folder / f"store-{index}", **CREATION, name: value}
        before = set(folder.iterdir())
        if is_accepted(name, lambda given=given: Store.init(**given).close()):
            continue
        assert set(folder.iterdir()) == before


@pytest.mark.parametrize("name", list_parameters(Store.open))
def test_opening(folder, name):
    make(folder / "store").close()
    for value in WRONG:
        given = {"path": folder / "store", name: value}
        if value != "x":
            is_accepted(name, lambda given=given: Store.open(**given).close())


@pytest.mark.parametrize(
    ("method", "name"),
    [
        (method, name)
        for method in METHODS
        for name in list_parameters(method, *(PLAN_NAMES if method == Store.open_audience else ()))
    ],
)
def test_methods(store, method, name):
    for value in WRONG:
        before = store.version, store.audiences
        if not is_accepted(name, method, store, **{**METHODS[method], name: value}):
            assert store.is_consistent
            assert (store.version, store.audiences) == before


@pytest.mark.parametrize(("estimator", "declared"), ESTIMATORS)
@pytest.mark.parametrize("name", list_parameters(IndKNNClassifier.fit))
def test_fits(estimator, declared, name):
    for value in WRONG:
        fitted = estimator(**declared, n_queries=9, n_records=300, model_share=0)
        given = {"X": X, "y": Y, "subjects": PEOPLE, "public": R, name: value}
        is_accepted(name, fitted.fit, **given)
