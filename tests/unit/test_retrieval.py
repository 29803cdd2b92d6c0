"""Retrievers, against the real packages and without a network."""

from __future__ import annotations

import asyncio
import importlib
import socket
import sys

import numpy as np
import pytest

from vicinal.errors import InvalidInput, MissingExtra, PrivacyRefused
from vicinal.retrieval import NeighborhoodSource
from vicinal.store import Store

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

N, T = 600, 6
rng = np.random.default_rng(5)
X, R = rng.normal(size=(N, 2)), rng.normal(size=(120, 2))
TEXTS = ["knee pain" if x[0] > 0 else "cough" for x in X]
CLASSES = np.where(X[:, 0] > 0, "surgery", "ward").tolist()
PLAN = {"epsilon": 8.0, "n_queries": T, "n_records": N, "simulation_seed": 1}
WORDS = {"vocabulary": ["knee", "pain", "cough", "flu"], "n_keywords": 4}


def encode(questions):
    return [[3.0, 0.0] if "knee" in question else [-3.0, 0.0] for question in questions]


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*_):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def sources(tmp_path):
    """Return a source of words and one of classes."""
    words = Store.init(tmp_path / "words", X, TEXTS, public=R, **WORDS, **PLAN)
    wards = Store.init(
        tmp_path / "wards", X, CLASSES, public=R, classes=["surgery", "ward"], **PLAN
    )
    with words, wards:
        yield NeighborhoodSource(words, encode), NeighborhoodSource(wards, encode)


def test_a_document_says_words_and_shares_and_their_price(sources):
    words, wards = (source.document("why does the knee hurt?") for source in sources)
    assert words.text == "Words that private texts near this question share: knee, pain." or (
        words.text == "Words that private texts near this question share: pain, knee."
    )
    assert words.metadata == {"charged": 1, "left": T - 1, "epsilon": 8.0, "delta": 1e-5}
    assert wards.text.startswith("Shares of the private records near this question: surgery ")
    again = sources[0].document("the knee again")
    assert again.text == words.text
    assert again.metadata["charged"] == 0, "the same query to the store: a replay"


def test_words_within_the_noise_are_left_out(sources):
    strict = NeighborhoodSource(sources[0].store, encode, clear=1e6)
    assert strict.document("knee").text.startswith("No word stands out")


def test_numbers_labels_and_bare_labels_are_told(tmp_path):
    ages, tags = 50 + 20 * np.sign(X[:, 0]), (X > 0).astype(int)
    kinds = {
        "age": (ages, {"bounds": {"age": (0, 110)}}, "age: "),
        "tags": (tags, {"labels": ["left", "up"]}, "Shares of the private records near"),
        "label": (CLASSES, {"classes": ["surgery", "ward"], "release": "label"}, "Most likely: "),
    }
    for name, (y, declared, start) in kinds.items():
        with Store.init(tmp_path / name, X, y, public=R, **declared, **PLAN) as store:
            assert NeighborhoodSource(store, encode).document("knee").text.startswith(start)


def test_llama_index_takes_it(sources):
    core = pytest.importorskip(
        "llama_index.core", reason="the extra 'llama-index' is not installed"
    )
    from vicinal.retrieval import LlamaIndexRetriever

    retriever = LlamaIndexRetriever(sources)
    nodes = retriever.retrieve("knee")
    assert [node.node.metadata["charged"] for node in nodes] == [1, 1]
    assert "knee" in nodes[0].get_content()
    assert asyncio.run(retriever.aretrieve("knee"))[0].node.metadata["charged"] == 0
    assert isinstance(retriever, core.base.base_retriever.BaseRetriever)


def test_langchain_takes_it(sources):
    core = pytest.importorskip("langchain_core", reason="the extra 'langchain' is not installed")
    from langchain_core.runnables import RunnableLambda

    from vicinal.retrieval import LangChainRetriever

    retriever = LangChainRetriever(sources=sources)
    words, wards = retriever.invoke("knee")
    assert "knee" in words.page_content
    assert wards.metadata["left"] == T - 1
    chain = retriever | RunnableLambda(lambda found: found[0].metadata["charged"])
    assert chain.invoke("knee") == 0
    assert isinstance(retriever, core.retrievers.BaseRetriever)


def test_spent_plans_and_bad_sources_are_refused(sources):
    source = sources[0]
    source.store.predict(R[:T])
    with pytest.raises(PrivacyRefused):
        source.document("knee")
    for bad in ({}, {"encode": encode, "clear": -1.0}, {"encode": encode, "clear": np.nan}):
        with pytest.raises(InvalidInput):
            NeighborhoodSource(source.store, **bad)
    with pytest.raises(InvalidInput):
        source.document(5)


@pytest.mark.parametrize(
    ("name", "package"),
    [("LlamaIndexRetriever", "llama_index"), ("LangChainRetriever", "langchain_core")],
)
def test_a_missing_package_is_named_with_its_extra(name, package, monkeypatch):
    import vicinal.retrieval as retrieval

    for module in [m for m in sys.modules if m.startswith((package, "vicinal.retrieval._l"))]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(vars(retrieval), name, raising=False)
    with pytest.raises(MissingExtra, match="pip install 'vicinal"):
        getattr(importlib.import_module("vicinal.retrieval"), name)
