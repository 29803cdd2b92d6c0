"""One round of the discrete Gaussian sampler in exact integers, the reference of the compiled one.

Proof note: gaussian.md. It is slow, and is used for the rounds that the compiled sampler leaves
undecided, about one in 10^5.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from vicinal.noise._uniform_bits import MARK, NEXT, next_bit, next_bits

# Number of random binary digits that are compared first, and number of further digits that are read
# whenever the digits already sampled do not decide.
DIGITS, FURTHER = 20, 32

# Additional binary digits of intermediate results.
_GUARD_DIGITS = 64


def bound_exponential(n: int, d: int, digits: int) -> tuple[int, int]:
    """Return integer bounds of exp(-n / d) 2^digits, a few units apart; n >= 0, d >= 1."""
    halvings = (2 * n // d).bit_length()
    precision = digits + halvings + _GUARD_DIGITS
    x = (n << precision) // (d << halvings)  # at most 1/2
    term, total, k = 1 << precision, 0, 0
    while term:
        total += term if k % 2 == 0 else -term
        k += 1
        term = term * x // (k << precision)
    # Each term is too small by less than 4 units, and the dropped terms are less than one unit.
    low, high = total - 4 * k - 4, total + 4 * k + 4
    for _ in range(halvings):
        low, high = low * low >> precision, (high * high >> precision) + 1
    n_dropped = precision - digits
    return low >> n_dropped, (high >> n_dropped) + 1


def compute_exponential_digits(n: int, d: int, digits: int) -> int:
    """Return floor(exp(-n / d) 2^digits) for n > 0, the first digits of an irrational number."""
    return _find_agreed_digits(lambda extra: bound_exponential(n, d, digits + extra))


@cache
def compute_strip_ends(digits: int) -> tuple[int, ...]:
    """Return floor(2^digits C_v) for v = 0, 1, ... up to the first value 2^digits - 1.

    C_v is the probability of the strips 0 to v, where strip v has a probability proportional to
    exp(-v^2 / 2).
    """
    ends: list[int] = []
    while not ends or ends[-1] < (1 << digits) - 1:
        v = len(ends)
        ends.append(_find_agreed_digits(lambda extra, v=v: _bound_strip_end(v, digits + extra)))  # type: ignore[misc]
    return tuple(ends)


def _bound_strip_end(v: int, digits: int) -> tuple[int, int]:
    """Return integer bounds of 2^digits times the probability of the strips 0 to v."""
    # The heights of all strips beyond the last sum to less than exp(-last^2 / 2) < 2^-digits-64,
    # that is, one unit.
    last = v + math.isqrt(2 * (digits + _GUARD_DIGITS)) + 2
    heights = [bound_exponential(j * j, 2, digits + _GUARD_DIGITS) for j in range(last + 1)]
    low, high = (sum(bounds) for bounds in zip(*heights[: v + 1], strict=True))
    total_low, total_high = (sum(bounds) for bounds in zip(*heights, strict=True))
    return (low << digits) // (total_high + 1), (high << digits) // total_low + 1


def _find_agreed_digits(compute_bounds: Callable[[int], tuple[int, int]]) -> int:
    """Return the leading digits in which two bounds of a number agree.

    ``compute_bounds(extra)`` returns integer bounds with `extra` additional digits, which are
    dropped here. The number of additional digits is doubled until the bounds agree.
    """
    extra = _GUARD_DIGITS
    while True:
        low, high = compute_bounds(extra)
        if low >> extra == high >> extra:
            return low >> extra
        extra *= 2


@dataclass(frozen=True, slots=True)
class UniformReal:
    """A uniform random real in [0, 1), of which only the first binary digits have been sampled.

    - `number`: the first digits, as an integer.
    - `digits`: their number.
    - `step`: number of digits that are sampled at a time.
    - `read_bits`: function that returns a given number of random bits as an integer.
    """

    number: int
    digits: int
    step: int
    read_bits: Callable[[int], int]

    def extend(self) -> UniformReal:
        """Return the same real with `step` further digits."""
        number = (self.number << self.step) + self.read_bits(self.step)
        return UniformReal(number, self.digits + self.step, self.step, self.read_bits)

    def find_strip(self) -> int:
        """Return the index of the strip into which the real falls."""
        ends = compute_strip_ends(self.digits)
        if self.number in ends:
            return self.extend().find_strip()
        return sum(self.number > end for end in ends)

    def is_below_exponential(self, n: int, d: int) -> bool:
        """Return whether the real is below exp(-n / d), for integers n >= 0 and d >= 1."""
        if n == 0:
            return True
        exponential_digits = compute_exponential_digits(n, d, self.digits)
        return self.number < exponential_digits or (
            self.number == exponential_digits and self.extend().is_below_exponential(n, d)
        )


def run_gaussian_trial(
    words: Any, cursor: Any, scale: int, digits: int = DIGITS, step: int = FURTHER
) -> tuple[bool, int]:
    """Return whether one round accepts, and its value if it does; see gaussian.md, "A round".

    - `words`, `cursor`: random bits and the position in them; the position is advanced.
    - `scale`: scale of the discrete Gaussian.
    - `digits`, `step`: numbers of digits that are compared first and read at a time afterwards.
    """

    def read_bits(count: int) -> int:
        return int(next_bits(words, cursor, count))

    u = read_bits((scale - 1).bit_length())
    if u >= scale:
        return False, 0
    strip_real, coin_real = (
        UniformReal(read_bits(digits), digits, step, read_bits) for _ in range(2)
    )
    negative = bool(next_bit(words, cursor))
    v = strip_real.find_strip()
    if not coin_real.is_below_exponential(2 * scale * u * v + u * u, 2 * scale**2):
        return False, 0
    magnitude = u + scale * v
    if negative:
        return magnitude > 0, -magnitude
    return True, magnitude


def run_gaussian_round(words: Any, cursor: Any, samples: Any, n_done: Any, scale: int) -> None:
    """Run one round from the mark on, store an accepted value and advance the mark.

    The arguments are those of :func:`vicinal.noise._gaussian.fill_gaussian`.
    """
    accepted, value = run_gaussian_trial(words, cursor, int(scale))
    if accepted:
        samples[n_done[0]] = value
        n_done[0] += 1
    cursor[MARK] = cursor[NEXT]
