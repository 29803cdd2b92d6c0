"""Students: networks trained on released answers and unlabelled public data, to be published.

Answers are the noisy labels of some public examples; soft labels are a private model's released
class probabilities of all of them.

torch is imported here and nowhere below. Nothing here sees a private record, except that
:meth:`Student.transform` makes features of them, record by record, in exact arithmetic.
"""

from importlib.util import find_spec

from vicinal.errors import MissingExtra
from vicinal.lazy import build_lazy_exports

if find_spec("torch") is None:
    raise MissingExtra(
        "Students need the package torch. Install it with: pip install 'vicinal[students]'"
    )

__getattr__, __dir__, __all__ = build_lazy_exports(__name__)
