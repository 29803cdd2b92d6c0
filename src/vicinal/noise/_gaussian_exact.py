"""One round of the discrete Gaussian in whole numbers of any length: what the fast one must equal.

Proof note: gaussian.md. It is slow, and does the rounds that the compiled one leaves undecided, one
in some 10^5.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from vicinal.noise._uniform_bits import MARK, NEXT, next_bit, next_bits

# Random binary digits that are compared first, and at a time where those do not decide.
DIGITS, FURTHER = 20, 32

_GUARD = 64


def exponential(n: int, d: int, digits: int) -> tuple[int, int]:
    """Return whole numbers around exp(-n / d) 2^digits, a few units apart; n >= 0, d >= 1."""
    halvings = (2 * n // d).bit_length()
    work = digits + halvings + _GUARD
    x = (n << work) // (d << halvings)  # at most 1/2
    term, total, k = 1 << work, 0, 0
    while term:
        total += term if k % 2 == 0 else -term
        k += 1
        term = term * x // (k << work)
    # Each term is short by less than 4 units, and what is left of the series by less than one more.
    low, high = total - 4 * k - 4, total + 4 * k + 4
    for _ in range(halvings):
        low, high = low * low >> work, (high * high >> work) + 1
    spare = work - digits
    return low >> spare, (high >> spare) + 1


def coin_digits(n: int, d: int, digits: int) -> int:
    """Return floor(exp(-n / d) 2^digits), for n > 0: the first binary digits of an irrational."""
    return _agreed(lambda more: exponential(n, d, digits + more))


@cache
def strip_ends(digits: int) -> tuple[int, ...]:
    """Return floor(2^digits P(strip v or nearer)), v = 0, 1, ... up to the first 2^digits - 1.

    P(v) is proportional to exp(-v^2 / 2).
    """
    ends: list[int] = []
    while not ends or ends[-1] < (1 << digits) - 1:
        v = len(ends)
        ends.append(_agreed(lambda more, v=v: _strip_end(v, digits + more)))  # type: ignore[misc]
    return tuple(ends)


def _strip_end(v: int, digits: int) -> tuple[int, int]:
    """Return whole numbers around 2^digits P(strip v or nearer)."""
    # All heights beyond the last are together less than exp(-last^2 / 2) < 2^-digits-64: one unit.
    last = v + math.isqrt(2 * (digits + _GUARD)) + 2
    heights = [exponential(j * j, 2, digits + _GUARD) for j in range(last + 1)]
    least, most = (sum(bound) for bound in zip(*heights[: v + 1], strict=True))
    all_least, all_most = (sum(bound) for bound in zip(*heights, strict=True))
    return (least << digits) // (all_most + 1), (most << digits) // all_least + 1


def _agreed(around: Callable[[int], tuple[int, int]]) -> int:
    """Return the digits that both bounds of a number have, with as many more as that takes."""
    more = _GUARD
    while True:
        low, high = around(more)
        if low >> more == high >> more:
            return low >> more
        more *= 2


@dataclass(frozen=True, slots=True)
class UniformReal:
    """A uniform real in 0..1 by its first binary digits; `further` draws as many as `step` more."""

    number: int
    digits: int
    step: int
    further: Callable[[int], int]

    def longer(self) -> UniformReal:
        """Return the same real by more digits."""
        number = (self.number << self.step) + self.further(self.step)
        return UniformReal(number, self.digits + self.step, self.step, self.further)

    def strip(self) -> int:
        """Return the strip that it falls into."""
        ends = strip_ends(self.digits)
        if self.number in ends:
            return self.longer().strip()
        return sum(self.number > end for end in ends)

    def below_exponential(self, n: int, d: int) -> bool:
        """Return whether it is below exp(-n / d)."""
        if n == 0:
            return True
        digits = coin_digits(n, d, self.digits)
        return self.number < digits or (
            self.number == digits and self.longer().below_exponential(n, d)
        )


def gaussian_trial(
    words: Any, place: Any, scale: int, digits: int = DIGITS, step: int = FURTHER
) -> tuple[bool, int]:
    """Return (whether it counts, value): one round, see gaussian.md."""

    def drawn(count: int) -> int:
        return int(next_bits(words, place, count))

    u = drawn((scale - 1).bit_length())
    if u >= scale:
        return False, 0
    of_strip, of_coin = (UniformReal(drawn(digits), digits, step, drawn) for _ in range(2))
    negative = bool(next_bit(words, place))
    v = of_strip.strip()
    if not of_coin.below_exponential(2 * scale * u * v + u * u, 2 * scale**2):
        return False, 0
    magnitude = u + scale * v
    if negative:
        return magnitude > 0, -magnitude
    return True, magnitude


def gaussian_round(words: Any, place: Any, out: Any, done: Any, scale: int) -> None:
    """Do one round from the mark on: write its value if it counts, and move the mark."""
    counts, value = gaussian_trial(words, place, int(scale))
    if counts:
        out[done[0]] = value
        done[0] += 1
    place[MARK] = place[NEXT]
