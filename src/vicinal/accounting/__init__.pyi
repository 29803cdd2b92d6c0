from vicinal.accounting.calibration import CalibratedPlan as CalibratedPlan
from vicinal.accounting.calibration import calibrate as calibrate
from vicinal.accounting.guarantee import Guarantee as Guarantee
from vicinal.accounting.plan import Plan as Plan
from vicinal.accounting.plan import account as account
