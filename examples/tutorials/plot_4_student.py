"""
Label public data privately, train a student, publish it
========================================================

A store of private records can answer only so many queries. A *student* is trained on such answers
about public examples. It carries the guarantee of the answers, can be published, and answers as
often as anybody likes.

You need ``pip install 'vicinal[students,demo]'``.
"""

# %%
# Private records, a public pool
# ------------------------------

import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from vicinal import HOGFeatures, PublicMap
from vicinal.datasets import load_mnist

folder = Path(tempfile.mkdtemp())
mnist, hog = load_mnist(), HOGFeatures()
pool, test = mnist.test.features[:2_000], mnist.test.features[2_000:3_000]
to_features = PublicMap(n_components=60).fit(hog.transform(pool))
private, pool, test = (
    to_features.transform(hog.transform(images)) for images in (mnist.features[:12_000], pool, test)
)
truth = mnist.test.labels[2_000:3_000]
np.savez(folder / "records.npz", x=private, y=mnist.labels[:12_000])
np.savez(folder / "pool.npz", x=pool)


def vicinal(command):
    """Run a command in the folder and show what it prints."""
    words = [sys.executable, "-m", "vicinal", *shlex.split(command)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    print(f"$ vicinal {command}\n{done.stdout}{done.stderr}".replace(str(folder), "."))
    assert done.returncode == 0


# %%
# Label
# -----
# 600 of the 2,000 public examples are asked about. Three quarters of the answers are kept, by
# noisy margin.

vicinal(
    "label --private records.npz --public pool.npz --classes 0-9 --folder run --out answers.npz "
    "--epsilon 2 --records 12000 --questions 600"
)

# %%
# Train
# -----
# Nothing private is read any more. The student also learns from public examples that were not
# asked about.

vicinal("student answers.npz --public pool.npz --out student.pt --network mlp --steps 60")

# %%
# Publish
# -------
# The file holds the guarantee. Whoever loads it can read it.

from vicinal import students

student = students.load(folder / "student.pt")
print(f"{np.mean(student.predict(test) == truth):.1%} of 1,000 new images right")
print(student.guarantee["text"][:200], "...")

# %%
# ``vicinal transfer`` does both steps in rounds, where the student's own features refine the next
# round: :doc:`/explanation/students` has what that gains.
