"""Base classes and exact arithmetic of extractors that need no fit and process rows one by one.

Row products and norms are sums of integers below 2**53, so float64 sums are exact in any order.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin

from vicinal.arrays import AnyArray, Floats, Floats32
from vicinal.errors import InvalidInput
from vicinal.progress import Step
from vicinal.tabular import refuse_masked_and_sparse


def round_to_grid(rows: Floats, bits: int) -> tuple[Floats, Floats]:
    """Return rows of integers (n, d) proportional to `rows`, and the same before they are rounded.

    Every row is scaled by a power of two of its own, so that its largest magnitude is between
    2**(bits - 1) and 2**bits. A row of zeros stays zeros.
    """
    largest = np.abs(rows).max(axis=1, keepdims=True)
    _, exponent = np.frexp(largest)
    scaled = np.ldexp(rows, bits - exponent)
    return np.rint(scaled), scaled


def round_directions(directions: Floats) -> Floats:
    """Return unit column vectors (d, c), rounded so that :func:`project_exactly` is exact."""
    bits = _compute_factor_bits(len(directions))
    return np.asarray(np.ldexp(np.rint(np.ldexp(directions, bits)), -bits))


def project_exactly(rows: Floats, directions: Floats) -> Floats:
    """Return the exact dot products (n, c) of rows (n, d), rounded to integers, with directions.

    Each row of the result is scaled by a power of two of its own, which is not returned.
    `directions`, (d, c), come from :func:`round_directions`.
    """
    grid, _ = round_to_grid(rows, _compute_factor_bits(rows.shape[1]))
    return np.asarray(grid @ directions)


def scale_to_unit_length(rows: Floats) -> Floats32:
    """Return rows (n, c) divided by their Euclidean lengths; rows of zeros stay zeros.

    A length is that of the row on its grid (:func:`round_to_grid`), so that its square is exact.
    """
    grid, scaled = round_to_grid(rows, _compute_square_bits(rows.shape[1]))
    length = np.sqrt(_sum_squares(grid))
    length[length == 0] = 1.0
    return np.asarray(scaled / length[:, None], dtype=np.float32)


def _sum_squares(grid: Floats) -> Floats:
    """Return the exact sum of squares (n,) of every row of integers (n, c)."""
    return np.asarray(np.einsum("ij,ij->i", grid, grid))


def _compute_factor_bits(n_terms: int) -> int:
    """Return the number of bits of integers and directions for exact products of `n_terms` terms.

    Integers are below 2**bits, directions in units of 2**-bits. By Cauchy-Schwarz every partial sum
    is at most sqrt(n_terms) * 2**(2 * bits), plus rounding.
    """
    return (52 - math.ceil(math.log2(n_terms) / 2)) // 2


def _compute_square_bits(n_terms: int) -> int:
    """Return the number of bits of integers with which a sum of `n_terms` squares is exact."""
    return (53 - math.ceil(math.log2(n_terms))) // 2


Images = AnyArray
Vectors = Floats32
AnyImages = npt.ArrayLike | Sequence[npt.ArrayLike]


class FixedFeatures(TransformerMixin, BaseEstimator):
    """An extractor that needs no fit: the features of a row are a function of that row alone.

    `edition` is increased when any feature changes in any bit. A store refuses another edition than
    the one it was created with.
    """

    edition: int = 1

    def fit(self, rows: object = None, y: object = None) -> Self:  # noqa: ARG002
        """Return self, because no parameters are fitted."""
        return self

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: no fit is needed."""
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags


