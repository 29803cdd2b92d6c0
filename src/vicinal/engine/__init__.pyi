__all__: list[str]  # the names above; those below are shared inside vicinal, and may change

from vicinal.engine._answer_reuse import AnsweredNeighbours as AnsweredNeighbours
from vicinal.engine._engine import BLOCK as BLOCK
from vicinal.engine._engine import QueryAnswers as QueryAnswers
from vicinal.engine._engine import QueryEngine as QueryEngine
from vicinal.engine._noise_schedule import COUNT_SHARE as COUNT_SHARE
from vicinal.engine._noise_schedule import HEADROOM as HEADROOM
from vicinal.engine._noise_schedule import TYPICAL_SPREAD as TYPICAL_SPREAD
from vicinal.engine._noise_schedule import ReferenceUsage as ReferenceUsage
from vicinal.engine._noise_schedule import count_noise as count_noise
from vicinal.engine._noise_schedule import dimension as dimension
from vicinal.engine._noise_schedule import expected_neighbors as expected_neighbors
from vicinal.engine._noise_schedule import fitting_neighbors as fitting_neighbors
from vicinal.engine._noise_schedule import planned_multiplier as planned_multiplier
from vicinal.engine._noise_schedule import reference_usage as reference_usage
from vicinal.engine._proxy_ledger import QUANTILES as QUANTILES
from vicinal.engine._proxy_ledger import RETIRED as RETIRED
from vicinal.engine._proxy_ledger import WHOLE as WHOLE
from vicinal.engine._proxy_ledger import BudgetUsage as BudgetUsage
from vicinal.engine._proxy_ledger import ProxyLedger as ProxyLedger
from vicinal.engine._shard import LocalShardBase as LocalShardBase
from vicinal.engine._shard import MappedIndex as MappedIndex
from vicinal.engine._shard import Shard as Shard
from vicinal.engine._shard import SharedShard as SharedShard
from vicinal.engine._shard import TwoRounds as TwoRounds
from vicinal.engine._shard import summed as summed
