"""Displayed bounds are short, and never smaller than the bounds."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vicinal.accounting.guarantee import Guarantee, format_rounded_up


@pytest.mark.parametrize(
    ("bound", "text"),
    [
        (1.14361, "1.15"), (1.0, "1"), (1e-5, "1e-05"), (0.1, "0.1"), (1 / 3, "0.334"),
        (1.0000004, "1.01"), (1234.5, "1240"), (9.999, "10"), (2, "2"), (math.inf, "inf"),
    ],
)  # fmt: skip
def test_three_digits_are_shown(bound, text):
    assert format_rounded_up(bound) == text


@given(st.floats(1e-12, 1e6))
def test_no_bound_is_displayed_too_small(bound):
    displayed = float(format_rounded_up(bound))
    assert bound <= displayed <= 1.0101 * bound


def test_the_text_is_rounded_and_json_is_not():
    guarantee = Guarantee(1.14361, 3.3333e-6, "", (), (), "", ())
    found = guarantee.to_dict()
    assert (found["epsilon"], found["delta"]) == (1.14361, 3.3333e-6)
    assert found["text"].startswith("(1.15, 3.34e-06)-differential privacy")
    assert "at most e^1.15," in found["text"]
    assert "1.15" in guarantee._repr_html_()
    assert Guarantee(math.inf, 1.0, "", (), (), "", (), holds=False).to_dict()["epsilon"] is None
