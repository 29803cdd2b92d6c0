"""From raw records to feature vectors: fixed extractors, and a map learnt from public data only.

Whatever stands here sees a record before any privacy is paid for, so the output for one record
may depend on that record and on public things, never on the record's company.
"""

from vicinal.features._hog import HOGFeatures
from vicinal.features._image import ImageFeatures
from vicinal.features._onnx import OnnxFeatures
from vicinal.features._public_map import PublicMap
from vicinal.features._scattering import ScatteringFeatures
from vicinal.features._text import SentenceFeatures

__all__ = [
    "HOGFeatures",
    "ImageFeatures",
    "OnnxFeatures",
    "PublicMap",
    "ScatteringFeatures",
    "SentenceFeatures",
]
