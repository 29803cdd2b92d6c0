from vicinal.datasets._dataset import Dataset as Dataset
from vicinal.datasets._dataset import load_images as load_images
from vicinal.datasets._dataset import load_mnist as load_mnist
from vicinal.datasets._tables import load_table as load_table

__all__: list[str]  # the names above; those below are shared inside vicinal, and may change

from vicinal.datasets._coincidences import coincidences as coincidences
from vicinal.datasets._id_lists import read_ids as read_ids
from vicinal.datasets._id_lists import read_whole as read_whole
from vicinal.datasets._tables import column_name as column_name
from vicinal.datasets._tables import csv_form as csv_form
from vicinal.datasets._tables import read_table as read_table
