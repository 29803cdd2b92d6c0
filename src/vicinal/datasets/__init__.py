"""Records from files: npz, CSV, Parquet, folders of images, and the MNIST digits shipped along.

Files may hold private records, so no error message here repeats a value from a file, not even a
column's name: the first line of a CSV file without a header is a record.
"""

from vicinal.lazy import build_lazy_exports

__getattr__, __dir__, __all__ = build_lazy_exports(__name__)
