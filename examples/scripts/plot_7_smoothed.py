"""
A mechanism without noise: smoothed DP
======================================

500,000 people vote, 1,000 ballots are lost, the counts of the rest are published. No noise is
added. What does that give away about one voter?
"""

# %%
# The worst case says: anything
# -----------------------------
# Differential privacy compares the worst pair of databases. If everybody else voted alike, a lone
# voter shows unless that ballot is among the lost ones.

from vicinal.smoothed import FixedSize, Histogram, Hull, smoothed_delta, worst_case_delta

n = 500_000
counts = Histogram(FixedSize(499_000))
print(worst_case_delta(counts, n, epsilon=2.0))

# %%
# A plausible world says: nearly nothing
# --------------------------------------
# Suppose that every voter is like the people of *some* district. The rows are the districts'
# shares. Smoothed DP takes the mean of delta over the databases that the worst such world
# produces.

districts = Hull([[0.0553, 0.9447], [0.466, 0.534]])
print(smoothed_delta(counts, districts, n, epsilon=2.0))

# %%
# The answer depends on what is plausible
# ---------------------------------------
# The rarer one side may be, the more is given away.

import matplotlib.pyplot as plt
import numpy as np

rarest = np.array([0.001, 0.003, 0.01, 0.02, 0.05])
epsilons = [0.5, 1.0, 2.0]
fig, ax = plt.subplots(figsize=(7, 3.5))
for epsilon in epsilons:
    upper = [
        smoothed_delta(counts, Hull([[p, 1 - p], [0.5, 0.5]]), n, epsilon=epsilon).upper
        for p in rarest
    ]
    ax.loglog(rarest, upper, marker="o", label=f"epsilon {epsilon}")
ax.axhline(
    worst_case_delta(counts, n, epsilon=1.0).upper, color="black", ls=":", label="worst case"
)
ax.set(xlabel="share of the rarest vote in any district", ylabel="smoothed delta", ylim=(1e-30, 3))
ax.legend()
fig.tight_layout()

# %%
# When not to rely on it
# ----------------------
# The population must have been fixed before anybody looked at the data, and records must be
# independent. It is no replacement for noise where somebody may know or choose the other records.
# vicinal's predictors do not rely on it. :doc:`/explanation/smoothed` has the whole list.
