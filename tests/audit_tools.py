"""An attack whose privacy loss is known."""

import numpy as np

from vicinal.audit.claims import GaussianClaim
from vicinal.audit.schedule import Attack


class Shift(Attack):
    """A Gaussian shift, with a claim that may be too small, and controls by name."""

    mechanism, scenario = "shift", "anywhere"

    def __init__(self, shift, claim, controls=None, block=100):
        self.shift, self.claim, self.block = shift, GaussianClaim(claim, 1e-5), block
        self.controls = controls or {}
        self.rng = np.random.default_rng(3)

    def compute_scores(self, present):
        """Return the scores of a block of runs."""
        return self.rng.normal(size=self.block) + self.shift * present

    def create_controls(self):
        """Return the controls."""
        return self.controls
