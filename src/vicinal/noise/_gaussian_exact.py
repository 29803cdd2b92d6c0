"""One round of the discrete Gaussian sampler in exact integers, the reference of the compiled one.

Proof note: gaussian.md. It is slow, and is used for the rounds that the compiled sampler leaves
undecided, about one in 10^5. `words`, random bits, and `cursor`, the position in them, are those of
:mod:`vicinal.noise._uniform_bits`. A "strip" is a proposed magnitude's quotient by the scale,
rounded down; strip v is proposed with a probability proportional to exp(-v^2 / 2).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from vicinal.noise._uniform_bits import MARK, NEXT, read_bit, read_bits

# Number of random binary digits that are compared first, and number of further digits that are read
# whenever the digits read so far do not decide.
N_DIGITS, N_FURTHER_DIGITS = 20, 32

# Additional binary digits of intermediate results.
_GUARD_DIGITS = 64


def bound_exponential(n: int, d: int, digits: int) -> tuple[int, int]:
    """Return integer lower and upper bounds of exp(-n / d) 2^digits, a few units apart.

    `n`, `d`: integers n >= 0 and d >= 1. `digits`: number of binary digits.
    """
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
    """Return floor(exp(-n / d) 2^digits), the first `digits` binary digits; n > 0, d >= 1."""
    return _compute_floor(lambda extra: bound_exponential(n, d, digits + extra))


@cache
def compute_cdf_digits(digits: int) -> tuple[int, ...]:
    """Return the cumulative distribution of strips: floor(2^digits C_v) for v = 0, 1, ...

    It ends with the first value 2^digits - 1. C_v is the probability of the strips 0 to v.
    `digits`: number of binary digits.
    """
    cumulative: list[int] = []
    while not cumulative or cumulative[-1] < (1 << digits) - 1:
        v = len(cumulative)
        cumulative.append(_compute_floor(lambda extra, v=v: _bound_cdf(v, digits + extra)))  # type: ignore[misc]
    return tuple(cumulative)


def _bound_cdf(v: int, digits: int) -> tuple[int, int]:
    """Return integer lower and upper bounds of 2^digits times the probability of strips 0 to v.

    `v`: index of the last strip. `digits`: number of binary digits of the probability.
    """
    # The weights exp(-j^2 / 2) of all strips j beyond the last sum to less than exp(-last^2 / 2),
    # which is below 2^-(digits + 64), that is, one unit.
    last = v + math.isqrt(2 * (digits + _GUARD_DIGITS)) + 2
    weights = [bound_exponential(j * j, 2, digits + _GUARD_DIGITS) for j in range(last + 1)]
    low, high = (sum(bounds) for bounds in zip(*weights[: v + 1], strict=True))
    total_low, total_high = (sum(bounds) for bounds in zip(*weights, strict=True))
    return (low << digits) // (total_high + 1), (high << digits) // total_low + 1


def _compute_floor(compute_bounds: Callable[[int], tuple[int, int]]) -> int:
    """Return floor(x) of a real number x, from bounds that are refined until their floors agree.

    ``compute_bounds(extra)`` returns integer lower and upper bounds of x 2^extra; `extra` is
    doubled until they agree in all but the last `extra` digits.
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
    - `n_digits`: the number of these digits, which are compared first.
    - `n_further_digits`: number of digits that are sampled at a time afterwards.
    - `read_integer`: function that returns a given number of random bits as an integer.
    """

    number: int
    n_digits: int
    n_further_digits: int
    read_integer: Callable[[int], int]

    def extend(self) -> UniformReal:
        """Return the same real with `n_further_digits` more digits."""
        n_further = self.n_further_digits
        number = (self.number << n_further) + self.read_integer(n_further)
        return UniformReal(number, self.n_digits + n_further, n_further, self.read_integer)

    def find_strip(self) -> int:
        """Return the strip index at which the cumulative distribution exceeds the real."""
        cumulative = compute_cdf_digits(self.n_digits)
        if self.number in cumulative:
            return self.extend().find_strip()
        return sum(self.number > probability for probability in cumulative)

    def is_below_exponential(self, n: int, d: int) -> bool:
        """Return whether the real is below exp(-n / d), for integers n >= 0 and d >= 1."""
        if n == 0:
            return True
        exponential_digits = compute_exponential_digits(n, d, self.n_digits)
        return self.number < exponential_digits or (
            self.number == exponential_digits and self.extend().is_below_exponential(n, d)
        )


def compute_gaussian_round(
    words: Any,
    cursor: Any,
    scale: int,
    n_digits: int = N_DIGITS,
    n_further_digits: int = N_FURTHER_DIGITS,
) -> tuple[bool, int]:
    """Return (True, sample) if one round of rejection sampling accepts, else (False, 0).

    Reads bits from `words` at `cursor`, which is advanced. `scale`: scale of the discrete Gaussian,
    in grid steps. `n_digits`, `n_further_digits`: see :class:`UniformReal`.
    """

    def read_integer(count: int) -> int:
        """Return the next `count` random bits as an integer."""
        return int(read_bits(words, cursor, count))

    u = read_integer((scale - 1).bit_length())
    if u >= scale:
        return False, 0
    strip_real, acceptance_real = (
        UniformReal(read_integer(n_digits), n_digits, n_further_digits, read_integer)
        for _ in range(2)
    )
    negative = bool(read_bit(words, cursor))
    v = strip_real.find_strip()
    if not acceptance_real.is_below_exponential(2 * scale * u * v + u * u, 2 * scale**2):
        return False, 0
    magnitude = u + scale * v
    if negative:
        return magnitude > 0, -magnitude
    return True, magnitude


def run_gaussian_round(words: Any, cursor: Any, samples: Any, n_done: Any, scale: int) -> None:
    """Run one round of rejection sampling at `cursor`, store an accepted value, advance the mark.

    `samples`, int64, gets the value at index ``n_done[0]``; `n_done`, int64 (1,), is the number of
    finished samples. `scale`: scale of the discrete Gaussian, 1 to 2^40.
    """
    accepted, value = compute_gaussian_round(words, cursor, int(scale))
    if accepted:
        samples[n_done[0]] = value
        n_done[0] += 1
    cursor[MARK] = cursor[NEXT]
