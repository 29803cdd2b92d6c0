"""What a mechanism without noise leaks: smoothed differential privacy, exactly.

A mechanism that only samples has a worst-case delta of about the sampling rate, because some
database has a record that shows whenever it is drawn. Smoothed differential privacy (LWX23) asks
for the mean delta over databases from the worst *plausible* world instead. docs/smoothed.md says
when that may be relied on.
"""

from vicinal.smoothed.answers import DatabaseDelta, Delta
from vicinal.smoothed.average import Average
from vicinal.smoothed.composition import Composition, Release, compose
from vicinal.smoothed.custom import Custom
from vicinal.smoothed.databases import (
    adjusted_utility,
    database_delta,
    profile,
    worst_case_delta,
)
from vicinal.smoothed.gradients import gradient_law
from vicinal.smoothed.histogram import Histogram
from vicinal.smoothed.knn import KNNVotes
from vicinal.smoothed.populations import Heterogeneous, Hull, Interval, Vertices
from vicinal.smoothed.radius import RadiusVotes
from vicinal.smoothed.samplers import FixedSize, Poisson, WithReplacement
from vicinal.smoothed.smooth import WARNINGS, quantiles, smoothed_delta
from vicinal.smoothed.theorems import Bounds, bounds
from vicinal.smoothed.winner import Winner, rankings

__all__ = [
    "WARNINGS",
    "Average",
    "Bounds",
    "Composition",
    "Custom",
    "DatabaseDelta",
    "Delta",
    "FixedSize",
    "Heterogeneous",
    "Histogram",
    "Hull",
    "Interval",
    "KNNVotes",
    "Poisson",
    "RadiusVotes",
    "Release",
    "Vertices",
    "Winner",
    "WithReplacement",
    "adjusted_utility",
    "bounds",
    "compose",
    "database_delta",
    "gradient_law",
    "profile",
    "quantiles",
    "rankings",
    "smoothed_delta",
    "worst_case_delta",
]
