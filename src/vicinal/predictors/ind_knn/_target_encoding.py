"""From what people say about a record to the vector that it carries: a function of public things.

A vector has length at most one. Its first coordinate, where there is one, is the record's weight
`a`; the others are b times what is averaged, with a^2 + b^2 = 1. A record's vector depends on that
record alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from vicinal import _checks
from vicinal._arrays import Bools, Floats, Objects
from vicinal.errors import InvalidInput
from vicinal.mechanisms._record_vectors import RecordVectors
from vicinal.predictors.ind_knn._target_checks import TargetBounds, words

WEIGHT_SHARE = 1 / 3
"""a^2, the squared length of a record's weight: best where what is averaged is about half as large
as it may be."""

CENTRED_WEIGHT_SHARE = 0.1
"""The same where an answer is read off the sign of a sum."""

_SHORTEST = 2


@dataclass(frozen=True, slots=True, eq=False)
class TypicalScale:
    """Where numbers in -1..1 typically lie: their middle and how far from it.

    `centre`, `half`, float64 (p,): typical numbers z of a target have |z - centre| <= half. By
    default all are typical.
    """

    centre: Floats
    half: Floats

    @classmethod
    def of(cls, bounds: TargetBounds, typical: TargetBounds | None) -> Self:
        """Return the middle and half the width of typical ranges, by bounds that are -1 and 1."""
        if typical is None:
            return cls(np.zeros(len(bounds)), np.ones(len(bounds)))
        width = (bounds.high - bounds.low) / 2
        centre = (typical.low + typical.high) / 2 - (bounds.low + bounds.high) / 2
        return cls(centre / width, (typical.high - typical.low) / 2 / width)

    @property
    def length(self) -> float:
        """Length of the vectors at the ends of the typical ranges, where the longest have 1."""
        farthest = (1 + np.abs(self.centre)) / self.half
        square = WEIGHT_SHARE + (1 - WEIGHT_SHARE) * float(np.square(farthest).mean())
        return 1 / math.sqrt(square)

    @property
    def parts(self) -> tuple[float, float]:
        """(a, b) of a number's vector (a, b (z - centre) / half)."""
        a, b = parts(WEIGHT_SHARE)
        return self.length * a, self.length * b


def parts(weight_share: float) -> tuple[float, float]:
    """Return (a, b), the lengths of a record's weight and of what it says."""
    return math.sqrt(weight_share), math.sqrt(1 - weight_share)


def numbers(y: npt.ArrayLike | None, size: int, bounds: TargetBounds, *, log: bool) -> Floats:
    """Return targets on a scale from -1, the lower bound, to 1, (n, p); beyond them they are cut.

    Raises InvalidInput if they are not finite numbers, one for each record and target; no value is
    quoted.
    """
    if y is None:
        raise InvalidInput(
            "The 'y' parameter must hold a number for each record: fit requires y to be passed, "
            "but the target y is None."
        )
    table = np.asarray(y)
    if table.dtype.kind == "O":
        table = _as_floats(table)
    if bounds.names is None and table.ndim == 2 and table.shape[1] == 1:
        from sklearn.utils.validation import column_or_1d  # slow to load; few need it

        table = column_or_1d(table, warn=True)
    shape = (size,) if len(bounds) == 1 else (size, len(bounds))
    if table.dtype.kind not in "biuf" or table.shape not in {shape, (size, len(bounds))}:
        raise InvalidInput(f"The 'y' parameter must hold numbers in shape {shape}.")
    values = table.reshape(size, len(bounds)).astype(np.float64)
    if not np.isfinite(values).all():
        raise InvalidInput("The 'y' parameter must hold finite numbers: no NaN or infinity.")
    low, high = bounds.low, bounds.high
    values = np.clip(values, low, high)
    if log:
        values, low, high = np.log(values), np.log(low), np.log(high)
    return np.clip((values - low) / (high - low) * 2 - 1, -1.0, 1.0)


def _as_floats(table: Objects) -> Floats:
    try:
        return table.astype(np.float64)
    except (TypeError, ValueError):
        raise InvalidInput("The 'y' parameter must hold numbers.") from None


def thresholds(count: int) -> Floats:
    """Return `count` thresholds between -1 and 1, in the middles of as many equal intervals."""
    return (2 * np.arange(count) + 1) / count - 1


