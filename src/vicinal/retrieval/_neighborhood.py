"""From a question to a document: what the store says of its neighbourhood, in sentences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from vicinal import _checks
from vicinal.errors import InvalidInput
from vicinal.store import DEFAULT, KeywordReply, LabelSetReply, NumberReply, Reply
from vicinal.store._base_store import BaseStore


@dataclass(frozen=True, slots=True)
class NeighborhoodDocument:
    """What private records near a question share, for a language model to read.

    Attributes
    ----------
    text : str
        Sentences, made of noisy sums alone.
    metadata : dict
        The price: "charged", new answers (0 for one that was given before); "left", answers that
        the plan has left; "epsilon" and "delta" of everything that the audience is ever told.

    Examples
    --------
    >>> from vicinal.retrieval import NeighborhoodDocument
    >>> NeighborhoodDocument("Most likely: surgery.", {"charged": 1, "left": 9}).text
    'Most likely: surgery.'
    """

    text: str
    metadata: dict[str, Any]


@dataclass(frozen=True, eq=False)
class NeighborhoodSource:
    """A store that is asked about the neighbourhood of a question.

    The answer is paid for by the records near the question, durably, before it is returned. One
    that was given before, to the same question on the same data, costs nothing.

    Attributes
    ----------
    store : Store
        Of words, of classes whose votes leave, of several labels, or of numbers.
    encode : callable, optional
        From a list of questions to what the store takes; without it the store takes texts.
    audience, analyst : str
        Whose budgets and whose quota pay.
    clear : float
        Words whose weight is less than so many standard deviations of the noise are left out.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from vicinal import Store
    >>> from vicinal.retrieval import NeighborhoodSource
    >>> def encode(texts):  # a model of texts in earnest
    ...     return np.array([[len(text), text.count("e") + 1.0] for text in texts])
    >>> notes = ["knee pain", "pain, left knee"] * 300
    >>> store = Store.init(
    ...     Path(tempfile.mkdtemp()) / "notes",
    ...     encode(notes),
    ...     notes,
    ...     vocabulary=["knee", "left", "pain", "flu"],
    ...     n_keywords=2,
    ...     public=encode(notes[:50]),
    ...     epsilon=8.0,
    ...     n_queries=5,
    ...     n_records=600,
    ...     simulation_seed=0,
    ... )
    >>> found = NeighborhoodSource(store, encode).document("where is it?")
    >>> found.metadata["charged"], found.metadata["left"], found.metadata["epsilon"]
    (1, 4, 8.0)
    >>> store.close()
    """

    store: BaseStore
    encode: Callable[[list[str]], Any] | None = None
    audience: str = DEFAULT
    analyst: str = "anyone"
    clear: float = 3.0

    def __post_init__(self) -> None:
        """Refuse what no question could be asked of."""
        _checks.real("clear", self.clear, least=0)
        if self.encode is None and self.store.schema.extractor.takes != "texts":
            raise InvalidInput(
                "The 'encode' parameter must be given: the store takes "
                f"{self.store.schema.extractor.takes}, not texts."
            )

    def document(self, question: str) -> NeighborhoodDocument:
        """Return what the store says of the neighbourhood of a question; spends budget.

        Raises
        ------
        PrivacyRefused
            If the plan, or the analyst's quota, has no answer left.
        """
        if not isinstance(question, str):
            raise InvalidInput("The 'question' parameter must be a text.")
        queries = [question] if self.encode is None else self.encode([question])
        reply = self.store.predict(queries, audience=self.audience, analyst=self.analyst)
        price = self.store.facts()["audiences"][self.audience]["plan"]
        cost = {"charged": reply.charged, "left": reply.left}
        return NeighborhoodDocument(
            self._text_of(reply), {**cost, "epsilon": price["epsilon"], "delta": price["delta"]}
        )

    def _text_of(self, reply: Reply) -> str:
        if isinstance(reply, KeywordReply):
            return _words(reply, self.clear)
        if isinstance(reply, NumberReply):
            values = zip(reply.names, reply.labels[0], reply.errors[0], strict=True)
            return "; ".join(f"{name}: {v:.4g} +- {error:.2g}" for name, v, error in values) + "."
        if isinstance(reply, LabelSetReply):
            return _shares(reply.names, reply.shares[0], float(reply.errors[0].mean()))
        if reply.votes is None or np.isnan(reply.votes[0]).any():
            return f"Most likely: {reply.labels[0]}."
        votes = np.maximum(reply.votes[0], 0)
        return _shares(self.store.schema.classes, votes / (votes.sum() or 1.0))


def _words(reply: KeywordReply, clear: float) -> str:
    assert reply.votes is not None  # noqa: S101 (sums of words leave)
    words = reply.labels[0][reply.votes[0] >= clear * reply.noise].tolist()
    if not words:
        return "No word stands out among the private texts near this question."
    return f"Words that private texts near this question share: {', '.join(words)}."


def _shares(names: list[Any], shares: Any, error: float | None = None) -> str:
    around = "" if error is None else f" (+- {error:.0%})"
    listed = ", ".join(f"{name} {share:.0%}" for name, share in zip(names, shares, strict=True))
    return f"Shares of the private records near this question{around}: {listed}."
