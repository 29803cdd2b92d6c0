"""The privacy guarantee of an interaction, as a value with a text for readers."""

import dataclasses
import math
from decimal import ROUND_CEILING, Context
from html import escape
from typing import Any

_DISPLAYED_BOUNDS = Context(prec=3, rounding=ROUND_CEILING)
"""Three significant digits, rounded up: readers compare bounds and do not compute with them."""


@dataclasses.dataclass(frozen=True, slots=True)
class Guarantee:
    """The privacy guarantee of an interaction for every subject; ``str()`` is a paragraph of text.

    Attributes
    ----------
    epsilon, delta : float
        The bound, both rounded up. Epsilon is infinite if there is no guarantee.
    neighbouring : str
        The neighbouring relation of the data sets that are compared.
    protected, public : tuple of str
        The data that the bound protects, and the data that it does not protect.
    method : str
        The composition theorem behind the bound.
    assumptions : tuple of str
        The conditions under which the bound holds.
    holds : bool
        False for results of simulation mode, and for records declared public: there is no guarantee
        at all.
    public_records : bool
        Whether the records were declared public.
    periods : str
        A sentence on the cost of the answers of one period, where budgets renew; else "".

    Examples
    --------
    >>> from vicinal import IndKNNClassifier
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> clf = IndKNNClassifier([0, 1], n_queries=10, n_records=200)
    >>> X, y, R = rng.normal(size=(200, 3)), rng.integers(0, 2, 200), rng.normal(size=(50, 3))
    >>> guarantee = clf.fit(X, y, public=R).guarantee()
    >>> guarantee.epsilon <= 1.0, guarantee.holds
    (True, True)
    """

    epsilon: float
    delta: float
    neighbouring: str
    protected: tuple[str, ...]
    public: tuple[str, ...]
    method: str
    assumptions: tuple[str, ...]
    holds: bool = True
    public_records: bool = False
    periods: str = ""

    def __str__(self) -> str:
        """Return the guarantee as a paragraph of text."""
        if self.public_records:
            return (
                "NO GUARANTEE. The records were declared public, so queries on them are not "
                "counted. The noise protects no subject."
            )
        if not self.holds:
            return (
                "NO GUARANTEE. These results were made in simulation mode, with noise from a "
                "seeded generator, which can be repeated. They show accuracy and protect no "
                "subject."
            )
        epsilon, delta = format_rounded_up(self.epsilon), format_rounded_up(self.delta)
        return (
            f"({epsilon}, {delta})-differential privacy for every subject. "
            f"Neighbouring data sets: {self.neighbouring}. "
            "Whoever sees all answers together, and knows every other record, learns little about "
            "any one subject: the probability of anything that they could conclude changes by a "
            f"factor of at most e^{epsilon}, up to an additional probability of "
            f"{delta}, when all records of that subject are added or removed. {self.periods}"
            f"Protected: {'; '.join(self.protected)}. "
            f"Public, and not protected: {'; '.join(self.public)}. "
            f"Accounting: {self.method}. "
            f"Assumed: {'; '.join(self.assumptions)}."
        )

    def _repr_html_(self) -> str:
        """Return the guarantee as a table, for notebooks."""
        if self.public_records or not self.holds:
            return f"<p><strong>{escape(str(self))}</strong></p>"
        rows = {
            "epsilon": format_rounded_up(self.epsilon),
            "delta": format_rounded_up(self.delta),
            "neighbouring data sets": self.neighbouring,
            **({"periods": self.periods} if self.periods else {}),
            "protected": "; ".join(self.protected),
            "public": "; ".join(self.public),
            "accounting": self.method,
            "assumed": "; ".join(self.assumptions),
        }
        cell = 'style="text-align: left; white-space: normal; vertical-align: top"'
        body = "".join(
            f'<tr><th scope="row" {cell}>{name}</th><td {cell}>{escape(text)}</td></tr>'
            for name, text in rows.items()
        )
        return (
            "<table><caption>Differential privacy for every subject</caption>"
            f"<tbody>{body}</tbody></table>"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all fields and the text as plain values for JSON; infinite epsilon is None."""
        epsilon = self.epsilon if math.isfinite(self.epsilon) else None
        return {**dataclasses.asdict(self), "epsilon": epsilon, "text": str(self)}


def format_rounded_up(bound: float) -> str:
    """Return an upper bound, such as an epsilon, as text rounded up to three significant digits."""
    # The shortest decimal text of 1e-5 is exact, while its binary value is slightly larger.
    return f"{float(_DISPLAYED_BOUNDS.create_decimal(repr(float(bound)))):g}"
