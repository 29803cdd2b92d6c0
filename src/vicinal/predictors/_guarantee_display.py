"""How notebooks show what an estimator guarantees; apart, as a store needs no scikit-learn."""

from __future__ import annotations

from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from vicinal.accounting import Guarantee
from vicinal.errors import VicinalError


class GuaranteeDisplay(BaseEstimator):
    """An estimator whose HTML ends with its guarantee, once there is one."""

    def guarantee(self) -> Guarantee:
        """Return the guarantee."""
        raise NotImplementedError

    def _html_repr(self) -> str:
        """Return scikit-learn's HTML, followed by the guarantee."""
        shown: str = super()._html_repr()
        try:
            return shown + self.guarantee()._repr_html_()
        except (NotFittedError, VicinalError):
            return shown
