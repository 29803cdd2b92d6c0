"""A linear map fitted to public rows: centre, project to principal components, and rescale."""

import io
import math
import zipfile
import zlib
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from vicinal import checks
from vicinal.arrays import AnyArray, Floats
from vicinal.declared_sizes import open_npz
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.features.fixed import Vectors, project_exactly, round_directions, scale_to_unit_length
from vicinal.ledger.output_files import check_output, write_output
from vicinal.tabular import (
    Names,
    get_text_names,
    read_matrix,
    read_names,
    refuse_other_names,
    refuse_other_width,
    set_column_attributes,
)

_MIN_RELATIVE_DEVIATION = 1e-6
"""Smallest deviation of a component relative to the largest; below it are rounding errors."""

_CHUNK = 256  # rows mapped at a time, so that they stay in a cache; it does not change the result

_PARAMETERS = ("n_components", "power")
_FITTED_ARRAYS = ("mean", "components", "scale")
_NAMES_ENTRY = "column_names"
"""Entry of a map's file with the column names, present if it was fitted on a table with names."""


class PublicMap(TransformerMixin, BaseEstimator):
    """Centre rows, project them on scaled public components, and scale them to length 1.

    The rows given to `fit` **must be public**, because the map reveals them and no budget is
    charged. Fit it in advance, never on private records; in a scikit-learn Pipeline wrap the fitted
    map in ``sklearn.frozen.FrozenEstimator``, because a Pipeline fits all its steps on the records.

    Row i of the output depends only on row i of the input and on the map, bit for bit, and not on
    the number or order of other rows (see `vicinal.features.fixed`).

    Parameters
    ----------
    n_components
        Number of leading principal components to keep, at most the rank of the public rows. None
        keeps all features, which are then only centred and scaled.
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
        Divisor of each component, 1 for the strongest. (A common factor would have no effect,
        because rows are scaled to length 1.)
    n_features_in_ : int
        Number d of input features.
    feature_names_in_ : array (d,) of str
        Column names of the public rows, if they were a table with string names.

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
        """Fit the map to public rows `X`, an array or table (m, d) of finite numbers; return it.

        Raises InvalidInput if a parameter is out of range, if `X` is no such matrix, or if all its
        rows are equal, so that they have no principal component.
        """
        n_components, power = self._check_parameters()
        matrix = read_matrix("X", X)
        rows = matrix.values
        mean = rows.mean(axis=0, dtype=np.float64)
        components = scale = None
        if n_components is not None:
            largest = float(np.abs(rows).max()) or 1.0
            centred = _subtract_mean(rows, mean) / largest
            directions, singular_values = _compute_principal_components(centred, n_components)
            components = round_directions(directions)
            scale = (singular_values / singular_values[0]) ** power
        return self._set_fitted(mean, components, scale, matrix.names)

    def transform(self, X: Any) -> Vectors:
        """Return the mapped rows, float32 (n, c): of length 1, or zeros for a zero projection.

        `X`: private rows, public rows or queries, an array or a table (n, d) of finite numbers with
        the columns of the public rows, in the same order. Raises InvalidInput for other input, and
        NotFittedError if the map was not fitted.
        """
        check_is_fitted(self)
        refuse_other_names(read_names("X", X), vars(self).get("_column_names"))
        rows = read_matrix("X", X).values
        refuse_other_width(rows, self.n_features_in_, "PublicMap")
        chunks = []
        for start in range(0, len(rows), _CHUNK):
            mapped = _subtract_mean(rows[start : start + _CHUNK], self.mean_)
            if self.components_ is not None:
                mapped = project_exactly(mapped, self.components_) / np.asarray(self.scale_)
            chunks.append(scale_to_unit_length(mapped))
        return np.concatenate(chunks)

    def fit_transform(self, X: Any, y: object = None) -> Vectors:
        """Fit the map to public rows `X` and return the mapped rows, float32 (m, c).

        PrivacyRefused is raised if labels `y` are given, as by a Pipeline that is being fitted on
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
        """Write the fitted map to an npz file, which contains public values only."""
        check_is_fitted(self)
        entries = {name: getattr(self, name) for name in _PARAMETERS}
        entries |= {name: getattr(self, f"{name}_") for name in _FITTED_ARRAYS}
        entries[_NAMES_ENTRY] = get_text_names(vars(self).get("_column_names"))
        content = io.BytesIO()
        np.savez(content, **{name: value for name, value in entries.items() if value is not None})
        check_output(Path(path))  # a read-only file is refused, not replaced
        write_output(Path(path), content.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the map that `save` wrote; raise InvalidInput for any other file."""
        parameters, arrays, names = _read_file(Path(path))
        mean, components, scale = arrays["mean"], arrays.get("components"), arrays.get("scale")
        public_map = cls(**parameters)
        n_components, _ = public_map._check_parameters()
        is_valid = mean.ndim == 1 and mean.size > 0 and bool(np.isfinite(mean).all())
        if components is None or scale is None:
            is_valid = is_valid and n_components is None and components is scale
        else:
            has_projection = n_components is not None
            is_valid = is_valid and has_projection and _is_exact(components, scale, mean.size)
        is_valid = is_valid and (names is None or len(set(names)) == len(names) == mean.size)
        if not is_valid:
            raise InvalidInput(f"{path} holds a PublicMap whose parts do not fit together.")
        return public_map._set_fitted(mean, components, scale, names)

    def _check_parameters(self) -> tuple[int | None, float]:
        """Return the checked parameters `n_components` and `power`."""
        n_components = self.n_components
        if n_components is not None:
            n_components = checks.check_integer("n_components", n_components, minimum=1)
        return n_components, checks.check_real("power", self.power, minimum=0.0, maximum=1.0)

    def _set_fitted(
        self, mean: Floats, components: Floats | None, scale: Floats | None, names: Names | None
    ) -> Self:
        """Set the fitted attributes of the class docstring and return the map.

        `names` (d,): of the input columns, if any.
        """
        self.mean_ = mean
        self.components_ = components
        self.scale_ = scale
        set_column_attributes(self, len(mean), names)
        return self


def _compute_principal_components(rows: Floats, n_components: int) -> tuple[Floats, Floats]:
    """Return at most `n_components` leading components (d, c) and their singular values (c,).

    `rows`: centred rows (n, d), divided by the largest magnitude before centring, so that rounding
    errors of equal rows give no component. A singular value is a standard deviation times the
    square root of the number of rows.
    """
    if len(rows) < rows.shape[1]:
        _, singular_values, right_vectors = np.linalg.svd(rows, full_matrices=False)
        directions = right_vectors.T
    else:
        # Several times faster for many rows. It is inaccurate only for small singular values,
        # which are dropped.
        squares, eigenvectors = np.linalg.eigh(rows.T @ rows)
        singular_values = np.sqrt(np.maximum(squares[::-1], 0.0))
        directions = eigenvectors[:, ::-1]
    floor = max(
        _MIN_RELATIVE_DEVIATION * singular_values[0],
        _MIN_RELATIVE_DEVIATION**2 * math.sqrt(rows.size),
    )
    n_directions = min(n_components, int(np.count_nonzero(singular_values > floor)))
    if n_directions == 0:
        raise InvalidInput(
            "Public rows that are all alike, or only one sample, have no principal component. "
            "Give more of them, or n_components=None."
        )
    return np.ascontiguousarray(directions[:, :n_directions]), singular_values[:n_directions]


def _subtract_mean(rows: AnyArray, mean: Floats) -> Floats:
    """Return rows (n, d) minus `mean` (d,), float64; raise InvalidInput if a number overflows."""
    with np.errstate(over="ignore"):
        centred = rows.astype(np.float64) - mean
    if not np.isfinite(centred).all():
        raise InvalidInput("The rows must hold numbers whose distance from the mean is finite.")
    return centred


def _read_file(path: Path) -> tuple[dict[str, Any], dict[str, Floats], Names | None]:
    """Return parameters and fitted arrays by name, and input column names, of a saved map.

    Their values are not checked. Raises InvalidInput for a file that `save` did not write.
    """
    try:
        with path.open("rb") as file, open_npz(path, file) as stored:
            parameters = {name: stored[name].item() for name in _PARAMETERS if name in stored}
            arrays = {
                name: stored[name].astype(np.float64) for name in _FITTED_ARRAYS if name in stored
            }
            if "mean" not in arrays:
                raise KeyError
            names = None
            if _NAMES_ENTRY in stored:
                names = tuple(map(str, stored[_NAMES_ENTRY].tolist()))
    except FileNotFoundError:
        raise InvalidInput(f"There is no file {path}.") from None
    except (OSError, EOFError, KeyError, ValueError, TypeError, zipfile.BadZipFile, zlib.error):
        raise InvalidInput(f"{path} is not a file written by PublicMap.save.") from None
    parameters.setdefault("n_components", None)
    return parameters, arrays, names


def _is_exact(components: Floats, scale: Floats, n_features: int) -> bool:
    """Return whether `components` are unit vectors on the exact grid, (n_features, c).

    Also whether their divisors `scale` are positive, (c,).
    """
    return bool(
        scale.ndim == 1
        and components.shape == (n_features, len(scale))
        and np.isfinite(scale).all()
        and (scale > 0).all()
        and np.allclose(np.linalg.norm(components, axis=0), 1.0)
        and np.array_equal(components, round_directions(components))
    )
