"""What a mechanism without noise leaks: smoothed differential privacy, exactly.

A mechanism that only samples has a worst-case delta of about the sampling rate, because some
database has a record that shows whenever it is drawn. Smoothed differential privacy (LWX23) asks
for the mean delta over databases from the worst *plausible* world instead. smoothed.md says
when that may be relied on.
"""

from vicinal.smoothed._average import Average, gradient_law
from vicinal.smoothed._composition import JointMechanism, NamedMechanism, compose
from vicinal.smoothed._databases import adjusted_utility, database_delta, profile, worst_case_delta
from vicinal.smoothed._intervals import DatabaseDelta, Delta
from vicinal.smoothed._knn import KNNVotes
from vicinal.smoothed._mechanism import Histogram, ListedMechanism
from vicinal.smoothed._populations import Heterogeneous, Hull, Interval, Vertices
from vicinal.smoothed._radius import RadiusVotes
from vicinal.smoothed._samplers import FixedSize, Poisson, WithReplacement
from vicinal.smoothed._smooth import WARNINGS, quantiles, smoothed_delta
from vicinal.smoothed._theorems import Bounds, bounds
from vicinal.smoothed._winner import Winner, rankings

__all__ = [
    "WARNINGS",
    "Average",
    "Bounds",
    "DatabaseDelta",
    "Delta",
    "FixedSize",
    "Heterogeneous",
    "Histogram",
    "Hull",
    "Interval",
    "JointMechanism",
    "KNNVotes",
    "ListedMechanism",
    "NamedMechanism",
    "Poisson",
    "RadiusVotes",
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
