"""
Many machines
=============

Records that outgrow one machine are split into shards. Subjects, budgets, guarantee and answers
stay the same, because sums of integers do not depend on their order. Here both shards run in one
process, so that nothing else is needed.

On several machines you need ``pip install 'vicinal[ray]'``.
"""

# %%
# A store
# -------

import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(8)
y = rng.integers(0, 3, 6_000)
centres = rng.normal(size=(3, 8))
np.savez(folder / "records.npz", x=centres[y] + rng.normal(0, 0.8, (6_000, 8)), y=y)
np.savez(folder / "public.npz", x=rng.normal(0, 1.2, (500, 8)))
truth = rng.integers(0, 3, 100)
np.savez(folder / "queries.npz", x=centres[truth] + rng.normal(0, 0.8, (100, 8)))


def vicinal(command):
    """Run a command in the folder and show what it prints."""
    words = [sys.executable, "-m", "vicinal", *shlex.split(command)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    print(f"$ vicinal {command}\n{done.stdout}{done.stderr}".replace(str(folder), "."))
    assert done.returncode == 0


vicinal(
    "init store --data records.npz --label y --public public.npz --classes 0,1,2 --epsilon 1 "
    "--queries 300"
)

# %%
# Split it
# --------
# The store retires: if it went on beside the cluster, every budget would exist twice.

vicinal("shard store --shards 2 --out cluster --yes")
print(sorted(path.name for path in (folder / "cluster").iterdir()))

# %%
# Ask the cluster
# ---------------
# Commands take a cluster where they take a store. Each shard charges its own subjects and adds its
# votes; noise is added once, to the sum.

vicinal("predict cluster --data queries.npz --out answers.csv")
answers = pd.read_csv(folder / "answers.csv")
print(f"{np.mean(answers['label'] == truth):.0%} right")

# %%
# ``vicinal verify`` checks coordinator and shards as one state.

vicinal("verify cluster")

# %%
# On several machines
# -------------------
# Move each shard's folder, with its witness, to its machine, start Ray there with the shard's name
# as a resource, and serve:
#
# .. code-block:: sh
#
#    ray start --address=HEAD --resources='{"vicinal-shard-0": 1}'
#    vicinal serve CLUSTER --ray auto
#
# :doc:`/explanation/scaling` has what a block costs, how shards are protected, and where it stops.
