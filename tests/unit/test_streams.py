"""Experiments with long streams and with people who come and go, on made-up clouds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from typer.testing import CliRunner

from experiments.__main__ import app
from experiments.accuracy import churn, stream
from made_up import clouds
from vicinal.errors import InvalidInput
from vicinal.reports._trials import Trial


def trial(n_records=400, n_queries=300):
    (X, y), (R, _), (Q, truth) = (
        clouds(seed, size, 4, 4) for seed, size in ((0, n_records), (1, 60), (2, n_queries))
    )
    return Trial(range(4), X, y, R, Q, truth)


def silent(_done):
    pass


def test_a_stream_goes_on_when_budgets_are_spent(monkeypatch):
    monkeypatch.setattr(stream, "WINDOW", 100)
    monkeypatch.setattr(stream, "WAYS", {"private model": {"model_share": 0.7}})
    told = []
    rows = stream.measure(trial(), 8.0, [100], 500, 0, told.append)
    assert sum(told) == stream.work([100], 500)
    beside, alone = rows
    assert len(beside.accuracies) == len(alone.accuracies) == 5
    # A quarter of the plan is asked, then the model answers.
    assert sum(beside.asked) * 100 == 25
    assert beside.asked[-1] == 0
    assert min(beside.accuracies) > 0.7
    assert sum(alone.asked) == 0
    table = stream.text_table(rows)
    assert "thousand 1" in table
    assert "any" in table


def test_every_query_comes_as_often_as_the_others():
    places = stream._order(7, 28, 3)
    assert (np.bincount(places) == 4).all()
    assert stream._order(7, 28, 3).tolist() == places.tolist()


@pytest.mark.parametrize("drift", [False, True])
def test_a_year_has_people_who_leave_and_come_once(drift):
    played = trial(4000, 2000)
    months = churn.year(played, 50, 0, drift=drift)
    assert len(months) == churn.MONTHS
    seen = set(months[0].present.tolist())
    for before, month in itertools.pairwise(months):
        assert len(month.left) == len(month.came) == round(churn.MOVING * 2000)
        assert set(month.left) <= set(before.present)
        assert not seen & set(month.came)
        seen |= set(month.came)
        assert set(month.present) == (set(before.present) - set(month.left)) | set(month.came)
    asked = np.concatenate([month.asked for month in months])
    assert len(asked) == len(set(asked)) == 50 * churn.MONTHS
    late = [np.isin(played.labels[month.present], [2, 3]).mean() for month in months]
    share = np.isin(played.truth[months[-1].asked], [2, 3]).mean()
    if drift:
        assert late[0] == pytest.approx(churn.EARLY, abs=0.01)
        assert late[-1] > 0.4
    assert share == pytest.approx(late[-1], abs=0.02)


def test_a_year_of_more_queries_than_there_are_is_refused():
    with pytest.raises(InvalidInput, match="must be smaller"):
        churn.year(trial(800, 200), 50, 0, drift=True)


def test_every_way_keeps_up_for_a_year(monkeypatch):
    monkeypatch.setattr(churn, "share_of_each", lambda *_: 4.0)
    monkeypatch.setattr(churn, "REFRESHES", (2,))
    monkeypatch.setattr(churn, "TRAININGS", (2,))
    told = []
    rows = churn.measure([trial(800, 600)], 8.0, 20, told.append, drift=False)
    assert sum(told) == churn.work(1) == len(rows)
    assert [row.way for row in rows][:2] == ["neighbours alone", "private model, trained 2 times"]
    assert all(0 <= row.last[0] <= 1 and row.accuracies[0] > 0.4 for row in rows)
    assert "last month" in churn.text_table(rows)
    assert rows[0].to_dict()["accuracy_mean"] == rows[0].accuracies[0]


def test_a_stream_is_whole_thousands():
    found = CliRunner().invoke(app, ["stream", "--total", "1500"])
    assert found.exit_code == 2
    assert "whole thousands" in found.stderr
