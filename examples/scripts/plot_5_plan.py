"""
Plan and buy epsilon
====================

How much accuracy does a larger epsilon buy, and how many queries can be afforded? Both can be
answered before any private record is read.
"""

# %%
# What a plan costs
# -----------------
# A plan is a list of releases. :func:`vicinal.account` prices it by every valid method and takes
# the best.

import numpy as np

import vicinal

plan = {
    "delta": 1e-5,
    "releases": [{"kind": "noisy_max", "sigma": 25, "gamma": 0.15, "count": 1_000}],
}
priced = vicinal.account(plan)
print(priced["epsilon"], priced["by_method"], "not below", priced["lower"])

# %%
# The other way round: how much noise keeps a target?

found = vicinal.calibrate(plan, epsilon=0.5, field="sigma")
print(found.value, found.price["epsilon"])

# %%
# Individual budgets
# ------------------
# :class:`~vicinal.IndKNNClassifier` charges each subject for what its records contributed. Its
# cost is set, not added up: nobody's budget is ever exceeded, so the plan is one line. What has to
# be planned is the noise.

print(vicinal.account({"delta": 1e-5, "releases": [{"kind": "ind_knn", "epsilon": 1}]})["epsilon"])

# %%
# What epsilon buys
# -----------------
# ``vicinal plan`` plays a plan through on public points, labelled here by a made-up rule. It
# compares epsilons and numbers of queries side by side; no private record is there to be spent.

import subprocess
import sys
import tempfile
from pathlib import Path

folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(5)
centres = rng.normal(size=(4, 12))
y = rng.integers(0, 4, 3_000)
np.savez(folder / "public.npz", x=centres[y] + rng.normal(0, 1.2, (3_000, 12)), y=y)

command = (
    "plan --records 20000 --queries 1000 --classes 4 --epsilon 1 --public public.npz --label y"
)
done = subprocess.run(
    [sys.executable, "-m", "vicinal", *command.split()], cwd=folder, capture_output=True, text=True
)
print(f"$ vicinal {command}\n{done.stdout}{done.stderr}")
assert done.returncode == 0

# %%
# Noise against epsilon
# ---------------------
# For a fixed number of releases noise falls as epsilon grows: twice the epsilon, a little more
# than half the noise.

import matplotlib.pyplot as plt

epsilons = np.array([0.25, 0.5, 1, 2, 4])
sigmas = [vicinal.calibrate(plan, epsilon=e, field="sigma").value for e in epsilons]

fig, ax = plt.subplots(figsize=(6, 3))
ax.loglog(epsilons, sigmas, marker="o")
ax.set(xlabel="epsilon", ylabel="noise, in votes", title="1,000 releases at a sampling rate of .15")
fig.tight_layout()

# %%
# :doc:`/how-to/pick-epsilon` says which epsilon to take.
