"""Values that stand for missing ones."""

import math
from decimal import Decimal

import pytest

from vicinal import checks
from vicinal.errors import InvalidInput
from vicinal.tabular import is_missing


@pytest.mark.parametrize("value", [None, math.nan, Decimal("nan"), Decimal("sNaN")])
def test_every_not_a_number_is_missing(value):
    """A comparison of a signalling NaN raises InvalidOperation, so it is never compared."""
    assert is_missing(value)
    with pytest.raises(InvalidInput):
        checks.check_subject_id("subject", value)


@pytest.mark.parametrize("value", [0, "", "nan", Decimal(1), math.inf])
def test_other_values_are_not_missing(value):
    assert not is_missing(value)
