"""The kinds of releases that a plan can hold: fields, cost, certificate, assumptions.

One :class:`Kind` a mechanism; a new mechanism is a new entry of ``KINDS``.
"""

from vicinal.accounting.kinds._base import Kind
from vicinal.accounting.kinds._ind_knn import IND_KNN
from vicinal.accounting.kinds._pate import CONFIDENT_GNMAX, GNMAX, LNMAX, SMOOTH_RELEASE
from vicinal.accounting.kinds._private_knn import GAUSSIAN, MULTILABEL, NOISY_MAX, SCREENING

__all__ = ["KINDS", "Kind"]

KINDS: dict[str, Kind] = {
    "screening": SCREENING,
    "noisy_max": NOISY_MAX,
    "gaussian": GAUSSIAN,
    "multilabel": MULTILABEL,
    "lnmax": LNMAX,
    "gnmax": GNMAX,
    "confident_gnmax": CONFIDENT_GNMAX,
    "smooth_release": SMOOTH_RELEASE,
    "ind_knn": IND_KNN,
}
"""Every kind of release, by the name that a plan gives it."""
