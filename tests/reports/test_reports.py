"""Reports: intervals against published values, plots as image files, escaping in pages."""

import math
import re
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from vicinal import Guarantee
from vicinal.reports import text as words
from vicinal.reports._compile import STEPS
from vicinal.reports.demo import DemoAnswers, render_demo_page
from vicinal.reports.outcomes import (
    AccuracyByClass,
    AnswerCounts,
    count_correct_of_most_confident,
    wilson_interval,
)

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize(
    ("correct", "total", "low", "high"),
    # Newcombe 1998, "Two-sided confidence intervals for the single proportion", method 3.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0, 0.1611),
     (1, 29, 0.0061, 0.1718)],
)  # fmt: skip
def test_wilson_interval_has_the_published_values(correct, total, low, high):
    assert wilson_interval(correct, total) == pytest.approx((low, high), abs=5e-5)
    mirrored = wilson_interval(total - correct, total)
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=5e-5)


def test_outcomes_count_right_answers_of_all_of_each_class_and_of_the_surest():
    outcome = AnswerCounts.from_answers([1, 2, 3, 3], [1, 2, 0, 3])
    assert outcome == AnswerCounts(3, 4)
    assert outcome.accuracy == 0.75
    assert outcome.to_dict()["interval_95"] == list(wilson_interval(3, 4))
    figures = AccuracyByClass.from_answers([0, 1, 1, 1], [0, 0, 1, 1], [0, 1, 2])
    assert figures.by_class == {
        "0": AnswerCounts(1, 2),
        "1": AnswerCounts(2, 2),
        "2": AnswerCounts(0, 0),
    }
    assert figures.to_dict()["by_class"]["0"]["accuracy"] == 0.5
    assert figures.format_lines()[-1].endswith("1 1.000 of 2; 2: no examples")
    assert AccuracyByClass.from_answers([], [], [0]).format_lines() == [
        "There are no examples to compare with."
    ]
    right, confidence = np.array([True, False, True, False]), np.array([3.0, 2.0, 1.0, 0.0])
    shares = (0.25, 0.5, 0.75, 1.0)
    found = [count_correct_of_most_confident(right, confidence, share) for share in shares]
    assert found == [AnswerCounts(1, 1), AnswerCounts(1, 2), AnswerCounts(2, 3), AnswerCounts(2, 4)]


def test_limits_on_guessing_are_those_of_published_laws_and_rounded_up():
    # Randomised response keeps the truth with probability e^epsilon / (1 + e^epsilon).
    assert words.bound_attack_success(math.log(3), 0) == pytest.approx(0.75)
    assert words.bound_attack_success(1e-9, 0.2) == pytest.approx(0.6)
    # Phi(mu / 2) at mu = 2, from tables of the normal distribution.
    assert words.bound_gaussian_success(2.0, 0.0) == pytest.approx(0.841345, abs=1e-6)
    assert words.format_upper_percent(0.73106) == "73.2 %"
    assert words.format_upper_percent(0.5) == "50.0 %"


def test_plots_are_well_formed_svg_and_the_same_every_time():
    from vicinal.reports import plots  # takes long to import

    shown = {"a": AnswerCounts(8, 10), "b": AnswerCounts(9, 10), "c": AnswerCounts(0, 0)}
    first, second = (plots.plot_accuracy_by_class(shown) for _ in range(2))
    assert ET.fromstring(first).tag.endswith("svg")  # noqa: S314 (made here)
    assert strip_ids(first) == strip_ids(second)
    assert plots.encode_png(np.eye(2)).startswith(PNG)


def strip_ids(svg):
    """Remove the names that matplotlib draws for clipping paths and glyphs."""
    return re.sub(rb"[mp][0-9a-f]{10}", b"", svg)


NASTY = "<script>alert('&\"')</script>"


def a_page():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 60)
    labels = np.where(rng.random(60) < 0.2, (truth + 1) % 3, truth)
    guarantee = Guarantee(1.0, 1e-5, NASTY, ("records",), ("queries",), NASTY, (NASTY,))
    names = ("n_records", "n_reference", "n_queries", "n_neighbors", "noise_multiplier", "budget")
    plan = dict(zip(names, (500, 50, 60, 20, 0.3, 0.036), strict=True)) | {"features": NASTY}
    return {
        "data_name": NASTY,
        "answers": DemoAnswers(labels, truth, rng.exponential(3, 60), guarantee, plan),
        "images": rng.integers(0, 255, (60, 8, 8)), "command": f"vicinal demo --data {NASTY}",
        "version": "1.2.3", "seconds": 61.0,
    }  # fmt: skip


@pytest.fixture(scope="module")
def html():
    return render_demo_page(**a_page())


@pytest.fixture(scope="module")
def tree(html):
    return ET.fromstring(html)  # noqa: S314 (made here)


def text_of(element):
    return " ".join("".join(element.itertext()).split())


def test_the_page_escapes_all_text_and_needs_nothing_else(html, tree):
    assert NASTY not in html
    assert tree.find(".//script") is None
    for part in ("title", "h1", "blockquote", "pre"):
        assert NASTY in text_of(next(tree.iter(part)))
    assert tree.find(".//link") is None
    addresses = [
        value
        for element in tree.iter()
        for name, value in element.attrib.items()
        if name in ("src", "srcset", "href")
    ]
    assert addresses
    assert all(address.startswith("data:image/") for address in addresses)
    assert "url(" not in html


def test_the_page_says_it_all_and_every_picture_has_words(tree):
    page, said = a_page(), text_of(tree)
    assert str(page["answers"].guarantee) in said
    assert words.format_percent(page["answers"].outcome.accuracy) in said
    assert page["command"] in said
    assert "1 min 1 s" in said
    assert all(image.attrib["alt"] for image in tree.iter("img"))


@pytest.mark.counts_interactions
def test_steps_of_an_installation_share_a_process_and_show_no_warning(recwarn):
    """Processes take steps at random, so no step may claim the records of another.

    Fails also if `make install` advises a new user to use more records.
    """
    for step in STEPS:
        step()
    assert [str(warning.message) for warning in recwarn.list] == []
