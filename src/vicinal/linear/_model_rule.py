"""How a private model is trained and used, chosen from public facts alone.

docs/decisions/0053-private-model.md has the measurements.
"""

from dataclasses import dataclass

import numpy as np

from vicinal._arrays import Floats


@dataclass(frozen=True, slots=True)
class ModelRule:
    """How much of a budget trains a private model, and what neighbours make of it.

    - `share`, p: the share of a budget that training takes at most.
    - `asked`, r: the share of queries that is put to the vote, those that the model is least sure
      of.
    - `prior`, lambda: the scores' standard deviation in the votes, over the noise.
    - `metric`, g: mean length of the scores beside features of length 1.
    - `least_prior`, kappa: the same over the votes that are expected, at least. Where noise is low
      it is not what makes neighbours wrong, and they must not outvote the model for want of it.
    """

    share: float = 0.7
    asked: float = 0.25
    prior: float = 2.0
    metric: float = 0.5
    least_prior: float = 0.0

    def emphasis(self, noise: Floats | float, expected: Floats | float) -> Floats:
        """Return how many times as much as lambda says the scores count, at least 1.

        `noise`, float64 (q,) or float: noise scales of votes. `expected`: votes expected.
        """
        return np.asarray(np.maximum(1.0, self.least_prior * expected / (self.prior * noise)))


USUAL = ModelRule()

RULE_OF_COMPONENTS = ModelRule(share=0.9, asked=0.1, prior=3.0, metric=0.25, least_prior=0.3)
"""Of models of many features, which have components of a kernel."""

LEAST_MANY = 64
"""So many features are many."""

LEAST_LANDMARKS = 1500
"""Public rows that a kernel needs."""

LEAST_PUBLIC = 10
"""Public rows that "auto" needs: a model's border between sure and unsure is read off them."""

MOST_RECORDS = 1 << 21
"""With more records their components would take more than 4 GB."""

LOUD_SHARE = 0.9
"""p where the gradients' noise is loud: a model of less would be poor."""


def has_components(n_features: int, n_public: int, n_records: int) -> bool:
    """Tell whether a model is trained on components of a kernel; public facts decide."""
    return n_features >= LEAST_MANY and n_public >= LEAST_LANDMARKS and n_records <= MOST_RECORDS


def chosen_rule(n_features: int = 0, n_public: int = 0, n_records: int = 0) -> ModelRule:
    """Return the rule; where training is loud its share is :data:`LOUD_SHARE` instead."""
    return RULE_OF_COMPONENTS if has_components(n_features, n_public, n_records) else USUAL
