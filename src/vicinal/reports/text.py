"""Bounds on membership inference, formatting of numbers, and rendering of templates.

HTML pages have no external resources, and are well-formed XML, so that tests can parse them.
"""

from __future__ import annotations

import math
import textwrap
from functools import cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from vicinal.accounting.guarantee import format_rounded_up

if TYPE_CHECKING:
    import jinja2

_WIDTH = 100  # characters per line of text reports


def bound_attack_success(epsilon: float, delta: float) -> float:
    """Return an upper bound on the success probability of membership inference, from prior 1/2.

    It holds under (`epsilon`, `delta`)-DP for an attacker who sees every answer and knows all other
    records. The two error rates of any test add up to at least 2 (1 - delta) / (1 + e^epsilon)
    (Kairouz, Oh and Viswanath 2015).
    """
    return 1 - (1 - delta) * math.exp(-epsilon) / (1 + math.exp(-epsilon))


def bound_gaussian_success(budget: float, delta: float) -> float:
    """Return an upper bound on the success probability of membership inference, from prior 1/2.

    It is Phi(mu / 2) + delta with mu = sqrt(2 B) for Gaussian noise (Dong, Roth and Su 2022).
    `budget`: B, the zCDP budget of a subject. `delta`: allowance for noise on an integer grid: the
    part of the guarantee's delta that is reserved for it, or all of delta for a looser bound.
    """
    return min(1.0, NormalDist().cdf(math.sqrt(2 * budget) / 2) + delta)


def format_percent(share: float, n_decimals: int = 1) -> str:
    """Return a `share`, 0 to 1, as text such as "97.3 %"."""
    return f"{100 * share:.{n_decimals}f} %"


def format_upper_percent(share: float) -> str:
    """Return an upper bound on a `share`, 0 to 1, as text, rounded up to a tenth of a percent."""
    return f"{math.ceil(1000 * share - 1e-9) / 10:.1f} %"


def format_interval(ends: tuple[float, float]) -> str:
    """Return a 95 % interval of a share as text; `ends`: its lower and upper end, 0 to 1."""
    return f"95 % interval {100 * ends[0]:.1f} to {100 * ends[1]:.1f} %"


def format_duration(seconds: float) -> str:
    """Return a duration in `seconds` as text, such as "2 min 5 s"."""
    minutes, remainder = divmod(round(seconds), 60)
    return f"{minutes} min {remainder} s" if minutes else f"{remainder} s"


def format_fact(text: str, name: str = "") -> str:
    """Return `text` wrapped at 100 characters, with `name`, if any, in a left column of 13."""
    text = " ".join(text.split())
    if not name:
        return textwrap.fill(text, _WIDTH)
    return textwrap.fill(text, _WIDTH, initial_indent=f"{name:13}", subsequent_indent=" " * 13)


def render_template(name: str, **values: Any) -> str:
    """Return the template file `name` with `values` inserted; HTML templates escape all values."""
    return _create_jinja_environment().get_template(name).render(**values)


@cache
def _create_jinja_environment() -> jinja2.Environment:
    """Return the cached template environment, with this package's templates and filters."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("vicinal.reports"),
        undefined=jinja2.StrictUndefined,
        autoescape=jinja2.select_autoescape(["html"]),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        percent=format_percent,
        interval=format_interval,
        duration=format_duration,
        fact=format_fact,
        bound=format_rounded_up,
    )
    return environment
