from vicinal.smoothed._average import Average as Average
from vicinal.smoothed._average import gradient_law as gradient_law
from vicinal.smoothed._databases import JointMechanism as JointMechanism
from vicinal.smoothed._databases import NamedMechanism as NamedMechanism
from vicinal.smoothed._databases import adjusted_utility as adjusted_utility
from vicinal.smoothed._databases import compose as compose
from vicinal.smoothed._databases import database_delta as database_delta
from vicinal.smoothed._databases import profile as profile
from vicinal.smoothed._databases import worst_case_delta as worst_case_delta
from vicinal.smoothed._intervals import DatabaseDelta as DatabaseDelta
from vicinal.smoothed._intervals import Delta as Delta
from vicinal.smoothed._knn import KNNVotes as KNNVotes
from vicinal.smoothed._knn import RadiusVotes as RadiusVotes
from vicinal.smoothed._mechanism import FixedSize as FixedSize
from vicinal.smoothed._mechanism import Histogram as Histogram
from vicinal.smoothed._mechanism import ListedMechanism as ListedMechanism
from vicinal.smoothed._mechanism import Poisson as Poisson
from vicinal.smoothed._mechanism import WithReplacement as WithReplacement
from vicinal.smoothed._populations import Bounds as Bounds
from vicinal.smoothed._populations import Heterogeneous as Heterogeneous
from vicinal.smoothed._populations import Hull as Hull
from vicinal.smoothed._populations import Interval as Interval
from vicinal.smoothed._populations import Vertices as Vertices
from vicinal.smoothed._populations import bounds as bounds
from vicinal.smoothed._smooth import WARNINGS as WARNINGS
from vicinal.smoothed._smooth import quantiles as quantiles
from vicinal.smoothed._smooth import smoothed_delta as smoothed_delta

__all__: list[str]  # the names above; those below are shared inside vicinal, and may change

from vicinal.smoothed._average import LEVELS as LEVELS
from vicinal.smoothed._intervals import LOG_10 as LOG_10
from vicinal.smoothed._intervals import power_of_ten as power_of_ten
from vicinal.smoothed._populations import one_sided as one_sided
from vicinal.smoothed._populations import two_sided_at as two_sided_at
from vicinal.smoothed._smooth import estimate as estimate
