__all__: list[str]  # the names above; those below are shared inside vicinal, and may change

from vicinal._progress import Begin as Begin
from vicinal._progress import Step as Step
from vicinal._progress import shown as shown
from vicinal.reports._demo import DemoAnswers as DemoAnswers
from vicinal.reports._demo import Trial as Trial
from vicinal.reports._demo import answer as answer
from vicinal.reports._demo import html_page as html_page
from vicinal.reports._demo import prepare as prepare
from vicinal.reports._deployment_certificate import certificate_page as certificate_page
from vicinal.reports._deployment_certificate import deployment_certificate as deployment_certificate
from vicinal.reports._deployment_certificate import membership_success as membership_success
from vicinal.reports._outcomes import ClassFigures as ClassFigures
from vicinal.reports._outcomes import Outcome as Outcome
from vicinal.reports._outcomes import rightness as rightness
from vicinal.reports._plan_report import as_text as as_text
from vicinal.reports._plan_report import plan_options as plan_options
from vicinal.reports._plan_report import verdicts as verdicts
from vicinal.reports._plots import COLOURS as COLOURS
from vicinal.reports._plots import canvas as canvas
from vicinal.reports._plots import figure_bytes as figure_bytes
from vicinal.reports._smoothed_audit import audit as audit
from vicinal.reports._smoothed_audit import audit_text as audit_text
from vicinal.reports._text import duration as duration
from vicinal.reports._text import guess_limit as guess_limit
from vicinal.reports._text import interval as interval
from vicinal.reports._text import percent as percent
