from vicinal.features._csv_form import CsvForm as CsvForm
from vicinal.features._hog import HOGFeatures as HOGFeatures
from vicinal.features._image import ImageFeatures as ImageFeatures
from vicinal.features._public_map import PublicMap as PublicMap
from vicinal.features._scattering import ScatteringFeatures as ScatteringFeatures
from vicinal.features._table_drafts import draft_schema as draft_schema
from vicinal.features._table_drafts import rows_from_schema as rows_from_schema
from vicinal.features._table_features import TableFeatures as TableFeatures
from vicinal.features._table_schema import TableSchema as TableSchema
from vicinal.features._text import SentenceFeatures as SentenceFeatures

__all__: list[str]  # the names above; those below are shared inside vicinal, and may change

from vicinal.features._csv_form import with_points as with_points
from vicinal.features._table_columns import ids as ids
from vicinal.features._table_columns import numbers as numbers
from vicinal.features._table_columns import plain_text as plain_text
from vicinal.features._table_features import as_schema as as_schema
from vicinal.features._table_features import check_table as check_table
