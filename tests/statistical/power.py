"""The one home of odds and sample sizes for all statistical tests.

Entropy is seeded by the name of a test (tests/entropy.py), so the outcome is the same in every run;
the odds hold when a test is written, renamed, or run with ``--entropy system`` as by `make soak`.

A check of a law fails by chance with probability `P_VALUE`, six standard deviations of a normal
variable, two-sided. An audit's lower bounds are wrong with probability ``1 - CONFIDENCE``. With
some 200 checks and 20 audits in this folder, an honest run fails about once in 40,000.

Sample sizes are chosen so that every deliberately broken version is caught with probability above
1 - 1e-6; where a broken version draws from a seeded generator, it is caught every time.
"""

from scipy.stats import norm

P_VALUE = float(2 * norm.sf(6))
"""The one p-threshold, about 2e-9."""

CONFIDENCE = 1 - 1e-6
"""Of all bounds that one audit computes, together."""

LEAST_EXPECTED = 50
"""Cells of a chi-square test expect at least this many draws; smaller ones are merged."""

LAW_DRAWS = 60_000
"""For an error of the law's shape at scale 1 (a rounded normal: noncentrality 300)."""

SPREAD_DRAWS = 200_000
"""For a scale that is off by 2 %: 12 standard errors of the second moment."""

UNIVERSES = 500
"""Independent copies of the two worlds inside one data set."""

RUNS = 10
"""Data sets per world of an honest audit: 5,000 universes bound a mu of .92 from below by .59 on
average, .025 (one standard error) more or less: 5 standard errors from half the claim."""

BROKEN_RUNS = 2
"""Data sets per world of an audit that must find a fault: a doubled mu is found 7 standard errors
from the claim."""
