"""How a private model is trained and used, chosen from public facts alone.

docs/decisions/0053-private-model.md and 0107-rule-of-the-model.md have the measurements.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelRule:
    """How much of a budget trains a private model, and what neighbours make of it.

    - `share`, p: the share of a budget that training takes at most.
    - `asked`, r: the share of queries that is put to the vote, those that the model is least sure
      of.
    - `prior`, lambda: the scores' standard deviation in the votes, over the noise.
    - `metric`, g: mean length of the scores beside features of length 1.
    """

    share: float = 0.7
    asked: float = 0.25
    prior: float = 2.0
    metric: float = 0.5


USUAL = ModelRule()

LOUD_SHARE = 0.9
"""p where the gradients' noise is loud: a model of less would be poor."""
