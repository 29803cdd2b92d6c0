"""
Audit and certify
=================

A guarantee is a theorem about code. What can you show for your installation? An audit attacks the
installed code with its real noise; a certificate puts guarantee, assumptions and audits into one
file for a data protection officer.

You need ``pip install 'vicinal[receipts]'`` for the signed receipt at the end.
"""

# %%
# A small store
# -------------

import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(6)
y = rng.integers(0, 2, 3_000)
x = rng.normal(size=(3_000, 6)) + 1.5 * y[:, None]
np.savez(folder / "records.npz", x=x, y=y, subjects=np.arange(3_000))
np.savez(folder / "public.npz", x=rng.normal(0.75, 1.2, size=(500, 6)))


def vicinal(command, codes=(0,)):
    """Run a command in the folder and show what it prints."""
    words = [sys.executable, "-m", "vicinal", *shlex.split(command)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    print(f"$ vicinal {command}\n{done.stdout}{done.stderr}".replace(str(folder), "."))
    assert done.returncode in codes


vicinal(
    "init store --data records.npz --label y --subject subjects --public public.npz --classes 0,1 "
    "--epsilon 1 --queries 300"
)

# %%
# Audit
# -----
# An attacker who knows every record but one plays against the installed code: is that subject in
# the data? The attacker's success gives a *lower bound* on the privacy loss. The same attack must
# catch versions broken on purpose. Give it minutes, not seconds, if you want the bound to come
# near the claim; exit code 4 says that runs were too few.

vicinal("audit store --minutes 0.1 --only votes --out audit.json", codes=(0, 4))

# %%
# The lower bound beside the claim:

import matplotlib.pyplot as plt

claims = json.loads((folder / "audit.json").read_text())["claims"]
fig, ax = plt.subplots(figsize=(7, 1 + 0.6 * len(claims)))
names = [claim["mechanism"] for claim in claims]
ax.barh(names, [claim["claim"] for claim in claims], color="#d0d7de", label="claim")
ax.barh(names, [claim["lower"] for claim in claims], height=0.4, label="shown by the attack")
ax.set(xlabel="privacy loss", title="An attack may never exceed the claim")
ax.legend(loc="lower right")
fig.tight_layout()

# %%
# Certify
# -------

vicinal(
    "certificate store -o papers --audit audit.json --controller 'Clinic at the Lake' "
    "--purpose 'triage' --retention 'two years' --vouched-by 'A. Keller'"
)
print(sorted(path.name for path in (folder / "papers").iterdir()))

# %%
# Erase somebody, and prove it
# ----------------------------

vicinal("receipt key installation.key")
vicinal("erase store --subject 4711 --subject 17 --yes")
vicinal("verify store --erased 17")
vicinal("receipt erasure store --subject 17 --key installation.key -o receipt.json")

# %%
# :doc:`/explanation/evidence` says what an audit does not show.
