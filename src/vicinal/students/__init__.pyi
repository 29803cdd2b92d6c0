from vicinal.errors import MissingExtra as MissingExtra
from vicinal.students._learner import StudentLearner as StudentLearner
from vicinal.students._learner import train_student as train_student
from vicinal.students._student import Student as Student
from vicinal.students._student import load as load
from vicinal.students._student import save as save
from vicinal.students._student import save_onnx as save_onnx
from vicinal.students._training import Recipe as Recipe

__all__: list[str]  # the names above; those below are shared inside vicinal, and may change

from vicinal.students._student import about as about
from vicinal.students._training import for_digits as for_digits
from vicinal.students._training import for_overlapping as for_overlapping
