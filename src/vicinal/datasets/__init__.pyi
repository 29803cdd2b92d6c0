from vicinal.datasets.dataset import Dataset as Dataset
from vicinal.datasets.dataset import load_images as load_images
from vicinal.datasets.dataset import load_mnist as load_mnist
from vicinal.datasets.tables import load_table as load_table
