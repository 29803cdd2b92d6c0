"""A retriever for LlamaIndex; needs the extra `llama-index`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vicinal._lazy import of_extra
from vicinal.retrieval._neighborhood import NeighborhoodSource

if TYPE_CHECKING:
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
else:
    BaseRetriever = of_extra(
        "llama-index", "llama_index.core.base.base_retriever", "LlamaIndexRetriever"
    ).BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode


class LlamaIndexRetriever(BaseRetriever):
    """Gives a query engine one node a source: what private records near the query share.

    Parameters
    ----------
    sources : sequence of NeighborhoodSource
        Stores, asked in this order.
    **options
        Of LlamaIndex's base class.

    Examples
    --------
    >>> from vicinal.retrieval import LlamaIndexRetriever
    >>> LlamaIndexRetriever([]).retrieve("my knee is swollen")
    []
    """

    def __init__(self, sources: Sequence[NeighborhoodSource], **options: Any) -> None:
        self._sources = tuple(sources)
        super().__init__(**options)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        documents = [source.document(query_bundle.query_str) for source in self._sources]
        return [
            NodeWithScore(node=TextNode(text=each.text, metadata=each.metadata), score=1.0)
            for each in documents
        ]
