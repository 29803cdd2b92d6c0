"""Class names are compared composed (NFC), and no two declared ones may become one."""

import unicodedata

import numpy as np
import pytest

from store_tools import R, X, Y, points
from vicinal import IndKNNClassifier, IndKNNRegressor, PrivateKNNClassifier
from vicinal import checks as _checks
from vicinal.errors import InvalidInput
from vicinal.labelling import IndKNNLabeller
from vicinal.parameters import ClassNames, get_checks
from vicinal.reports.outcomes import AccuracyByClass
from vicinal.targets.kinds import declared_target

COMPOSED, DECOMPOSED = "Grün", unicodedata.normalize("NFD", "Grün")
Q, _ = points(20, 4)
UNITS = "Å", "\u212b"
"""The letter, and the sign of the unit, which is the letter in NFC."""


def test_declared_names_are_composed():
    assert _checks.check_class_names([DECOMPOSED, "rot"]).tolist() == [COMPOSED, "rot"]
    assert ClassNames()("classes", (DECOMPOSED, "rot")).tolist() == [COMPOSED, "rot"]


@pytest.mark.parametrize("declared", [COMPOSED, DECOMPOSED])
@pytest.mark.parametrize("label", [COMPOSED, DECOMPOSED])
@pytest.mark.parametrize("dtype", [None, object])
def test_labels_match_names_that_look_the_same(declared, label, dtype):
    names = _checks.check_class_names(["rot", declared])
    y = np.array([label, "rot", label], dtype=dtype)
    assert _checks.find_label_indices(y, names).tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([COMPOSED, "rot", DECOMPOSED], f"Got '{COMPOSED}' twice"),
        (UNITS, "Got 'Å' twice"),
        (["a", "b", "a"], "Got 'a' twice"),
        ([1, 2, 1], "Got 1 twice"),
        ([1, "1"], "Got '1' twice"),
        (["true", "no", "TRUE"], "Got 'true' and 'TRUE', which are one"),
        (["1", "no", "True"], "Got '1' and 'True', which are one"),
        (["a", "b", ""], "names that are not empty"),
    ],
)
@pytest.mark.parametrize("parameter", ["classes", "labels"])
def test_names_that_labels_cannot_tell_apart_are_refused(names, words, parameter):
    with pytest.raises(InvalidInput, match=words) as caught:
        declared_target({parameter: names})
    assert f"The '{parameter}' parameter" in str(caught.value)


@pytest.mark.parametrize("estimator", [IndKNNClassifier, PrivateKNNClassifier])
def test_scores_and_reports_compare_labels_composed(estimator, monkeypatch):
    answers = np.array([COMPOSED, "rot", COMPOSED])
    monkeypatch.setattr(estimator, "predict", lambda _self, _X: answers)
    truth = np.array([DECOMPOSED, "rot", "rot"])
    assert estimator([DECOMPOSED, "rot"]).score(np.eye(3), truth) == 2 / 3
    figures = AccuracyByClass.from_answers(answers, truth, [DECOMPOSED, "rot"])
    assert figures.overall.correct == 2
    assert figures.by_class[COMPOSED].correct == figures.by_class["rot"].correct == 1


def test_an_estimator_has_and_answers_composed_names():
    names = [DECOMPOSED, "rot", "blau"]
    classifier = IndKNNClassifier(
        names, n_queries=20, n_records=300, model_share=0, interactions="public"
    )
    classifier.fit(X, np.array(names)[Y], public=R)
    assert classifier.classes_.tolist() == [COMPOSED, "rot", "blau"]
    assert set(classifier.predict(Q)) <= {COMPOSED, "rot", "blau"}


def test_a_labeller_has_composed_names():
    labeller = IndKNNLabeller([DECOMPOSED, "rot"], np.array([DECOMPOSED, "rot"] * 50))
    assert labeller.classes.tolist() == [COMPOSED, "rot"]


def test_a_label_of_no_class_is_refused_with_reasons_that_can_be():
    with pytest.raises(InvalidInput, match="capitals and blanks count") as caught:
        _checks.find_label_indices(["rot", "secret"], _checks.check_class_names(["rot", "blau"]))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("y", [[1, 2], [True, False]])
def test_labels_that_a_file_has_as_numbers_or_truths_match_names_that_are_texts(y):
    """A column of "1" and "2" is read as numbers, although a third class is called unknown."""
    names = _checks.check_class_names(["false", "true"] if y[0] is True else ["2", "1", "unknown"])
    assert _checks.find_label_indices(np.array(y), names).tolist() == [1, 0]


def test_targets_are_composed_and_told_apart():
    target = declared_target({"bounds": {DECOMPOSED: (0, 1), "rot": (0, 2)}})
    assert target.names == [COMPOSED, "rot"]
    for bounds in ({COMPOSED: (0, 1), DECOMPOSED: (0, 2)}, {"": (0, 1)}):
        with pytest.raises(InvalidInput, match="'bounds' parameter must"):
            declared_target({"bounds": bounds})


@pytest.mark.parametrize(
    "parameters",
    [
        {"bounds": {"a": (0, 1), "error_a": (0, 1)}}, {"labels": ["a", "share_a"]},
        {"labels": ["a", "b", "error_b"]},
    ],
)  # fmt: skip
def test_targets_whose_answers_would_share_a_column_are_refused(parameters):
    with pytest.raises(InvalidInput, match=r"would have two columns '(error|share)_[ab]'"):
        declared_target(parameters)


def test_an_option_is_split_when_given_once_and_taken_whole_when_repeated():
    check = ClassNames()
    assert check.parse_option(["a, b"]) == ["a", "b"]
    assert check.parse_option(["a, b; c"]) == ["a, b", "c"]
    assert check.parse_option(["0-2"]) == [0, 1, 2]
    for no_range in ("2-0", "01-03", "0-10000", "0-" + "9" * 5000):
        assert check.parse_option([no_range]) == [no_range]
    assert check.parse_option(["9" * 5000 + ",2"]) == ["9" * 5000, "2"]
    assert check.parse_option(["true,2"]) == ["true", "2"]
    assert check.parse_option(["a, b; c", "d "]) == ["a, b; c", "d"]
    assert check.parse_option(["1", "2"]) == [1, 2]
    bounds = dict(get_checks(IndKNNRegressor))["bounds"]
    assert bounds.parse_option(["a=0..1,b=1..2"]) == {"a": (0, 1), "b": (1, 2)}
    assert bounds.parse_option(["a,x=0..1", "b=c=1..2"]) == {"a,x": (0, 1), "b=c": (1, 2)}
    with pytest.raises(InvalidInput, match="Got 'a' twice"):
        bounds.parse_option(["a=0..1,a=1..2"])
    for text in ("0..1", "=0..1", "a=", "a"):
        with pytest.raises(InvalidInput, match="'bounds' parameter must"):
            bounds("bounds", bounds.parse_option([text]))
