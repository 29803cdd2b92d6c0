"""Algorithm 3 of ZZGW23 with its corrections, transcribed slowly in plain Python.

It shares nothing with the product but the public names of constants: similarities are sums of
Python integers, budgets are Python integers, one query and one subject at a time.
"""

import math
from collections import defaultdict
from fractions import Fraction

import numpy as np

UNITS = 2**48


class LiteralIndKNN:
    """One private record after the other, exactly as the paper's pseudo-code reads.

    `z`: remaining budget of each subject in units, by id.
    """

    def __init__(self, X, y, subjects, n_classes, budget, *, grid, count_grid=None, sigma1=None,
                 table=None):  # fmt: skip
        self.records = [
            (tuple(int(v) for v in x), carried_by(label), subject)
            for x, label, subject in zip(X, y, subjects, strict=True)
        ]
        self.n_classes = n_classes
        self.budget = Fraction(budget)
        self.grid = grid
        self.count_grid = count_grid
        self.sigma1 = sigma1
        self.table = table  # charges for labels alone
        self.z = dict.fromkeys(subjects, UNITS)

    def price(self, square, scale, narrow=1.0):
        """Cost in units: the exact one, raised by at most 2^-49 of itself, and not yet rounded."""
        rate = float(UNITS / (2 * Fraction(scale) ** 2 * self.budget) * (1 + Fraction(1, 2**50)))
        return float(square) * (narrow * math.nextafter(rate, math.inf))

    def price_one(self, moved, scale):
        """The most that moving one coordinate costs."""
        return self.price(
            moved * moved, scale, self.table.squared_shift_factor if self.table else 1.0
        )

    def share(self, moved, scale, remaining):
        """The share of it that is charged where labels alone leave."""
        if self.table is None:
            return 1.0
        rows, cells = len(self.table.shares), len(self.table.shares[0])
        after = max(remaining - 7 / 8 * self.price_one(moved, scale), 0.0)
        row = int(min(math.sqrt(after) / 2**24 * rows, rows - 1.0))
        cell = int(min(moved * (self.table.cells_per_shift / scale) / max(row, 1), cells - 1.0))
        return float(self.table.shares[row][cell])

    def answer(self, q, threshold, weight_of, *, noise, sigma2, count=None):
        """Charge for one query and return its label, or its noisy votes in grid steps, a list.

        `weight_of` maps a similarity to whole grid steps.
        """
        q = [int(v) for v in q]
        selected = defaultdict(list)
        for x, carried, subject in self.records:
            similarity = sum(a * b for a, b in zip(x, q, strict=True))
            if similarity >= threshold:
                selected[subject].append((weight_of(similarity), carried))
        if count is None:
            selected, count = self._count(selected, noise)
        scale = math.ceil(sigma2 * math.sqrt(count) * self.grid)
        votes = [0] * self.n_classes
        for subject, hits in selected.items():
            vector = [0] * self.n_classes
            for weight, carried in hits:
                for coordinate, value in carried.items():
                    product = weight * abs(value) // 2**30
                    vector[coordinate] += product if value > 0 else -product
            alone = sum(v != 0 for v in vector) == 1
            self._clip(vector, self.z[subject], scale)
            if alone:
                moved = max(map(abs, vector))
                share = self.share(moved, scale, self.z[subject])
                cost = math.ceil(self.price_one(moved, scale) * share)
            else:
                cost = math.ceil(self.price(sum(v * v for v in vector), scale))
            assert cost <= self.z[subject]
            self.z[subject] -= cost
            votes = [a + b for a, b in zip(votes, vector, strict=True)]
        votes = [v + int(e) for v, e in zip(votes, noise(scale, self.n_classes), strict=True)]
        return votes if self.table is None else votes.index(max(votes))

    def _count(self, selected, noise):
        scale = math.ceil(self.sigma1 * self.count_grid)
        total, paying = 0, {}
        for subject, hits in selected.items():
            steps = len(hits) * self.count_grid
            cost = math.ceil(self.price(steps * steps, scale))
            if steps <= scale and cost <= self.z[subject]:
                self.z[subject] -= cost
                total += steps
                paying[subject] = hits
        noisy = total + int(noise(scale, 1)[0])
        return paying, max(noisy / self.count_grid, 30.0)

    def _clip(self, vector, remaining, scale):
        moved = [c for c, v in enumerate(vector) if v != 0]
        if len(moved) == 1:
            value = vector[moved[0]]
            norm = self._afford(min(abs(value), scale, 2**31), remaining, scale)
            vector[moved[0]] = norm if value > 0 else -norm
            return
        norm = math.sqrt(sum(v * v for v in vector))
        limit = float(min(scale, 2**31))
        if norm >= limit:
            vector[:] = [int(v * (limit / norm * (1 - 1e-12))) for v in vector]
        cost = self.price(sum(v * v for v in vector), scale)
        if cost > remaining:
            shrink = math.sqrt(remaining / cost) * (1 - 1e-12)
            vector[:] = [int(v * shrink) for v in vector]
        while self.price(sum(v * v for v in vector), scale) > remaining:
            vector[:] = [int(v * 0.999) for v in vector]

    def _afford(self, norm, remaining, scale):
        low, high = 0, norm
        while low < high:  # the largest whole norm whose price fits, by bisection
            middle = (low + high + 1) // 2
            if self.price_one(middle, scale) <= remaining:
                low = middle
            else:
                high = middle - 1
        return low


def carried_by(label):
    """Return a record's vector as {coordinate: steps of 2^-30}; a class is a one at its place."""
    return dict(label) if isinstance(label, dict) else {int(label): 2**30}


def cosine_steps(similarity, n_features, grid, norm):
    """Weight of a pair in grid steps: the cosine at the lower edge of its level, rounded down."""
    level = 2 ** max(0, (norm * norm).bit_length() - 16)  # 2^16 levels of similarity
    edge = max(similarity, 0) // level * level
    length = norm - math.sqrt(n_features) / 2
    return math.floor(np.float64(min(edge / length**2, 1.0)) * grid)


def run_literal(literal, engine, queries, seed, counts=None):
    """Have the transcription answer an engine's queries, with the engine's noise of a seed."""
    integers, rng = engine.votes.kernel.encode(queries), np.random.default_rng(seed)
    steps, norm = engine.votes.grid.steps, engine.votes.kernel.precision.norm
    return [
        literal.answer(
            q, int(threshold), lambda s: cosine_steps(s, integers.shape[1], steps, norm),
            noise=lambda scale, size: np.rint(rng.standard_normal(size) * scale),
            sigma2=engine.noise_multiplier, count=None if counts is None else counts[j],
        )
        for j, (q, threshold) in enumerate(
            zip(integers, engine.radius.thresholds(integers), strict=True)
        )
    ]  # fmt: skip


def check_charges(engine, literal, subjects, multiplier):
    """Everybody has left what the transcription leaves them, and somebody nothing if it must."""
    ledger = engine.shard.ledger
    for subject in set(subjects.tolist()):
        assert ledger.remaining[ledger.list_slots([subject])[0]] == literal.z[subject]
    if multiplier < 1:
        assert min(literal.z.values()) < 2**48 // 1000, "the case must exhaust somebody"
