"""
From a table of patients to a served store
==========================================

A clinic wants to answer "is this visitor likely to be ill?" from its patients' records, such that
nobody who sees all answers learns much about any one patient. This takes four commands: draft a
schema, make a store, ask, serve.

You need ``pip install 'vicinal[serve]'``. The clinic is made up; put your own Parquet or CSV files
in its place.
"""

# %%
# Three tables
# ------------
# ``patients`` is private: it has a diagnosis and the patient's id. ``volunteers`` is public,
# without diagnoses: it shows what people look like. ``visitors`` are the queries, which are public
# too.

import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(20)


def people(size):
    """Return columns of made-up people, and who of them is ill."""
    ill = rng.random(size) < 0.3
    age = np.clip(rng.normal(52 + 12 * ill, 15), 18, 95).round().astype(int)
    platelets = np.exp(rng.normal(12.4 - 0.5 * ill, 0.35)).round(-3)
    pain = np.clip(np.digitize(rng.normal(1 + 1.2 * ill), [0.5, 1.5, 2.5]), 0, 3)
    columns = {
        "age": age,
        "platelets": pa.array(platelets, mask=rng.random(size) < 0.08),
        "smoker": rng.random(size) < 0.2 + 0.3 * ill,
        "pain": np.array(["none", "mild", "strong", "severe"])[pain],
        "ward": rng.choice(["north", "south", "west"], size),
    }
    return columns, np.where(ill, "ill", "healthy")


columns, diagnosis = people(10_000)
patient = [f"P{number}" for number in rng.integers(0, 8_000, 10_000)]  # some come several times
patients = pa.table({"patient": patient, **columns, "diagnosis": diagnosis})
pq.write_table(patients, folder / "patients.parquet")
pq.write_table(pa.table(people(2_000)[0]), folder / "volunteers.parquet")
columns, truth = people(300)
visits = [f"V{number}" for number in range(300)]
pq.write_table(pa.table({"visit": visits, **columns}), folder / "visitors.parquet")

# %%
# In this tutorial, a function types the commands for us. At a terminal you type what stands after
# the ``$``.


def vicinal(command):
    """Run a command in the folder and show what it prints."""
    words = [sys.executable, "-m", "vicinal", *shlex.split(command)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    print(f"$ vicinal {command}\n{done.stdout}{done.stderr}".replace(str(folder), "."))
    assert done.returncode == 0


# %%
# 1. Draft a schema from the public table
# ---------------------------------------
# The schema says what each column may hold. It becomes public, so never draft one from private
# rows.

vicinal("schema volunteers.parquet -o schema.json")

# %%
# Look it through. The draft takes ``pain`` for a category. Its values have an order, so declare it
# as levels:

schema = json.loads((folder / "schema.json").read_text())
schema["columns"]["pain"] = {"kind": "levels", "values": ["none", "mild", "strong", "severe"]}
(folder / "schema.json").write_text(json.dumps(schema))

# %%
# 2. Make the store
# -----------------
# Epsilon and delta bound what all answers together give away about one patient, with all of their
# records. ``--queries`` says how many answers are planned: noise is chosen for that many.

vicinal(
    "init store --data patients.parquet --label diagnosis --subject patient --features table "
    "--schema schema.json --public volunteers.parquet --classes healthy,ill "
    "--epsilon 1 --queries 500"
)

# %%
# 3. Ask
# ------
# Every new answer is charged to the patients whose records took part in it, and the charge is on
# the disk before the answer is given.

vicinal("predict store --data visitors.parquet --id visit --out answers.csv")
print("".join((folder / "answers.csv").read_text().splitlines(keepends=True)[:5]))

# %%
# ``confidence`` is the lead of the first class in standard deviations of its noise. Large values
# are the answers to rely on. The visitors are made up, so here we may look at what was right:

import csv

import matplotlib.pyplot as plt

answers = list(csv.DictReader((folder / "answers.csv").open()))
right = np.array([row["label"] for row in answers]) == truth
confidence = np.array([float(row["confidence"]) for row in answers])
print(f"{right.mean():.0%} right")

fig, ax = plt.subplots(figsize=(6, 3))
bins = np.linspace(0, np.quantile(confidence, 0.98), 12)
ax.hist([confidence[right], confidence[~right]], bins, stacked=True, label=["right", "wrong"])
ax.set(xlabel="confidence", ylabel="answers", title="Confident answers are seldom wrong")
ax.legend()
fig.tight_layout()

# %%
# The same question again costs nothing: it gets the stored answer.

vicinal("predict store --data visitors.parquet --id visit --out again.csv")

# %%
# 4. Serve it
# -----------
# A key is printed once and stored nowhere. ``vicinal serve`` listens on this machine only; a proxy
# with TLS stands in front of it (:doc:`/how-to/deploy`). The page for people is at ``/console``.

import urllib.error
import urllib.request

key = subprocess.run(
    [sys.executable, "-m", "vicinal", "keys", "add", "store", "anna"],
    cwd=folder, capture_output=True, text=True, check=True,
).stdout.split()[-1]  # fmt: skip
service = subprocess.Popen(
    [sys.executable, "-m", "vicinal", "serve", "store", "--port", "0"],
    cwd=folder, stderr=subprocess.PIPE, text=True,
)  # fmt: skip
console = next(line.strip() for line in service.stderr if line.startswith("http://"))

visitor = {"age": 71, "platelets": 140000, "smoker": True, "pain": "strong", "ward": "north"}
request = urllib.request.Request(
    console.replace("/console", "/v1/predict"),
    json.dumps({"rows": [visitor]}).encode(),
    {
        "Authorization": f"Bearer {key}",
        "Content-Type": "application/json",
        "Idempotency-Key": "first",
    },
)
print(json.loads(urllib.request.urlopen(request).read()))
service.terminate()
service.wait()

# %%
# What is promised
# ----------------

vicinal("export-guarantee store --out guarantee.txt")
print((folder / "guarantee.txt").read_text())

# %%
# Next: :doc:`/how-to/pick-epsilon`, :doc:`/how-to/reference-set` if there is no public table,
# :doc:`/how-to/rare-classes` if few patients are ill, :doc:`/how-to/erasure` when one of them
# wants to be forgotten.
