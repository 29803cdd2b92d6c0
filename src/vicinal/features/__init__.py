"""From raw records to feature vectors: fixed extractors, and a map learnt from public data only.

Whatever stands here sees a record before any privacy is paid for, so the output for one record
may depend on that record and on public things, never on the record's company.
"""

from vicinal.features.hog import HOGFeatures
from vicinal.features.image import ImageFeatures
from vicinal.features.onnx import OnnxFeatures
from vicinal.features.public_map import PublicMap
from vicinal.features.scattering import ScatteringFeatures
from vicinal.features.text import SentenceFeatures

__all__ = [
    "HOGFeatures",
    "ImageFeatures",
    "OnnxFeatures",
    "PublicMap",
    "ScatteringFeatures",
    "SentenceFeatures",
]
