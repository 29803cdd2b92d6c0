"""A retriever for LangChain; needs the extra `langchain`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vicinal._lazy import of_extra
from vicinal.retrieval._neighborhood import NeighborhoodSource

if TYPE_CHECKING:
    from langchain_core.callbacks import CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
else:
    BaseRetriever = of_extra(
        "langchain", "langchain_core.retrievers", "LangChainRetriever"
    ).BaseRetriever
    from langchain_core.callbacks import CallbackManagerForRetrieverRun
    from langchain_core.documents import Document


class LangChainRetriever(BaseRetriever):
    """Gives a chain one document a source: what private records near the query share.

    Attributes
    ----------
    sources : tuple of NeighborhoodSource
        Stores, asked in this order.

    Examples
    --------
    >>> from vicinal.retrieval import LangChainRetriever
    >>> LangChainRetriever(sources=()).invoke("my knee is swollen")
    []
    """

    sources: tuple[NeighborhoodSource, ...]

    model_config = {"arbitrary_types_allowed": True}  # noqa: RUF012 (as pydantic has it)

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,  # noqa: ARG002 (nothing to report)
        **_: Any,
    ) -> list[Document]:
        documents = [source.document(query) for source in self.sources]
        return [Document(page_content=each.text, metadata=each.metadata) for each in documents]