def number_vectors(values: Floats, n_thresholds: int | None, scale: TypicalScale) -> RecordVectors:
    """Return the vectors of records with numbers (n, p) in -1..1.

    Without thresholds v = (a, b (z - centre) / half / sqrt(p)). With J of them each number becomes
    the signs of its distances to them, over sqrt(J): they tell its share below each threshold, and
    their mean is the number itself, rounded to 2 / J.
    """
    a, b = scale.parts
    components = (values - scale.centre) / scale.half
    if n_thresholds is not None:
        above = values[:, :, None] >= thresholds(n_thresholds)
        components = np.where(above, 1.0, -1.0).reshape(len(values), -1) / math.sqrt(n_thresholds)
    components = components * (b / math.sqrt(values.shape[1]))
    return RecordVectors.of_rows(np.column_stack([np.full(len(values), a), components]))


def label_vectors(sets: Bools, tau: float | None) -> RecordVectors:
    """Return the vectors of records with several labels, bool (n, c).

    With `tau`: the 0/1 vector, cut to length sqrt(tau) and divided by it (the tau-approximation of
    ZYCW20). Without: 1 for every label that is there and -1 for the others, over sqrt(c).
    """
    count = sets.shape[1]
    if tau is None:
        a, b = parts(CENTRED_WEIGHT_SHARE)
        components = np.where(sets, b, -b) / math.sqrt(count)
    else:
        a, b = parts(WEIGHT_SHARE)
        sizes = np.maximum(sets.sum(axis=1, keepdims=True), 1)
        components = sets * (b / np.sqrt(np.maximum(sizes, tau)))
    return RecordVectors.of_rows(np.column_stack([np.full(len(sets), a), components]))


def public_vocabulary(
    texts: Iterable[str], n_words: int = 20_000, *, most_common: float = 0.3
) -> dict[str, float]:
    """Return the most frequent words of public texts, with their inverse document frequencies.

    Parameters
    ----------
    texts : iterable of str
        Public. Never the private texts: a word that only one of them has would leave.
    n_words : int
        How many words at most, of at least three letters.
    most_common : float
        Words in a larger share of the texts say nothing of one, and are left out.

    Returns
    -------
    dict of str to float
        log(texts / texts with the word) by word, the most frequent first.

    Raises
    ------
    InvalidInput
        If no words are left, or a text is none.

    Examples
    --------
    >>> public_vocabulary(["knee pain", "knee", "cough", "fever"], most_common=0.5)
    {'knee': 0.693..., 'pain': 1.386..., 'cough': 1.386..., 'fever': 1.386...}
    """
    size = _checks.integer("n_words", n_words, least=1)
    share = _checks.real("most_common", most_common, above=0, most=1)
    listed = list(texts)
    if not all(isinstance(text, str) for text in listed):
        raise InvalidInput("The 'texts' parameter must hold texts.")
    counts = Counter(word for text in listed for word in dict.fromkeys(words(text)))
    weight_of = {
        word: math.log(len(listed) / count)
        for word, count in counts.most_common()
        if len(word) > _SHORTEST and count <= share * len(listed) and count < len(listed)
    }
    if not weight_of:
        raise InvalidInput(
            "The 'texts' parameter must hold texts with words that not all of them have."
        )
    return dict(list(weight_of.items())[:size])


def keyword_vectors(
    documents: Iterable[object], vocabulary: dict[str, float], most: int
) -> RecordVectors:
    """Return unit vectors of documents: (1 + log count) times the public weight of each word.

    The `most` largest of a document count. One without a word of the vocabulary carries nothing.
    """
    place = {word: i for i, word in enumerate(vocabulary)}
    weights = np.array(list(vocabulary.values()))
    starts, coordinates, values = [0], [], []
    for document in documents:
        if not isinstance(document, str):
            raise InvalidInput("The 'y' parameter must hold a text for each record.")
        counts = Counter(place[word] for word in words(document) if word in place)
        places = np.fromiter(counts.keys(), dtype=np.int64, count=len(counts))
        tf = 1 + np.log(np.fromiter(counts.values(), dtype=np.float64, count=len(counts)))
        components = weights[places] * tf
        if len(components) > most:
            heaviest = np.lexsort((places, -components))[:most]  # of equal ones the first words
            places, components = places[heaviest], components[heaviest]
        components = components / (np.abs(components).max() if len(components) else 1.0)
        coordinates.append(places)
        values.append(components / (np.sqrt(np.square(components).sum()) or 1.0))
        starts.append(starts[-1] + len(places))
    return RecordVectors.of_entries(
        len(vocabulary),
        np.array(starts),
        np.concatenate([np.zeros(0, dtype=np.int64), *coordinates]),
        np.concatenate([np.zeros(0), *values]),
    )
