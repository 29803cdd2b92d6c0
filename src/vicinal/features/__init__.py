"""From raw records to feature vectors: fixed extractors, and a map learnt from public data only.

Whatever stands here sees a record before any privacy is paid for, so the output for one record
may depend on that record and on public things, never on other records. Names are imported when
they are used, as some load for a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vicinal._lazy import lazy_exports

if TYPE_CHECKING:
    from vicinal.features._hog import HOGFeatures
    from vicinal.features._image import ImageFeatures
    from vicinal.features._lite0 import Lite0Features
    from vicinal.features._minilm import MiniLMFeatures
    from vicinal.features._onnx import OnnxFeatures
    from vicinal.features._public_map import PublicMap
    from vicinal.features._scattering import ScatteringFeatures
    from vicinal.features._table_check import Misfit, check_table
    from vicinal.features._table_drafts import draft_schema
    from vicinal.features._table_features import TableFeatures
    from vicinal.features._table_made_up import rows_from_schema
    from vicinal.features._table_schema import TableSchema
    from vicinal.features._text import SentenceFeatures

__all__ = [
    "HOGFeatures",
    "ImageFeatures",
    "Lite0Features",
    "MiniLMFeatures",
    "Misfit",
    "OnnxFeatures",
    "PublicMap",
    "ScatteringFeatures",
    "SentenceFeatures",
    "TableFeatures",
    "TableSchema",
    "check_table",
    "draft_schema",
    "rows_from_schema",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    globals(),
    {
        "HOGFeatures": "vicinal.features._hog",
        "ImageFeatures": "vicinal.features._image",
        "Lite0Features": "vicinal.features._lite0",
        "MiniLMFeatures": "vicinal.features._minilm",
        "Misfit": "vicinal.features._table_check",
        "OnnxFeatures": "vicinal.features._onnx",
        "PublicMap": "vicinal.features._public_map",
        "ScatteringFeatures": "vicinal.features._scattering",
        "SentenceFeatures": "vicinal.features._text",
        "TableFeatures": "vicinal.features._table_features",
        "TableSchema": "vicinal.features._table_schema",
        "check_table": "vicinal.features._table_check",
        "draft_schema": "vicinal.features._table_drafts",
        "rows_from_schema": "vicinal.features._table_made_up",
    },
)
