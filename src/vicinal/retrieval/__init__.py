"""Retrievers for language models: what private records near a question share, and its price."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vicinal._lazy import lazy_exports

if TYPE_CHECKING:
    from vicinal.retrieval._langchain import LangChainRetriever
    from vicinal.retrieval._llama_index import LlamaIndexRetriever
    from vicinal.retrieval._neighborhood import NeighborhoodDocument, NeighborhoodSource

__all__ = [
    "LangChainRetriever",
    "LlamaIndexRetriever",
    "NeighborhoodDocument",
    "NeighborhoodSource",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    globals(),
    {
        "LangChainRetriever": "vicinal.retrieval._langchain",
        "LlamaIndexRetriever": "vicinal.retrieval._llama_index",
        "NeighborhoodDocument": "vicinal.retrieval._neighborhood",
        "NeighborhoodSource": "vicinal.retrieval._neighborhood",
    },
)
