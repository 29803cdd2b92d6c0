"""Students: networks trained on released answers and unlabelled public data, to be published.

torch is imported here and nowhere below. Nothing here sees a private record, except that
:meth:`Student.transform` makes features of them, record by record, in exact arithmetic.
"""

from vicinal.errors import MissingExtra

try:
    import torch  # noqa: F401 (is it there?)
except ImportError:
    raise MissingExtra(
        "Students need torch. Install it with: pip install 'vicinal[students]'"
    ) from None

from vicinal.students._files import load, save, save_onnx
from vicinal.students._learner import StudentLearner, train_student
from vicinal.students._student import Preprocessing, Student
from vicinal.students._training import Recipe, for_digits, for_overlapping

__all__ = [
    "Preprocessing",
    "Recipe",
    "Student",
    "StudentLearner",
    "for_digits",
    "for_overlapping",
    "load",
    "save",
    "save_onnx",
    "train_student",
]
