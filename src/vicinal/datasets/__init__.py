"""Records from files: npz, CSV, Parquet, folders of images, and the MNIST digits shipped along.

Files may hold private records, so no error message here repeats a value from a file, not even a
column's name: the "header" of a CSV file that has none is somebody's record.
"""

from vicinal.datasets._arrays import image_npz, load_mnist
from vicinal.datasets._coincidences import Coincidences, coincidences
from vicinal.datasets._dataset import Dataset
from vicinal.datasets._folders import load_images
from vicinal.datasets._id_lists import read_ids
from vicinal.datasets._tables import load_table, read_table

__all__ = [
    "Coincidences",
    "Dataset",
    "coincidences",
    "image_npz",
    "load_images",
    "load_mnist",
    "load_table",
    "read_ids",
    "read_table",
]
