from vicinal.accounting._calibrate import CalibratedPlan as CalibratedPlan
from vicinal.accounting._calibrate import calibrate as calibrate
from vicinal.accounting._guarantee import Guarantee as Guarantee
from vicinal.accounting._plan import Plan as Plan
from vicinal.accounting._plan import account as account

__all__: list[str]  # the names above; those below are shared inside vicinal, and may change

from vicinal.accounting._budget import MAX_NORM as MAX_NORM
from vicinal.accounting._budget import MAX_SCALE as MAX_SCALE
from vicinal.accounting._budget import METHODS as METHODS
from vicinal.accounting._budget import UNITS as UNITS
from vicinal.accounting._budget import gdp_delta as gdp_delta
from vicinal.accounting._budget import gdp_epsilon as gdp_epsilon
from vicinal.accounting._budget import rdp_epsilon as rdp_epsilon
from vicinal.accounting._budget import unit_rate as unit_rate
from vicinal.accounting._budget import zcdp_budget as zcdp_budget
from vicinal.accounting._charges import afford as afford
from vicinal.accounting._charges import charge as charge
from vicinal.accounting._charges import label_charge as label_charge
from vicinal.accounting._composition import Composition as Composition
from vicinal.accounting._composition import PricedRelease as PricedRelease
from vicinal.accounting._gaussian import SubsampledGaussian as SubsampledGaussian
from vicinal.accounting._gaussian import grid_excess as grid_excess
from vicinal.accounting._gaussian import grid_slack as grid_slack
from vicinal.accounting._guarantee import rounded_up as rounded_up
from vicinal.accounting._kinds import KINDS as KINDS
from vicinal.accounting._label_filter import ChargeTable as ChargeTable
from vicinal.accounting._label_filter import charge_table as charge_table
from vicinal.accounting._label_only import LINE_GRID as LINE_GRID
from vicinal.accounting._label_only import NoisyLabel as NoisyLabel
from vicinal.accounting._plan import NEIGHBOURING as NEIGHBOURING
from vicinal.accounting._pld import composed_losses as composed_losses
from vicinal.accounting._screening import Screening as Screening
