"""All engines return the same hits, bit for bit, and they are those of the definition."""

import ctypes
import mmap
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.errors import InvalidInput
from vicinal.neighbours.engines import ENGINES, _choice, get_engine, list_exact_engines
from vicinal.neighbours.kernels import Precision
from vicinal.neighbours.scan import HitBudget, NeighbourLists, ScanEngine, ScanRecords, TooManyHits

pytestmark = pytest.mark.quick

INT8 = Precision(4095, 127)
engines = pytest.mark.parametrize("name", ENGINES)


def require_engine(name):
    if name not in list_exact_engines():
        pytest.skip(f"the engine {name} is not to be had here")
    return get_engine(INT8, name)


def make_scene(seed, n, q, d, factor):
    """Return records with extreme coordinates, queries, and thresholds that pairs just reach."""
    rng = np.random.default_rng(seed)
    max_coordinate = min(127, int(4095 / d**0.5))
    x, queries = (
        rng.integers(-max_coordinate, max_coordinate + 1, (size, d)).astype(np.int8)
        for size in (n, q)
    )
    x[rng.random(n) < 0.1] = max_coordinate
    queries[rng.random(q) < 0.1] = -max_coordinate
    offsets = rng.integers(0, 1 << 20, n).astype(np.int32)
    similarities = factor * (queries.astype(np.int64) @ x.astype(np.int64).T) - offsets
    min_scores = similarities[np.arange(q), rng.integers(0, n, q)] + rng.integers(0, 2, q)
    min_scores[rng.random(q) < 0.1] = -(1 << 40)
    min_scores[rng.random(q) < 0.1] = 1 << 40
    return x, queries, offsets, similarities, min_scores


def check_hits(hits, inside, similarities, first=0):
    """Compare counts, row ids and similarities of hits with the pairs inside the radii."""
    query_indices, record_indices = np.nonzero(inside)
    expected = (
        np.bincount(query_indices, minlength=len(inside)),
        record_indices + first,
        similarities[query_indices, record_indices],
    )
    for actual, expected_column in zip(hits, expected, strict=True):
        np.testing.assert_array_equal(actual, expected_column)


def pad_rows(rows):
    return np.pad(rows, ((0, 0), (0, -rows.shape[1] % 4)))


@engines
@settings(deadline=None, max_examples=20)
@given(
    seed=st.integers(0, 2**20),
    n=st.integers(1, 200),
    q=st.integers(0, 20),
    d=st.integers(1, 300),
    factor=st.sampled_from([1, 2]),
    first=st.sampled_from([0, 1000]),
)
def test_every_engine_has_the_similarities_of_chosen_pairs(name, seed, n, q, d, factor, first):
    """Fails if a pair gets another's product, or pairs with other records are written."""
    worker = require_engine(name)
    x, queries, offsets, similarities, _ = make_scene(seed, n, max(q, 1), d, factor)
    queries, half = queries[:q], n // 2
    chosen = [np.sort(np.random.default_rng(j).permutation(n)[: j % 5]) for j in range(q)]
    rows = np.concatenate([np.zeros(0, np.int64), *chosen])
    starts = np.cumsum([0, *map(len, chosen)])
    expected = similarities[np.repeat(np.arange(q), np.diff(starts)), rows]
    values = np.full(len(rows), -1, np.int32)
    for block in (slice(0, half), slice(half, n)):
        records = ScanRecords(pad_rows(x)[block], offsets[block], np.zeros(n, np.int32)[block])
        lists = NeighbourLists(starts, (rows + first).astype(np.int32), values)
        worker.write_similarities(pad_rows(queries), factor, lists, records, first + block.start)
        is_written = rows < block.stop
        np.testing.assert_array_equal(values, np.where(is_written, expected, -1))


