"""
Texts: the department of a ticket
=================================

Support tickets of many customers are private. Which department should a new ticket go to?

You need ``pip install 'vicinal[text]'``: a small sentence encoder comes with it.
"""

# %%
# Made-up tickets
# ---------------
# Each customer wrote some of the private tickets. The public texts are made up too: take texts
# that anybody may read.

import numpy as np

from vicinal import IndKNNClassifier, SentenceFeatures

rng = np.random.default_rng(3)
ISSUES = {
    "billing": ["the invoice is wrong", "please refund my payment", "the card was charged twice"],
    "delivery": ["the parcel is late", "the courier lost my parcel", "my parcel is broken"],
    "account": ["I cannot log in", "the password reset mail is missing", "my account is locked"],
}  # fmt: skip
ENDINGS = ["since Monday", "again", "and nobody answers", "please help", "thanks"]
OPENINGS = ["hello,", "dear team,", "hi,", "good morning,", ""]


def tickets(size):
    """Return made-up tickets and their departments."""
    departments = rng.choice(list(ISSUES), size)
    texts = [
        " ".join([rng.choice(OPENINGS), rng.choice(ISSUES[name]), rng.choice(ENDINGS)])
        for name in departments
    ]
    return texts, departments


texts, departments = tickets(3_000)
customers = [f"C{number}" for number in rng.integers(0, 2_000, 3_000)]
public_texts, _ = tickets(500)
queries, truth = tickets(60)

# %%
# Texts to vectors
# ----------------
# The encoder is public and was never trained on private texts. Each text is encoded alone.

encoder = SentenceFeatures()


def encode(texts):
    """Return the vector of each text; equal texts have equal vectors, so each is encoded once."""
    distinct, place = np.unique(texts, return_inverse=True)
    return encoder.transform(distinct.tolist())[place]


X, R, Q = encode(texts), encode(public_texts), encode(queries)

# %%
# Departments
# -----------
# A customer with several tickets is one subject: ``subjects`` says whose each ticket is, and the
# guarantee is for all tickets of a customer together.

classifier = IndKNNClassifier(list(ISSUES), epsilon=2.0, n_queries=60, n_records=3_000)
classifier.fit(X, departments, subjects=customers, public=R)
answers = classifier.predict(Q)
print(f"{np.mean(answers == truth):.0%} right")
for text, answer in list(zip(queries, answers))[:4]:
    print(f"{answer:9} {text}")

# %%
# What is guaranteed
# ------------------

print(classifier.guarantee())
