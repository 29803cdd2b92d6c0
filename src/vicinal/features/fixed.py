"""Base classes and exact arithmetic of extractors that need no fit and process rows one by one.

Row products and norms are sums of integers below 2**53, so float64 sums are exact in any order.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin

from vicinal.arrays import AnyArray, Floats, Floats32
from vicinal.errors import InvalidInput
from vicinal.progress import Step
from vicinal.tabular import refuse_masked


def round_to_grid(rows: Floats, bits: int) -> tuple[Floats, Floats]:
    """Return rows (n, d) as integers of magnitude at most 2**bits, rounded and before rounding.

    The unit is a power of two for each row, so that its largest magnitude is at least
    2**(bits - 1) units. A row of zeros stays zeros.
    """
    largest = np.abs(rows).max(axis=1, keepdims=True)
    _, exponent = np.frexp(largest)
    scaled = np.ldexp(rows, bits - exponent)
    return np.rint(scaled), scaled


def round_directions(directions: Floats) -> Floats:
    """Return unit column vectors (d, c) on the grid that :func:`project_exactly` requires."""
    bits = _count_product_bits(len(directions))
    return np.asarray(np.ldexp(np.rint(np.ldexp(directions, bits)), -bits))


def project_exactly(rows: Floats, directions: Floats) -> Floats:
    """Return the exact products (n, c) of rounded rows (n, d) and directions (d, c).

    Each row is in a unit of its own, a power of two. `directions` come from
    :func:`round_directions`.
    """
    grid, _ = round_to_grid(rows, _count_product_bits(rows.shape[1]))
    return np.asarray(grid @ directions)


def scale_to_unit_length(rows: Floats) -> Floats32:
    """Return rows (n, c) scaled to Euclidean length 1; rows of zeros stay zeros."""
    grid, scaled = round_to_grid(rows, _count_square_bits(rows.shape[1]))
    length = np.sqrt(_sum_squares(grid))
    length[length == 0] = 1.0
    return np.asarray(scaled / length[:, None], dtype=np.float32)


def _sum_squares(grid: Floats) -> Floats:
    """Return the exact sum of squares (n,) of every row of integers (n, c)."""
    return np.asarray(np.einsum("ij,ij->i", grid, grid))


def _count_product_bits(width: int) -> int:
    """Return the bits of rows and unit directions for which products of `width` terms are exact.

    By Cauchy-Schwarz every partial sum is at most sqrt(width) * 2**(2 * bits), plus rounding.
    """
    return (52 - math.ceil(math.log2(width) / 2)) // 2


def _count_square_bits(width: int) -> int:
    """Return the bits of rows for which sums of `width` squares are at most 2**53, so exact."""
    return (53 - math.ceil(math.log2(width))) // 2


Images = AnyArray
Vectors = Floats32
AnyImages = npt.ArrayLike | Sequence[npt.ArrayLike]

Network = TypeVar("Network")


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
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags


class FixedRowFeatures(FixedFeatures, ABC):
    """An extractor that computes features in blocks of rows and reports its progress."""

    def transform(self, rows: Any, progress: Step | None = None) -> Vectors:
        """Return the features of rows.

        Parameters
        ----------
        rows
            Depending on the class: n texts, each a str; or images, grey (n, h, w) or colour
            (n, h, w, 3), integers or finite floats; for :class:`ImageFeatures` also a list of
            images of any sizes.
        progress
            Called after each block with its number of rows.

        Returns
        -------
        array (n, d) of float32
            In the order of the rows; those of images are finite.

        Raises
        ------
        InvalidInput
            If there is no row, or a row has another type or is too small; if a parameter or the
            model that it names is invalid.
        MissingExtra
            If the class needs an extra, or a package of weights, that is not installed.
        """
        checked = self._check_rows(rows)
        return _join_blocks(self._compute_blocks(checked), progress, len(checked))

    def _check_rows(self, rows: Any) -> Any:
        """Return valid rows as a sequence; raise InvalidInput for others."""
        return rows

    @abstractmethod
    def _compute_blocks(self, rows: Any) -> Iterable[Vectors]:
        """Yield the features (b, d) of consecutive blocks of rows."""


class FixedImageFeatures(FixedRowFeatures):
    """An extractor of images."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags


class LoadedOnce(Generic[Network]):
    """An extractor's network, loaded at its first use and again when its parameters change.

    The loaded network is not pickled.
    """

    def _load_once(self, key: Hashable, load: Callable[[], Network]) -> Network:
        """Return the network of the parameters `key`; `load` is called if it is not loaded."""
        loaded: tuple[Hashable, Network] | None = getattr(self, "_loaded", None)
        if loaded is None or loaded[0] != key:
            loaded = (key, load())
            self._loaded = loaded
        return loaded[1]

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_loaded"}  # type: ignore[attr-defined]


def _join_blocks(blocks: Iterable[Vectors], progress: Step | None, n_rows: int) -> Vectors:
    """Return consecutive blocks of features as one array (n_rows, d).

    Blocks are written into the array as they arrive, because allocating memory for a second copy
    takes longer than extraction. `progress` is called with the length of each.
    """
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


def in_threads(
    rows: Images, extract: Callable[[Images], Vectors], size: int, n_jobs: int | None
) -> Iterator[Vectors]:
    """Yield the features of consecutive chunks of `size` rows, computed in `n_jobs` threads."""
    from joblib import Parallel, delayed

    chunks = (rows[start : start + size] for start in range(0, len(rows), size))
    parallel = Parallel(n_jobs=n_jobs, backend="threading", return_as="generator")
    results: Iterator[Vectors] = parallel(delayed(extract)(chunk) for chunk in chunks)
    return results


def image_array(images: AnyImages, smallest: int, hint: str) -> Images:
    """Return images (n, h, w) or (n, h, w, 3) of one size as an array of numbers.

    `smallest`: minimal height and width in pixels. `hint`: the meaning of this minimum and a
    remedy, for the message, as in "one block; choose ...". Raises InvalidInput for other input.
    """
    pixels = read_pixels(images, "The images must all have the same height and width.")
    if pixels.ndim not in (3, 4) or pixels.shape[3:] not in ((), (3,)):
        raise InvalidInput(
            "The images must be an array (n, h, w), or (n, h, w, 3) for colour. "
            f"Got {pixels.ndim} dimensions; put a single image into an array of one."
        )
    if len(pixels) == 0:
        raise InvalidInput("There must be at least one image. Got none.")
    if min(pixels.shape[1:3]) < smallest:
        meaning, remedy = hint.split("; ")
        raise InvalidInput(
            f"The images must be at least {smallest} pixels high and wide, which is {meaning}. "
            f"Got {pixels.shape[1]} by {pixels.shape[2]}; {remedy}."
        )
    return pixels


def read_pixels(image: Any, problem: str) -> AnyArray:
    """Return one image or several as an array of integers or floats.

    Raises InvalidInput, without pixels, for other values; for rows of unequal lengths the message
    is `problem`.
    """
    refuse_masked("images", image)
    try:
        pixels = np.asarray(image)
    except ValueError:
        raise InvalidInput(problem) from None
    if pixels.dtype.kind not in "uif":
        raise InvalidInput(f"The images must hold integers or floats. Got dtype {pixels.dtype}.")
    return pixels