@engines
@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**20),
    n=st.integers(1, 200),
    q=st.integers(1, 150),
    d=st.integers(1, 300),
    factor=st.sampled_from([1, 2]),
    gathered=st.booleans(),
)
def test_every_engine_finds_what_the_definition_says(name, seed, n, q, d, factor, gathered):
    worker = require_engine(name)
    x, queries, offsets, similarities, min_scores = make_scene(seed, n, q, d, factor)
    records = ScanRecords(pad_rows(x), offsets, np.arange(n, dtype=np.int32) + 7)
    block = worker.prepare(pad_rows(queries), min_scores, factor)
    inside = similarities >= min_scores[:, None]
    chosen = None
    if gathered:
        chosen = np.flatnonzero(np.random.default_rng(seed).random(n) < 0.5).astype(np.int32)
        inside[:, np.setdiff1d(np.arange(n), chosen)] = False
    hits = worker.scan(block, records, HitBudget(n * q), chosen)
    check_hits(hits, inside, similarities, 7)


@engines
@pytest.mark.parametrize(("n", "q"), [(2047, 70), (2048, 70), (2049, 70), (9000, 70), (9000, 2)])
def test_engines_are_exact_across_their_own_tiles(name, n, q):
    """Fails if hits are lost at the end of a tile, or where room is made: one query has all."""
    worker = require_engine(name)
    x, queries, offsets, similarities, min_scores = make_scene(n, n, q, 64, 1)
    min_scores[0] = -(1 << 40)
    block = worker.prepare(queries, min_scores, 1)
    records = ScanRecords(x, offsets, np.arange(n, dtype=np.int32))
    hits = worker.scan(block, records, HitBudget(n * q))
    check_hits(hits, similarities >= min_scores[:, None], similarities)


@pytest.mark.parametrize("name", _choice.COMPILED)
@pytest.mark.parametrize("queries", [1, 40])
def test_a_compiled_engine_reads_nothing_beyond_its_records(name, queries):
    """Fails if memory that does not fit the block is handed to code that works with addresses."""
    worker = require_engine(name)
    x, query_rows, offsets, _, min_scores = make_scene(2, 50, queries, 16, 1)
    names = np.arange(50, dtype=np.int32)
    block = worker.prepare(query_rows, min_scores, 1)
    for bad in (
        ScanRecords(x[:, :12].copy(), offsets, names),
        ScanRecords(x[::2], offsets[::2], names[::2]),
        ScanRecords(np.asfortranarray(x), offsets, names),
        ScanRecords(x, offsets[:9], names),
        ScanRecords(x[:9], offsets, names),
        ScanRecords(x.astype(np.int16), offsets, names),
    ):
        with pytest.raises(InvalidInput, match="'records'"):
            worker.scan(block, bad, HitBudget(10**6))
    for chosen in ([50], [-1, 3]):
        indices = np.array(chosen, dtype=np.int32)
        with pytest.raises(InvalidInput, match="'records'"):
            worker.scan(block, ScanRecords(x, offsets, names), HitBudget(10**6), indices)


@engines
@pytest.mark.parametrize("queries", [1, 40])
def test_an_engine_stops_when_there_is_no_room(name, queries):
    worker = require_engine(name)
    x, query_rows, offsets, _, _ = make_scene(1, 500, queries, 16, 1)
    no_limit = np.full(queries, -(1 << 40))
    block = worker.prepare(query_rows, no_limit, 1)
    records = ScanRecords(x, offsets, np.arange(500, dtype=np.int32))
    with pytest.raises(TooManyHits):
        worker.scan(block, records, HitBudget(500 * queries - 1))
    assert worker.scan(block, records, HitBudget(500 * queries))[0].sum() == 500 * queries


class AlteredEngine(ScanEngine):
    """The float32 engine with altered hits."""

    def __init__(self, alter):
        self._engine = ENGINES["float32"]()
        self._alter = alter

    def prepare(self, queries, min_scores, factor):
        return self._engine.prepare(queries, min_scores, factor)

    def scan(self, block, records, room):
        return self._alter(*self._engine.scan(block, records, room))


class RepeatingEngine(AlteredEngine):
    """The float32 engine, which counts every hit twice: more hits than there are pairs."""

    def scan(self, block, records, room):
        super().scan(block, records, room)
        return super().scan(block, records, room)


