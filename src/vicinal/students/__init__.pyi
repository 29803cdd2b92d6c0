from vicinal.errors import MissingExtra as MissingExtra
from vicinal.students.learner import StudentLearner as StudentLearner
from vicinal.students.learner import train_student as train_student
from vicinal.students.student import Student as Student
from vicinal.students.student import load as load
from vicinal.students.student import save as save
from vicinal.students.student import save_onnx as save_onnx
from vicinal.students.training import Recipe as Recipe
