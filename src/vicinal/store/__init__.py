"""A store: private records on disk, budgets that outlive the process, and people who can leave."""

from vicinal.store._base_store import DEFAULT
from vicinal.store._evaluation import Evaluation
from vicinal.store._extractors import StoreExtractor
from vicinal.store._requests import LabelSetReply, NumberReply, Query, Reply
from vicinal.store._status import Presence, Quota
from vicinal.store._store import Store
from vicinal.store._vector_evaluation import LabelSetEvaluation, NumberEvaluation
from vicinal.store._verify import Verification

__all__ = [
    "DEFAULT",
    "Evaluation",
    "LabelSetEvaluation",
    "LabelSetReply",
    "NumberEvaluation",
    "NumberReply",
    "Presence",
    "Query",
    "Quota",
    "Reply",
    "Store",
    "StoreExtractor",
    "Verification",
]
