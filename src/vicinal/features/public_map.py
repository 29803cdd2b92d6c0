"""A linear map learnt from public rows, to bring out what nearest neighbours can use."""

import math
import zipfile
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from vicinal import checks
from vicinal.arrays import AnyArray, Floats, Floats32
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.features.fixed import projected, rounded_directions, unit_rows
from vicinal.tabular import (
    Names,
    note_columns,
    read_matrix,
    read_names,
    refuse_other_names,
    refuse_other_width,
    text_names,
)

Vectors = Floats32

_FLAT = 1e-6
"""A component whose deviation is below this share of the largest carries rounding errors only."""

_CHUNK = 256
"""Rows mapped at a time, which stay in a cache; the result is the same for any number."""

_PARAMETERS = ("n_components", "power")
_LEARNT = ("mean", "components", "scale")
_NAMES = "column_names"
"""Entry in the file of a map that was fitted on a table with names, and of no other map."""


class PublicMap(TransformerMixin, BaseEstimator):
    """Centre rows, project them on public components, damp the strong ones, scale to length one.

    Everything learnt is learnt from the rows given to `fit`. **They must be public**: the map can
    be published, and no budget pays for it. Fit it beforehand, never on private records; in a
    scikit-learn Pipeline wrap the fitted map in ``sklearn.frozen.FrozenEstimator``, since a
    Pipeline fits all its steps on the records.

    Row i of the output depends on row i of the input and on the map, bit for bit: other rows,
    their number and their order change nothing. `vicinal.features.fixed` says why that matters
    and proves it.

    Parameters
    ----------
    n_components
        Number of leading principal components to keep, at most as many as the public rows have
        rank. None keeps the features as they are, so that only centring and scaling happen.
    power
        Every component is divided by its public standard deviation to this power, between 0
        (plain principal components) and 1 (whitening). The default is half-whitening.

    Attributes
    ----------
    mean_ : array (d,) of float64
        Public mean.
    components_ : array (d, c) of float64, or None without projection
        Unit column vectors on the grid that makes products exact, strongest first.
    scale_ : array (c,) of float64, or None without projection
        What each component is divided by, 1 for the strongest. (A common factor would have no
        effect, because all rows end up with length one.)
    n_features_in_ : int
        Number d of features going in.
    feature_names_in_ : array (d,) of str
        Names of the columns of the public rows, if they came as a table with such names.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import PublicMap
    >>> rng = np.random.default_rng(0)
    >>> to_features = PublicMap(n_components=2).fit(rng.normal(size=(100, 6)))  # public rows only
    >>> to_features.transform(rng.normal(size=(3, 6))).shape
    (3, 2)
    """

    def __init__(self, n_components: int | None = 100, power: float = 0.5) -> None:
        self.n_components = n_components
        self.power = power

    def fit(self, X: Any, y: object = None) -> Self:  # noqa: ARG002
        """Learn the map from public rows.

        Parameters
        ----------
        X
            Public rows, an array or a table (m, d) of finite numbers.
        y
            Not used.

        Raises
        ------
        InvalidInput
            If a parameter is out of range, if `X` is not a matrix of finite numbers, or if its
            rows are all alike, so that they have no principal component.
        """
        n_components, power = self._settings()
        read = read_matrix("X", X)
        rows = read.values
        mean = rows.mean(axis=0, dtype=np.float64)
        components = scale = None
        if n_components is not None:
            largest = float(np.abs(rows).max()) or 1.0
            directions, strengths = _find_principal_components(
                _center_rows(rows, mean) / largest, n_components
            )
            components, scale = rounded_directions(directions), (strengths / strengths[0]) ** power
        return self._learnt(mean, components, scale, read.names)

    def transform(self, X: Any) -> Vectors:
        """Return the mapped rows.

        Parameters
        ----------
        X
            Rows, an array or a table (n, d) of finite numbers; private, public or queries. A table
            must have the columns of the public rows, in the same order.

        Returns
        -------
        array (n, c) of float32
            Rows of Euclidean length one. A row that comes to nothing (it equals the public mean,
            say) has no direction and stays zeros.

        Raises
        ------
        InvalidInput
            If `X` is not a matrix of finite numbers with d columns.
        sklearn.exceptions.NotFittedError
            If the map was not fitted.
        """
        check_is_fitted(self)
        refuse_other_names(read_names("X", X), vars(self).get("_column_names"))
        rows = read_matrix("X", X).values
        refuse_other_width(rows, self.n_features_in_, "PublicMap")
        chunks = (rows[start : start + _CHUNK] for start in range(0, len(rows), _CHUNK))
        return np.concatenate([self._mapped(chunk) for chunk in chunks])

    def fit_transform(self, X: Any, y: object = None) -> Vectors:
        """Fit on public rows and return them mapped.

        Raises
        ------
        PrivacyRefused
            If labels come with the rows, which is what happens when a Pipeline is fitted on
            private records.
        """
        if y is not None:
            raise PrivacyRefused(
                "PublicMap learns from public rows, which have no labels. Got labels: is this a "
                "Pipeline being fitted on private records? Fit the map on public rows first and "
                "put FrozenEstimator(public_map) into the Pipeline."
            )
        return self.fit(X).transform(X)

    def save(self, path: str | Path) -> None:
        """Write the fitted map to an npz file; it holds public things only."""
        check_is_fitted(self)
        entries = {name: getattr(self, name) for name in _PARAMETERS}
        entries |= {name: getattr(self, f"{name}_") for name in _LEARNT}
        entries[_NAMES] = text_names(vars(self).get("_column_names"))
        with Path(path).open("wb") as file:
            np.savez(file, **{name: v for name, v in entries.items() if v is not None})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the map that `save` wrote.

        Raises
        ------
        InvalidInput
            If the file is missing, is no such file or does not fit together.
        """
        parameters, mean, components, scale, names = _read(Path(path))
        public_map = cls(**parameters)
        n_components, _ = public_map._settings()
        sound = mean.ndim == 1 and mean.size > 0 and bool(np.isfinite(mean).all())
        if components is None or scale is None:
            sound = sound and n_components is None and components is scale
        else:
            sound = (
                sound
                and n_components is not None
                and _keeps_norm_bound(components, scale, mean.size)
            )
        sound = sound and (names is None or len(set(names)) == len(names) == mean.size)
        if not sound:
            raise InvalidInput(f"{path} holds a PublicMap whose parts do not fit together.")
        return public_map._learnt(mean, components, scale, names)

    def _settings(self) -> tuple[int | None, float]:
        n_components = self.n_components
        if n_components is not None:
            n_components = checks.check_integer("n_components", n_components, least=1)
        return n_components, checks.check_real("power", self.power, least=0.0, most=1.0)

    def _learnt(
        self, mean: Floats, components: Floats | None, scale: Floats | None, names: Names | None
    ) -> Self:
        self.mean_ = mean
        self.components_ = components
        self.scale_ = scale
        note_columns(self, len(mean), names)
        return self

    def _mapped(self, rows: AnyArray) -> Vectors:
        centred = _center_rows(rows, self.mean_)
        if self.components_ is not None:
            centred = projected(centred, self.components_) / np.asarray(self.scale_)
        return unit_rows(centred)


def _find_principal_components(rows: Floats, n_components: int) -> tuple[Floats, Floats]:
    """Return at most `n_components` leading components (d, c) and their strengths (c,).

    A strength is a deviation times the square root of the number of rows. The rows come in units
    of the largest number before centring, so that what centring leaves of equal rows is told
    from a component.
    """
    strengths, directions = _decompose(rows)
    floor = max(_FLAT * strengths[0], _FLAT**2 * math.sqrt(rows.size))
    n_directions = min(n_components, int(np.count_nonzero(strengths > floor)))
    if n_directions == 0:
        raise InvalidInput(
            "Public rows that are all alike, or only one sample, have no principal component. "
            "Give more of them, or n_components=None."
        )
    return np.ascontiguousarray(directions[:, :n_directions]), strengths[:n_directions]


def _decompose(rows: Floats) -> tuple[Floats, Floats]:
    """Return all singular values, largest first, and the right singular vectors in columns."""
    if len(rows) < rows.shape[1]:
        _, strengths, directions = np.linalg.svd(rows, full_matrices=False)
        return strengths, directions.T
    # Several times faster with many rows; exact enough, as what is below _FLAT is dropped.
    squares, directions = np.linalg.eigh(rows.T @ rows)
    return np.sqrt(np.maximum(squares[::-1], 0.0)), directions[:, ::-1]


def _center_rows(rows: AnyArray, mean: Floats) -> Floats:
    """Return centred rows in float64, refusing numbers so large that centring overflows."""
    with np.errstate(over="ignore"):
        centred = rows.astype(np.float64) - mean
    if not np.isfinite(centred).all():
        raise InvalidInput("The rows must hold numbers whose distance from the mean is finite.")
    return centred


def _read(path: Path) -> tuple[dict[str, Any], Floats, Floats | None, Floats | None, Names | None]:
    """Return the parameters, the mean, the components, the scale and the names in a file."""
    try:
        # Opened here, as np.load leaves a damaged file open.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            parameters = {name: stored[name].item() for name in _PARAMETERS if name in stored}
            learnt = {name: stored[name].astype(np.float64) for name in _LEARNT if name in stored}
            mean = learnt["mean"]
            names = tuple(map(str, stored[_NAMES].tolist())) if _NAMES in stored else None
    except FileNotFoundError:
        raise InvalidInput(f"There is no file {path}.") from None
    except (OSError, EOFError, KeyError, ValueError, TypeError, zipfile.BadZipFile):
        raise InvalidInput(f"{path} is not a file written by PublicMap.save.") from None
    parameters.setdefault("n_components", None)
    return parameters, mean, learnt.get("components"), learnt.get("scale"), names


def _keeps_norm_bound(components: Floats, scale: Floats, n_features: int) -> bool:
    """Tell whether components from outside keep the bound on which exact sums rest."""
    return bool(
        scale.ndim == 1
        and components.shape == (n_features, len(scale))
        and np.isfinite(scale).all()
        and (scale > 0).all()
        and np.allclose(np.linalg.norm(components, axis=0), 1.0)
        and np.array_equal(components, rounded_directions(components))
    )
