__all__: list[str]  # the names above; those below are shared inside vicinal, and may change

from vicinal.planning._engine_factory import EnginePlanner as EnginePlanner
from vicinal.planning._engine_factory import PlannedEngine as PlannedEngine
from vicinal.planning._engine_factory import engine_on as engine_on
from vicinal.planning._engine_factory import kernel_for as kernel_for
from vicinal.planning._engine_factory import numbers as numbers
from vicinal.planning._engine_factory import plan_engine as plan_engine
from vicinal.planning._engine_factory import rehearse as rehearse
from vicinal.planning._engine_factory import settled_model as settled_model
from vicinal.planning._engine_factory import slack_meter as slack_meter
from vicinal.planning._guarantees import Plan as Plan
from vicinal.planning._guarantees import affordable_noise as affordable_noise
from vicinal.planning._guarantees import check_renewal as check_renewal
from vicinal.planning._guarantees import check_under_total as check_under_total
from vicinal.planning._guarantees import guarantee_of as guarantee_of
from vicinal.planning._guarantees import ind_knn_guarantee as ind_knn_guarantee
from vicinal.planning._guarantees import part_epsilon as part_epsilon
from vicinal.planning._guarantees import refuse_weak as refuse_weak
from vicinal.planning._guarantees import several as several
from vicinal.planning._guarantees import summed as summed
from vicinal.planning._guarantees import total_budget as total_budget
from vicinal.planning._guarantees import total_over as total_over
from vicinal.planning._parameter_tables import INTERACTIONS as INTERACTIONS
from vicinal.planning._parameter_tables import PARAMETERS as PARAMETERS
from vicinal.planning._parameter_tables import PRIVATE as PRIVATE
from vicinal.planning._parameter_tables import (
    IndKNNClassifierParameters as IndKNNClassifierParameters,
)
from vicinal.planning._parameter_tables import IndKNNParameters as IndKNNParameters
from vicinal.planning._parameter_tables import MultiLabelParameters as MultiLabelParameters
from vicinal.planning._parameter_tables import RegressorParameters as RegressorParameters
from vicinal.planning._parameter_tables import index_factory as index_factory
from vicinal.planning._plan import IndKNNPlan as IndKNNPlan
from vicinal.planning._plan import default_delta as default_delta
from vicinal.planning._plan_simulation import LEAST_POINTS as LEAST_POINTS
from vicinal.planning._plan_simulation import PlanChoice as PlanChoice
from vicinal.planning._plan_simulation import SimulationResult as SimulationResult
from vicinal.planning._plan_simulation import SimulationSetup as SimulationSetup
from vicinal.planning._plan_simulation import simulate as simulate