class FixedRowFeatures(FixedFeatures, ABC):
    """An extractor that computes features in blocks of rows and reports its progress."""

    def transform(self, rows: Any, progress: Step | None = None) -> Vectors:
        """Return the features of rows, float32 (n, d), in their order.

        `rows`: depending on the class, n texts, each a str; or images, grey (n, h, w) or colour
        (n, h, w, 3), integers or finite floats; for :class:`ImageFeatures` also a list of images of
        any sizes. `progress`: called after each block with its number of rows. Raises InvalidInput
        for other rows, and for an invalid parameter or model; MissingExtra if a package is not
        installed.
        """
        checked = self._check_rows(rows)
        blocks = self._compute_blocks(checked)
        n_rows = len(checked)
        # Written into one array, because memory for a second copy takes longer than extraction.
        vectors = np.zeros((0, 0), dtype=np.float32)
        n_finished = 0
        for block in blocks:
            if not n_finished:
                vectors = np.empty((n_rows, block.shape[1]), dtype=block.dtype)
            vectors[n_finished : n_finished + len(block)] = block
            n_finished += len(block)
            if progress is not None:
                progress(len(block))
        return vectors

    def _check_rows(self, rows: Any) -> Any:
        """Return the rows as a checked sequence; raise InvalidInput if a row is invalid."""
        return rows

    @abstractmethod
    def _compute_blocks(self, rows: Any) -> Iterable[Vectors]:
        """Yield the features (b, d) of consecutive blocks of rows."""


class FixedImageFeatures(FixedRowFeatures):
    """An extractor of images."""

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: the input is an array of images, not a matrix."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags


class LoadedOnce:
    """An extractor's network: loaded at its first use, and for new parameters; never pickled."""

    def _load_once(self, key: Hashable, load: Callable[[], Any]) -> Any:
        """Return the network; `load` returns it if it is new or its parameters, `key`, changed."""
        loaded: tuple[Hashable, Any] | None = getattr(self, "_loaded", None)
        if loaded is None or loaded[0] != key:
            loaded = (key, load())
            self._loaded = loaded
        return loaded[1]

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a copy or a pickle, without the loaded network."""
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_loaded"}  # type: ignore[attr-defined]


def extract_in_threads(
    images: Images, extract: Callable[[Images], Vectors], chunk_size: int, n_jobs: int | None
) -> Iterator[Vectors]:
    """Yield the features (b, d) of consecutive chunks of `chunk_size` images, in their order.

    `images`: (n, h, w) or (n, h, w, 3). `extract`: returns the features of a chunk; it is called in
    `n_jobs` threads (None for one, -1 for one per core).
    """
    from joblib import Parallel, delayed

    chunks = (images[start : start + chunk_size] for start in range(0, len(images), chunk_size))
    parallel = Parallel(n_jobs=n_jobs, backend="threading", return_as="generator")
    results: Iterator[Vectors] = parallel(delayed(extract)(chunk) for chunk in chunks)
    return results


def check_images(images: AnyImages, min_side: int, meaning: str, remedy: str) -> Images:
    """Return images (n, h, w) or (n, h, w, 3) of one size as an array of numbers.

    Raises InvalidInput for other input, and for a height or width below `min_side` pixels, with the
    `meaning` of the minimum, as "one block", and a `remedy`, as "choose a smaller 'block'".
    """
    pixels = convert_to_pixels(images, "The images must all have the same height and width.")
    if pixels.ndim not in (3, 4) or pixels.shape[3:] not in ((), (3,)):
        raise InvalidInput(
            "The images must be an array (n, h, w), or (n, h, w, 3) for colour. "
            f"Got {pixels.ndim} dimensions; put a single image into an array of one."
        )
    if len(pixels) == 0:
        raise InvalidInput("There must be at least one image. Got none.")
    if min(pixels.shape[1:3]) < min_side:
        raise InvalidInput(
            f"The images must be at least {min_side} pixels high and wide, which is {meaning}. "
            f"Got {pixels.shape[1]} by {pixels.shape[2]}; {remedy}."
        )
    return pixels


def convert_to_pixels(images: Any, shape_message: str) -> AnyArray:
    """Return one image or several as an array of integers or floats.

    Raises InvalidInput for other values; `shape_message`: the message for unequal sizes.
    """
    refuse_masked_and_sparse("images", images)
    try:
        pixels = np.asarray(images)
    except ValueError:
        raise InvalidInput(shape_message) from None
    if pixels.dtype.kind not in "uif":
        raise InvalidInput(f"The images must hold integers or floats. Got dtype {pixels.dtype}.")
    return pixels
