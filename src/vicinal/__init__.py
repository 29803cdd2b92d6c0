"""Vicinal: differentially private prediction by nearest neighbours.

>>> from vicinal import IndKNNClassifier

Names are imported when they are used, so that `import vicinal` takes no time. What begins with an
underscore is internal, here and in every package; each package's __all__ is public.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vicinal._lazy import lazy_exports

if TYPE_CHECKING:
    from vicinal import audit, errors
    from vicinal.accounting import Guarantee, account, calibrate
    from vicinal.audit import inspect_model
    from vicinal.features import (
        HOGFeatures,
        ImageFeatures,
        OnnxFeatures,
        PublicMap,
        ScatteringFeatures,
        SentenceFeatures,
        TableFeatures,
    )
    from vicinal.predictors import (
        IndKNNClassifier,
        IndKNNMultiLabelClassifier,
        IndKNNRegressor,
        NoisySGDClassifier,
        PATEClassifier,
        PrivateKNNClassifier,
    )
    from vicinal.store import Store

__all__ = [
    "Guarantee",
    "HOGFeatures",
    "ImageFeatures",
    "IndKNNClassifier",
    "IndKNNMultiLabelClassifier",
    "IndKNNRegressor",
    "NoisySGDClassifier",
    "OnnxFeatures",
    "PATEClassifier",
    "PrivateKNNClassifier",
    "PublicMap",
    "ScatteringFeatures",
    "SentenceFeatures",
    "Store",
    "TableFeatures",
    "__version__",
    "account",
    "audit",
    "calibrate",
    "errors",
    "inspect_model",
]

__version__ = "0.2.0"

__getattr__, __dir__ = lazy_exports(
    __name__,
    globals(),
    {
        "Guarantee": "vicinal.accounting",
        "HOGFeatures": "vicinal.features",
        "ImageFeatures": "vicinal.features",
        "IndKNNClassifier": "vicinal.predictors",
        "IndKNNMultiLabelClassifier": "vicinal.predictors",
        "IndKNNRegressor": "vicinal.predictors",
        "NoisySGDClassifier": "vicinal.predictors",
        "OnnxFeatures": "vicinal.features",
        "PATEClassifier": "vicinal.predictors",
        "PrivateKNNClassifier": "vicinal.predictors",
        "PublicMap": "vicinal.features",
        "ScatteringFeatures": "vicinal.features",
        "SentenceFeatures": "vicinal.features",
        "Store": "vicinal.store",
        "TableFeatures": "vicinal.features",
        "account": "vicinal.accounting",
        "audit": "vicinal.audit",
        "calibrate": "vicinal.accounting",
        "errors": "vicinal.errors",
        "inspect_model": "vicinal.audit",
    },
)
