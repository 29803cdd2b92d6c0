"""The ablation of feature maps, on images small enough to see."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from experiments.__main__ import app as experiments
from experiments.planning import feature_maps
from experiments.planning.feature_maps import WAYS, FeatureMap, measure
from experiments.trials import Setting
from vicinal.features import HOGFeatures, ScatteringFeatures

SETTINGS = (Setting(8.0, 40), Setting(8.0, 60))
FEW = {"n_components": 8}


MAPS = (
    FeatureMap("gradients", HOGFeatures, {"cell": 4}, FEW),
    FeatureMap("waves", ScatteringFeatures, {"orientations": 2}, {**FEW, "power": 1.0}),
)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Write stripes across and along, with noise, as an npz."""
    rng = np.random.default_rng(0)

    def part(size):
        y = rng.integers(0, 2, size)
        stripes = np.tile([200, 200, 0, 0], 3)
        images = np.where(y[:, None, None], stripes[:, None], stripes[None, :])
        return (images + rng.integers(0, 50, (size, 12, 12))).astype(np.uint8), y

    (x_train, y_train), (x_test, y_test) = part(600), part(400)
    file = tmp_path_factory.mktemp("stripes") / "stripes.npz"
    np.savez(file, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    return file


def test_the_command_writes_and_prints_its_table(path, tmp_path, monkeypatch):
    small = (MAPS[:1], SETTINGS, 300)
    monkeypatch.setattr(
        feature_maps,
        "measure",
        lambda dataset, _classes, runs, begin: measure(dataset, range(2), runs, begin, *small),
    )
    arguments = ["ablation", "--data", str(path), "--runs", "1", "--out", str(tmp_path)]
    done = CliRunner().invoke(experiments, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    assert printed == json.loads((tmp_path / "ablation.json").read_text())
    assert printed["simulation"] is True
    assert len(printed["rows"]) == 2 * len(WAYS) + 2  # and NoisySGD, and without privacy
    assert "without a guarantee" in (tmp_path / "ablation.txt").read_text().replace("\n", " ")