FAULTS = {
    "a value": lambda counts, names, values: (counts, names, values + (names == 100)),
    "a name": lambda counts, names, values: (counts, names + 1, values),
    "a hit": lambda counts, names, values: (counts - (counts > 0), names[1:], values[1:]),
    "saturation": lambda counts, names, values: (counts, names, np.clip(values, -32768, 32767)),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_an_engine_that_is_not_exact_is_passed_over(fault, monkeypatch):
    assert not _choice.is_exact(AlteredEngine(fault))
    assert _choice.is_exact(AlteredEngine(lambda *hits: hits))
    monkeypatch.setitem(ENGINES, "vnni", lambda: AlteredEngine(fault))
    _choice._get_exact_engine.cache_clear()
    try:
        assert _choice._get_exact_engine("vnni") is None
        with pytest.raises(InvalidInput, match="not available"):
            get_engine(INT8, "vnni")
    finally:
        _choice._get_exact_engine.cache_clear()


def test_an_engine_with_more_hits_than_pairs_is_passed_over():
    """Fails if its error ends the choice of an engine, instead of leaving it to the others."""
    assert not _choice.is_exact(RepeatingEngine(lambda *hits: hits))


def test_float32_features_take_the_float32_engine_and_names_are_checked():
    assert get_engine(Precision()).name == "float32"
    compiled = [name for name in _choice.COMPILED if name in list_exact_engines()]
    assert get_engine(INT8).name in (compiled or ["float32"])
    assert "float32" in list_exact_engines()
    with pytest.raises(InvalidInput, match="'engine'"):
        get_engine(INT8, "abacus")


@pytest.mark.parametrize("bits", [8, 11])
def test_products_in_fewer_bits_are_refused(bits, monkeypatch):
    """Fails if the last engine serves without a proof: one record's place would change a vote.

    With 8 bits coordinates of int8 are exact, those of float32 features are not.
    """
    half = ENGINES["float32"]()

    def round_bits(rows):
        parts, powers = np.frexp(rows.astype(np.float32))
        return np.ldexp(np.rint(parts * 2**bits) / 2**bits, powers)

    monkeypatch.setattr(type(half), "multiply", lambda _, q, x: round_bits(q) @ round_bits(x).T)
    _choice._get_exact_engine.cache_clear()
    monkeypatch.setattr(_choice, "COMPILED", ())
    try:
        for precision in (INT8, Precision()):
            with pytest.raises(InvalidInput, match="not exact"):
                _choice._choose_fastest.__wrapped__(0) if precision is INT8 else get_engine(
                    precision
                )
    finally:
        _choice._get_exact_engine.cache_clear()


def delay(*hits):
    time.sleep(0.05)
    return hits


@pytest.mark.parametrize("slow", _choice.COMPILED)
def test_the_faster_of_two_compiled_engines_is_taken(slow, monkeypatch):
    """Fails if the order of the list decides, whatever the processor does with either."""
    workers = {name: ENGINES["float32"]() for name in _choice.COMPILED}
    workers[slow] = AlteredEngine(delay)
    monkeypatch.setattr(_choice, "_get_exact_engine", workers.get)
    taken = _choice._choose_fastest.__wrapped__(0)
    assert taken is next(workers[name] for name in workers if name != slow)


def test_no_tile_is_read_beyond_the_last_record():
    """Fails if a step of 64 features reads on where no record lies: the page there is no memory."""
    worker = require_engine("amx")
    page, width = mmap.PAGESIZE, 36
    memory = mmap.mmap(-1, 3 * page)
    libc = ctypes.CDLL(None, use_errno=True)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    n = 2 * page // width
    raw = np.frombuffer(memory, dtype=np.int8)
    x = raw[2 * page - n * width : 2 * page].reshape(n, width)
    assert libc.mprotect(ctypes.c_void_p(start + 2 * page), page, 0) == 0
    try:
        q = np.ones((40, width), dtype=np.int8)
        block = worker.prepare(q, np.zeros(40, dtype=np.int64), 1)
        records = ScanRecords(x, np.zeros(n, np.int32), np.arange(n, dtype=np.int32))
        counts, _, _ = worker.scan(block, records, HitBudget(10**6))
        assert (counts == n).all()
    finally:
        libc.mprotect(ctypes.c_void_p(start + 2 * page), page, 3)
