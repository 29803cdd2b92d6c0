"""What extractors share that learn nothing: no fit, one row after the other, networks on demand."""

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

# ------------------------------------------------ exact projections and norms of rows


def on_grid(rows: Floats, bits: int) -> tuple[Floats, Floats]:
    """Return rows (n, d) as integers of at most 2**bits in size, rounded and before rounding.

    The unit is a power of two, found for each row from its own largest entry, which comes to at
    least 2**(bits - 1). A row of zeros stays zeros.
    """
    largest = np.abs(rows).max(axis=1, keepdims=True)
    _, exponent = np.frexp(largest)
    scaled = np.ldexp(rows, bits - exponent)
    return np.rint(scaled), scaled


def rounded_directions(directions: Floats) -> Floats:
    """Return unit column vectors (d, c) on the grid that `projected` asks for."""
    bits = _product_bits(len(directions))
    return np.asarray(np.ldexp(np.rint(np.ldexp(directions, bits)), -bits))


def projected(rows: Floats, directions: Floats) -> Floats:
    """Return the exact products (n, c) of rows, each up to a factor of its own, and directions.

    Rows (n, d) are rounded on their own grids first; directions (d, c) are those of
    `rounded_directions`. The unit is a power of two that differs from row to row.
    """
    grid, _ = on_grid(rows, _product_bits(rows.shape[1]))
    return np.asarray(grid @ directions)


def unit_rows(rows: Floats) -> Floats32:
    """Return rows (n, c) scaled to Euclidean length one, and zeros where a row is zeros."""
    grid, scaled = on_grid(rows, _square_bits(rows.shape[1]))
    length = np.sqrt(_sum_squares(grid))
    length[length == 0] = 1.0
    return np.asarray(scaled / length[:, None], dtype=np.float32)


def _sum_squares(grid: Floats) -> Floats:
    """Return the exact sum of squares (n,) of every row on its grid (n, c)."""
    return np.asarray(np.einsum("ij,ij->i", grid, grid))


def _product_bits(width: int) -> int:
    return (52 - math.ceil(math.log2(width) / 2)) // 2


def _square_bits(width: int) -> int:
    return (53 - math.ceil(math.log2(width))) // 2


Images = AnyArray
Vectors = Floats32
AnyImages = npt.ArrayLike | Sequence[npt.ArrayLike]

Network = TypeVar("Network")


class FixedFeatures(TransformerMixin, BaseEstimator):
    """An extractor that needs no fit: the features of a row are a function of that row alone.

    `edition` is raised whenever any feature changes in any bit: a store refuses another one than
    it was made with.
    """

    edition: int = 1

    def fit(self, rows: object = None, y: object = None) -> Self:  # noqa: ARG002
        """Return self; there is nothing to learn."""
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags


class FixedRowFeatures(FixedFeatures, ABC):
    """An extractor that works through rows part by part, and can say how far it is."""

    def transform(self, rows: Any, progress: Step | None = None) -> Vectors:
        """Return the features of rows.

        Parameters
        ----------
        rows
            As the class takes them: n texts, each a str; or images, grey (n, h, w) or colour
            (n, h, w, 3), integers or finite floats, for :class:`ImageFeatures` also a list of
            images of any sizes.
        progress
            Called with the number of rows just finished, several times in a run.

        Returns
        -------
        array (n, d) of float32
            In the order of the rows; those of images are finite.

        Raises
        ------
        InvalidInput
            If there is no row, or one is anything else, or too small; if a parameter, or the model
            that it names, is not usable.
        MissingExtra
            If the class needs an extra, or a package of weights, that is not installed.
        """
        checked = self._checked(rows)
        return in_order(self._parts(checked), progress, checked)

    def _checked(self, rows: Any) -> Any:
        """Return rows that can be counted, or refuse them."""
        return rows

    @abstractmethod
    def _parts(self, rows: Any) -> Iterable[Vectors]:
        """Yield the features of consecutive rows."""


class FixedImageFeatures(FixedRowFeatures):
    """An extractor of images."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags


class LoadedOnce(Generic[Network]):
    """A network that is loaded when it is first needed, and anew when its parameters change."""

    def _loaded_once(self, key: Hashable, load: Callable[[], Network]) -> Network:
        known: tuple[Hashable, Network] | None = getattr(self, "_loaded", None)
        if known is None or known[0] != key:
            known = (key, load())
            self._loaded = known
        return known[1]

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_loaded"}  # type: ignore[attr-defined]


def in_order(parts: Iterable[Vectors], progress: Step | None, rows: Any) -> Vectors:
    """Return the parts of consecutive `rows` as one array (n, d), telling `progress` their lengths.

    Each is written where it belongs when it comes: new pages of memory take longer than features.
    """
    vectors, done = np.zeros((0, 0), dtype=np.float32), 0
    for part in parts:
        if not done:
            vectors = np.empty((len(rows), part.shape[1]), dtype=part.dtype)
        vectors[done : done + len(part)] = part
        done += len(part)
        if progress is not None:
            progress(len(part))
    return vectors


def in_threads(
    rows: Images, work: Callable[[Images], Vectors], size: int, n_jobs: int | None
) -> Iterator[Vectors]:
    """Yield what `work` makes of consecutive chunks of `size` rows, in `n_jobs` threads."""
    from joblib import Parallel, delayed

    chunks = (rows[start : start + size] for start in range(0, len(rows), size))
    parallel = Parallel(n_jobs=n_jobs, backend="threading", return_as="generator")
    results: Iterator[Vectors] = parallel(delayed(work)(chunk) for chunk in chunks)
    return results


def image_array(images: AnyImages, smallest: int, hint: str) -> Images:
    """Return images (n, h, w) or (n, h, w, 3) of one size as numbers, or say what is wrong.

    `hint` says what the least height and width stand for, and which parameter makes it fewer: "one
    block; choose ...".
    """
    refuse_masked("images", images)
    try:
        pixels = np.asarray(images)
    except ValueError:
        raise InvalidInput("The images must all have the same height and width.") from None
    if pixels.dtype.kind not in "uif":
        raise InvalidInput(f"The images must hold integers or floats. Got dtype {pixels.dtype}.")
    if pixels.ndim not in (3, 4) or pixels.shape[3:] not in ((), (3,)):
        raise InvalidInput(
            "The images must be an array (n, h, w), or (n, h, w, 3) for colour. "
            f"Got {pixels.ndim} dimensions; put a single image into an array of one."
        )
    if len(pixels) == 0:
        raise InvalidInput("There must be at least one image. Got none.")
    if min(pixels.shape[1:3]) < smallest:
        limit, fix = hint.split("; ")
        raise InvalidInput(
            f"The images must be at least {smallest} pixels high and wide, which is {limit}. "
            f"Got {pixels.shape[1]} by {pixels.shape[2]}; {fix}."
        )
    return pixels
