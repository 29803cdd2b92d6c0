"""What numbers mean to readers who are not privacy experts, and the templates of pages.

Pages need nothing else, and are well-formed XML too, so that tests can read them.
"""

from __future__ import annotations

import math
import textwrap
from functools import cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from vicinal import checks

if TYPE_CHECKING:
    import jinja2

_WIDTH = 100


def guess_limit(epsilon: float, delta: float) -> float:
    """Return how often a guess about one person's presence can be right, at most.

    The guesser sees every answer, knows every other record, and would be right half the time by
    tossing a coin. From the two error rates of any test under (epsilon, delta)-DP: their sum is at
    least 2 (1 - delta) / (1 + e^epsilon) (Kairouz, Oh and Viswanath 2015).
    """
    epsilon = checks.check_real("epsilon", epsilon, above=0)
    delta = checks.check_real("delta", delta, least=0, below=1)
    return 1 - (1 - delta) * math.exp(-epsilon) / (1 + math.exp(-epsilon))


def gaussian_guess_limit(budget: float, delta: float) -> float:
    """Return the same limit where all noise is Gaussian: Phi(mu / 2) with mu = sqrt(2 B).

    Dong, Roth and Su 2022. What the integer grid adds is below 1 % of delta; all of delta is
    added here.
    """
    budget = checks.check_real("budget", budget, above=0)
    return min(1.0, NormalDist().cdf(math.sqrt(2 * budget) / 2) + delta)


def format_percent(share: float, digits: int = 1) -> str:
    """Return a share in words, as "97.3 %"."""
    return f"{100 * share:.{digits}f} %"


def percent_up(share: float) -> str:
    """Return a bound in words, rounded up to a tenth of a percent."""
    return f"{math.ceil(1000 * share - 1e-9) / 10:.1f} %"


def format_interval(ends: tuple[float, float]) -> str:
    return f"95 % interval {100 * ends[0]:.1f} to {100 * ends[1]:.1f} %"


def format_duration(seconds: float) -> str:
    minutes, remainder = divmod(round(seconds), 60)
    return f"{minutes} min {remainder} s" if minutes else f"{remainder} s"


def fact(words: str, name: str = "") -> str:
    """Return words in lines of at most 100 letters, beside a name if there is one."""
    inner = " " * 13 if name else ""
    first = f"{name:13}" if name else ""
    return textwrap.fill(
        " ".join(words.split()), _WIDTH, initial_indent=first, subsequent_indent=inner
    )


def rendered(name: str, **values: Any) -> str:
    """Return the page of a template; in HTML every value is escaped on its way into it."""
    return _environment().get_template(name).render(**values)


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("vicinal.reports"), undefined=jinja2.StrictUndefined,
        autoescape=jinja2.select_autoescape(["html"]), trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters.update(
        percent=format_percent, interval=format_interval, duration=format_duration, fact=fact
    )
    return environment
