"""A draft fits its public table, and notes name everything that it loses or refuses."""

import datetime as dt
import json
import unicodedata
from decimal import Decimal, InvalidOperation
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.errors import InvalidInput
from vicinal.features import CsvForm, TableFeatures, TableSchema, draft_schema, rows_from_schema
from vicinal.features.arrow_columns import read_arrow_columns
from vicinal.features.table_features import check_table
from vicinal.targets.classes import encode_labels as class_indices

BERLIN, TOKYO = ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Tokyo")
DAY = dt.datetime.fromisoformat("2026-01-31")
RNG = np.random.default_rng(0)
SECONDS = RNG.integers(0, 86_400, 200).tolist()
MOMENTS = [dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=60 * s) for s in SECONDS]


def sample(*values, n=200):
    return [values[i] for i in np.random.default_rng(1).integers(0, len(values), n)]


def draft_column(values, file=None):
    """Return the draft of a column, and its notes; the draft must come back from JSON."""
    schema, notes = draft_schema({"x": values}, (), file or CsvForm())
    assert TableSchema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema
    return schema.to_dict()["columns"]["x"], " ".join(notes)


def make_schema(**columns):
    return {"format": "vicinal table schema", "version": 1, "columns": columns}


def read_codes(column, values, file=None):
    file = {"file": file} if file else {}
    return TableFeatures(make_schema(x=column) | file).codes({"x": values})[:, 0].tolist()


@pytest.mark.parametrize(
    "values",
    [
        sample("1.0", "0.0", ""), sample("-0.0", "0", "1e0", "0.0"), sample(1.0, 0.0, None),
        sample(-0.0, 1.0), pa.array(sample(0, 1, None)).cast(pa.decimal128(25, 2)),
        pa.array(sample(True, False, None)), sample("1", "1.0", "0"),
    ],
)  # fmt: skip
def test_flags_are_yes_and_no_however_numbers_are_written(values):
    column, notes = draft_column(values)
    assert column["kind"] == "yes_no"
    is_boolean = isinstance(values, pa.Array) and pa.types.is_boolean(values.type)
    assert ("a table with any other code is refused" in notes) == (not is_boolean)
    assert read_codes(column, ["1.0", "0.0", "-0.0", "1e0", "", "yes"])[:4] == [1, 0, 0, 1]


def format_times(form):
    return [(DAY + dt.timedelta(seconds=s)).strftime(form) for s in SECONDS]


TIMES = {
    "one day": ([DAY + dt.timedelta(seconds=s) for s in SECONDS], "date"),
    "one day as text": (format_times("%Y-%m-%d %H:%M:%S"), "date"),
    "AM and PM with a date": (format_times("%m/%d/%Y %I:%M %p"), "date"),
    "AM and PM": (format_times("%I:%M %p"), "time"), "clock": (format_times("%H:%M:%S"), "time"),
    "time64": ([(DAY + dt.timedelta(seconds=s)).time() for s in SECONDS], "time"),
    "time32": (pa.array(np.asarray(SECONDS, "int32"), pa.time32("s")), "time"),
    "short": ([f"00:{s % 60:02d}:30" for s in SECONDS], "duration"),
    "ISO": ([f"PT{s % 90}M" for s in SECONDS], "duration"),
    "pandas": ([f"{s % 9} days 0{s % 7}:00:00" for s in SECONDS], "duration"),
    "Python": ([str(dt.timedelta(seconds=5 * s)) for s in SECONDS], "duration"),
    "timedelta": ([dt.timedelta(seconds=s) for s in SECONDS], "duration"),
    "moments": (MOMENTS, "date"), "dates": ([m.date() for m in MOMENTS], "date"),
}  # fmt: skip


@pytest.mark.parametrize("name", TIMES)
def test_times_are_drafted_and_made_up(name):
    values, kind = TIMES[name]
    column, notes = draft_column(values)
    assert column["kind"] == kind
    assert column.get("time", False) == (kind == "date" and name != "dates")
    assert ("time of day counts" in notes) == column.get("time", False)
    schema = TableSchema.from_dict(draft_schema({"x": values})[0].to_dict())
    result = TableFeatures(schema).transform({"x": values})
    assert len(np.unique(result, axis=0)) > 40
    assert np.isfinite(TableFeatures(schema).transform(rows_from_schema(schema, 99, seed=0))).all()


def test_times_are_read_as_written():
    time, duration = {"kind": "time"}, {"kind": "duration", "low": 0, "high": 9e9}
    written = ["12:30 PM", "12:30 am", "00:15:30", "9 p.m.", "23:59:59.5", None]
    assert read_codes(time, written)[:5] == [45_000, 1800, 930, 75_600, 86_399.5]
    written = ["PT5M", "P1DT2H", "1 days 02:00:00", "-1 day, 23:59:00", "-00:01:00", "30:00:00"]
    assert read_codes(duration, written) == [300, 93_600, 93_600, -60, -60, 108_000]
    for kind, wrong in ((time, "24:00"), (time, "13:00 PM"), (duration, "P1M"), (duration, 5)):
        with pytest.raises(InvalidInput, match="values"):
            read_codes(kind, [wrong])
    moment = {"kind": "date", "low": "2026-01-01", "high": "2026-12-31", "time": True}
    rows = [{"x": "2026-02-01 06:00", "t": "6:00"}, {"x": None, "t": "18:00"}]  # as JSON has them
    extractor = TableFeatures(make_schema(x=moment, t=time))
    assert len(extractor.get_feature_names_out()) == 7
    result = extractor.transform(rows)
    np.testing.assert_allclose(result[0, [1, 2, 4, 5]], [1, 0, 1, 0], atol=1e-6)
    np.testing.assert_allclose(result[1], [0, 0, 0, 1, -1, 0, 0], atol=1e-6)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "+05:30"])
@pytest.mark.parametrize("time", [False, True])
def test_a_moment_is_the_same_as_text_and_as_timestamp(zone, time):
    column = {"kind": "date", "low": "2026-01-01", "high": "2026-12-31", "zone": zone, "time": time}
    zones = [(BERLIN, TOKYO)[i % 2] for i in range(200)]
    local = [moment.astimezone(p) for moment, p in zip(MOMENTS, zones, strict=True)]
    expected = read_codes(column, MOMENTS)
    for equal_values in (local, [moment.isoformat() for moment in local], pa.array(MOMENTS)):
        assert read_codes(column, equal_values) == expected
    own, _ = draft_column([moment.isoformat() for moment in local])
    assert own["zone"] == "UTC"
    without_zone = make_schema(x={"kind": "date", "low": "2026-01-01", "high": "2027-01-01"})
    (remark,) = check_table({"x": MOMENTS}, TableSchema.from_dict(without_zone))
    assert '"zone"' in remark.fix
    dated = DAY.date()
    for mixed in ([MOMENTS[0], DAY], [dated, MOMENTS[0]], [dated, 5], [dated, 2.5], [DAY, True]):
        with pytest.raises(InvalidInput, match="one type"):
            read_codes(column, mixed)
    assert read_codes({**column, "zone": "UTC"}, [dated, DAY, None, np.nan])[:2] == [20_484, 20_484]


@pytest.mark.parametrize(
    ("values", "missing", "possible"),
    [
        (sample("#N/A", "1.5", "2.5", "n/a", "<NA>"), ["#N/A", "<NA>", "n/a"], ""),
        (sample(".", "\\N", "unknown", "4", "77"), [".", "\\N", "unknown"], ""),
        (sample("red", "?", "-", "unknown"), None, "'?'"), (sample("a", "b", "?"), ["?"], ""),
        (sample("+", "-", "?"), ["?"], "'-'"), (sample("yes", "no", "unknown"), None, "'unknown'"),
        (sample(*range(18, 80), -999), [-999], ""), (sample(*RNG.normal(50, 9, 50), 9999.0),
        [9999], ""), (sample(0, 1, -9), [-9], ""), (sample("0", "1", "-9.0"), [-9], ""),
        (sample(*range(30), -1), [-1], ""), (sample(*range(18, 80), 99, 99), None, "99"),
        (sample(*(dt.date(2000, 1, i) for i in range(1, 32)), dt.date(1900, 1, 1)),
        ["1900-01-01"], ""), (sample("a", "b", "-9"), None, "'-9'"), (sample(-1, 0, 1), None, "-1"),
        (sample(*range(1, 6)), None, ""),
    ],
)  # fmt: skip
def test_values_for_missing_ones_are_declared_or_named(values, missing, possible):
    if missing is None and possible == "'?'":
        missing, possible = ["-", "?"], "'unknown'"
    column, notes = draft_column(values)
    if missing and isinstance(missing[0], str):
        assert sorted(column["missing_values"]) == missing
    else:
        assert column.get("missing_values") == missing
    assert ("count as missing" in notes) == bool(missing)
    assert (f"may stand for missing values: {possible}" in notes) == bool(possible)
    assert not column.get("log")


def test_missing_values_of_a_file_and_of_a_column():
    number = {"kind": "number", "low": 0, "high": 9, "missing_values": ["-", -9]}
    result = read_codes(number, ["-", "-9.0", "-9", "?", "5", "NA"], {"missing_values": ["?"]})
    assert np.isnan(result).tolist() == [True, True, True, True, False, True]
    category = {"kind": "category", "values": ["-", "x"], "other": False}
    result = read_codes(category, ["-", "?", "x"], {"missing_values": ["?", "-"]})
    assert result[0] == 0, "a declared value is one"
    assert np.isnan(result[1])
    german = {"missing_values": ["n.a."], "decimal": ",", "delimiter": ";"}
    assert np.isnan(read_codes(number, ["n,a,"], german)[0]), "read with points for commas"
    for wrong in ("?", [""], [True], [None]):
        for column, file in (({"missing_values": wrong}, None), ({}, {"missing_values": wrong})):
            with pytest.raises(InvalidInput, match='"missing_values"'):
                read_codes({**number, **column}, [1], file)
    with pytest.raises(InvalidInput, match="both"):
        read_codes({**category, "missing_values": ["x"]}, ["x"])
    with pytest.raises(InvalidInput, match="missing values"):
        read_codes({**number, "missing": False}, ["-"])


def test_codes_with_leading_zeros_are_categories():
    for values in ([f"{s % 40:05d}" for s in SECONDS], [f"E{s % 40}.9" for s in SECONDS]):
        assert draft_column([*values, None])[0]["kind"] == "category"
    column, notes = draft_column([f"{i:05d}" for i in range(200)])
    assert column["kind"] == "ignored"
    assert "identifiers" in notes
    assert "currency" not in notes


@pytest.mark.parametrize(
    ("labels", "classes", "indices"),
    [
        (["0.0", "1.0"], [0, 1], [0, 1]), (["0", "1.0"], [0, 1], [0, 1]),
        ([0.0, 1.0], [0, 1], [0, 1]), (["-0.0", "1.00"], [0, 1], [0, 1]),
        (["1.0", "1"], ["1", "1.0"], [1, 0]), (["1.5", "1"], [0, 1], None),
        (["07.0", "1"], [7, 1], None), (["1.0", "2"], ["1", "2"], [0, 1]),
    ],
)  # fmt: skip
def test_a_label_written_as_a_float_names_its_class(labels, classes, indices):
    schema = TableSchema.from_dict(make_schema(x={"kind": "yes_no"}))
    misfits = check_table({"x": [0, 1], "y": labels}, schema, ["y"], classes=classes)
    if indices is None:
        assert misfits
        with pytest.raises(InvalidInput, match="'y'"):
            class_indices(np.array(labels), 2, np.array(classes))
    else:
        assert misfits == []
        assert class_indices(np.array(labels), 2, np.array(classes)).tolist() == indices


# ------------------------------------------------------------------ any table


def sample_moments(rng, n):
    """Return moments of one day."""
    return [DAY + dt.timedelta(seconds=int(v)) for v in rng.integers(0, 86_400, n)]


def sample_far_moments(rng, n):
    """Return moments of 60 years."""
    return [DAY + dt.timedelta(seconds=int(v)) for v in rng.integers(-(10**9), 10**9, n)]


FAMILIES = {
    "flag": lambda rng, n: rng.integers(0, 2, n).tolist(),
    "truth": lambda rng, n: (rng.random(n) < 0.5).tolist(),
    "whole": lambda rng, n: rng.integers(-5, 60, n).tolist(),
    "large": lambda rng, n: (2**53 + rng.integers(0, 300, n)).tolist(),
    "decimal": lambda rng, n: [Decimal(int(v)) / 10**20 for v in rng.integers(1, 2**60, n)],
    "number": lambda rng, n: rng.normal(50, 9, n).tolist(),
    "skewed": lambda rng, n: rng.lognormal(0, 3, n).round(3).tolist(),
    "code": lambda rng, n: [f"{v:05d}" for v in rng.integers(0, 90, n)],
    "ICD": lambda rng, n: [f"E{v}.9" for v in rng.integers(0, 300, n)],
    "id": lambda rng, n: [f"p-{v}" for v in rng.permutation(n)],
    "prose": lambda rng, n: [f"patient {v} came again today" for v in rng.permutation(n)],
    "word": lambda rng, n: rng.choice(["red", "green", "blue", "None", "unknown"], n).tolist(),
    "European": lambda rng, n: [f"{v // 1000}.{v % 1000:03d},5" for v in rng.integers(0, 9999, n)],
    "percent": lambda rng, n: [f"{v}%" for v in rng.integers(0, 100, n)],
    "currency": lambda rng, n: [f"€ {v}" for v in rng.integers(0, 9999, n)],
    "limit": lambda rng, n: rng.choice(["<0.5", *map(str, range(40))], n).tolist(),
    "clock": lambda rng, n: [moment.time() for moment in sample_moments(rng, n)],
    "duration": lambda rng, n: [9 * (moment - DAY) for moment in sample_moments(rng, n)],
    "date": lambda rng, n: [moment.date() for moment in sample_far_moments(rng, n)],
    "moment": sample_far_moments,
    "one day": sample_moments,
    "zone": lambda rng, n: [
        moment.astimezone((BERLIN, TOKYO)[moment.second % 2])
        for moment in sample_far_moments(rng, n)
    ],
}


FILLERS = [
    None, "", "NA", "#N/A", "n/a", "<NA>", ".", "-", "?", "\\N", "none", "12:30 PM", "1e400", 99,
    999, -1, -9, 9999, -999, dt.date(1900, 1, 1), DAY.replace(1900, 1, 1), "99",
]  # fmt: skip


@st.composite
def any_column(draw, size):
    """Return cells of one family, typed or as text, with gaps and sentinels."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    family = draw(st.sampled_from(list(FAMILIES)))
    cells = FAMILIES[family](rng, size)
    as_text = draw(st.booleans())
    if as_text:
        style = draw(st.sampled_from(["plain", "float", "AM and PM", "German"]))
        cells = [write_as_text(cell, style) for cell in cells]
    if draw(st.booleans()):
        filler = draw(st.sampled_from(FILLERS))
        filler = str(filler) if as_text and filler is not None else filler
        for i in np.flatnonzero(rng.random(size) < draw(st.sampled_from([0.02, 0.2, 0.9]))):
            cells[i] = filler
    return cells, draw(st.sampled_from(["list", "array", "dictionary", "view", "object"]))


def write_as_text(cell, style):
    if style == "float" and isinstance(cell, int):
        return str(float(cell))
    if style == "AM and PM" and isinstance(cell, dt.time | dt.datetime):
        return cell.strftime("%I:%M %p" if isinstance(cell, dt.time) else "%Y-%m-%d %I:%M %p")
    if style == "German" and isinstance(cell, dt.date):
        return cell.strftime("%d.%m.%Y %H:%M")
    return str(cell)


def put_into_container(cells, container):
    if container == "object":
        return np.array([*cells, None], dtype=object)[:-1]
    if container == "list":
        return cells
    array = pa.array(cells)
    if container == "view" and pa.types.is_string(array.type):
        return array.cast(pa.string_view())
    return array.dictionary_encode() if container == "dictionary" else array


def parse_meaning(cell):
    """Return the value that a reader sees in a cell; cells of equal value may have one code."""
    if isinstance(cell, float | int | Decimal):
        return Decimal(cell)
    text = str(cell).strip()
    try:
        return Decimal(text)
    except InvalidOperation:
        return text.lower() if text.lower() in ("true", "false") else text


def check_draft_fits(data):
    size = data.draw(st.sampled_from([1, 2, 15, 40, 150]))
    columns = [data.draw(any_column(size)) for _ in range(data.draw(st.integers(1, 3)))]
    table = {}
    for i, (cells, container) in enumerate(columns):
        try:
            table[f"c{i}"] = put_into_container(cells, container)
        except (pa.ArrowException, TypeError):  # several types
            table[f"c{i}"] = cells
    schema, notes = draft_schema(table)
    assert TableSchema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema
    for misfit in check_table(table, schema):
        assert any(repr(misfit.column) in n and misfit.fault in n for n in notes), misfit
    for i, (cells, _) in enumerate(columns):
        own = " ".join(note for note in notes if note.startswith(f"'c{i}'"))
        assert f"c{i}" in schema.names or own, "a column that is left out has a note"
        if f"c{i}" in schema.names:
            assert_losses_are_noted(cells, f"c{i}", table, schema, own)


LOSSES = ("rounded", "other than the 60", "counts as its limit", "left out", "declared bounds")


def assert_losses_are_noted(cells, name, table, schema, notes):
    """Assert, by rules of the test itself, that codes or notes distinguish all values."""
    (column,) = (column for column in schema.columns if column.name == name)
    parsed = column.parse_cells(read_arrow_columns(table, [name])[0][name])
    readable_cells = [
        (cell, code)
        for cell, code in zip(cells, parsed.codes.tolist(), strict=True)
        if cell not in (None, "", "NA", "None")
    ]
    for cell, code in readable_cells:
        if np.isnan(code):
            named = str(cell)[:10].removesuffix(".0").replace("\\", "\\\\") in notes
            assert named or parsed.faults.any(), (cell, notes)
    meanings = {parse_meaning(cell) for cell, code in readable_cells if not np.isnan(code)}
    if len(meanings) > len({code for _, code in readable_cells if not np.isnan(code)}):
        assert any(loss in notes for loss in LOSSES), (cells, notes)


@settings(max_examples=100)
@given(data=st.data())
def test_a_draft_fits_any_table_or_its_notes_say_what_is_lost(data):
    check_draft_fits(data)


@pytest.mark.soak
@pytest.mark.slow
@settings(settings.get_profile("soak"), max_examples=3000)
@given(data=st.data())
def test_many_drafts_fit_their_tables(data):
    check_draft_fits(data)


# ------------------------------------------------------------------ doubtful readings

DOUBTFUL = {
    "points of thousands": (["12.345", "900", "1.234", "45.000"] * 20, "number", "separates thou"),
    "points, all decimals": (["12.345", "0.900", "1.234", "7.1"] * 20, "number", None),
    "points, but 4 digits": (["12.345", "1900", "1.234"] * 20, "number", None),
    "blanks": (["1 234", "900", "2 345"] * 20, "ignored", "separators of thousands"),
    "non-breaking": (["1\u00a0234", "900", "2\u00a0345"] * 20, "ignored", "separators"),
    "apostrophes": (["1'234", "900", "12'345"] * 20, "ignored", "separators of thousands"),
    "decimal commas": (["1,5", "2,5", "12,25"] * 20, "levels", '"decimal": ","'),
    "many decimal commas": ([f"{i},5" for i in range(99)], "ignored", '"decimal": ","'),
    "letters": (["1A", "2B", "3C"] * 20, "levels", "read as ordered"),
    "letter behind": (["101a", "102b", "99c"] * 20, "levels", "read as ordered"),
    "pairs": (["1-202", "2-305", "3-101"] * 20, "levels", "read as ordered"),
    "bands": (["6q23", "7p11", "8q1"] * 20, "levels", "read as ordered"),
    "ages": (["<10", "10-24", "25-54", "55+"] * 20, "levels", None),
    "speeds": (["1-9km/h", "10-24", "25-39", ">=55"] * 20, "levels", None),
    "days": ([f"202601{i:02d}" for i in range(1, 29)], "date", "read as dates"),
    "days as numbers": ([20260100 + i for i in range(1, 29)], "date", "read as dates"),
    "days as floats": ([20260101.0, 20260102.0, 20260103, 20260104, 20260105, None] * 9,
                       "number", "look like dates"),
    "no days": ([20260100 + i for i in range(1, 99)] * 5, "whole", None),
    "None": (["red", "None", "blue"] * 20, "category", "counted as missing: 'None'"),
    "NA": (["1A", "NA", "3C", "2B"] * 20, "levels", "counted as missing: 'NA'"),
    "NA of numbers": (["1", "NA", "3", "2"] * 20, "whole", None),
    "rare None": (["red", "blue"] * 60 + ["None"], "category", None),
    "capitals": (["red", "Red", "blue"] * 20, "category", "differ only in spelling"),
    "close": ([1e-305, 2e-305, 3e-305] * 20, "ignored", "too close together"),
    "equal numbers": (["1", "1.0"] * 20, "ignored", "all its values are equal"),
    "ids": (list(map(float, range(200, 300))), "ignored", "every row has a different number"),
    "ids, one missing": ([*map(float, range(200, 300)), None], "ignored", "a different number"),
}  # fmt: skip


@pytest.mark.parametrize("name", DOUBTFUL)
def test_doubtful_readings_have_a_note(name):
    values, kind, message = DOUBTFUL[name]
    column, notes = draft_column(values)
    assert column["kind"] == kind
    assert "read as no and yes" not in notes
    if message is None:
        assert notes == ""
    else:
        assert message in notes


def test_points_of_thousands_beside_decimal_commas_are_the_reason():
    values = [f"{i}.{j:03d}" for i in range(1, 20) for j in range(0, 999, 99)] + ["900"]
    for some in (values, values[:9] * 9):
        column, notes = draft_column(some, CsvForm(";", ","))
        assert column["kind"] == "ignored"
        assert "separators of thousands" in notes
        assert "1234,5" in notes


def test_days_written_as_digits_are_one_in_every_type():
    numbers = [20251228, 20251231, 20260101, 20260131, 20260228]
    column, _ = draft_column(numbers * 9)
    assert column == draft_column([str(number) for number in numbers] * 9)[0]
    days = ["2025-12-28", "2025-12-31", "2026-01-01", "2026-01-31", "2026-02-28"]
    for equal_values in (numbers, list(map(str, numbers))):
        assert read_codes(column, equal_values) == read_codes(column, days)


def test_ordered_categories_of_pandas_keep_their_order():
    pandas = pytest.importorskip("pandas")
    order = ["low", "middle", "high"]
    values = pandas.Categorical(order * 20, order, ordered=True)
    column, notes = draft_column(pa.array(values))
    assert (column["kind"], column["values"], notes) == ("levels", order, "")
    for table in (pandas.DataFrame({"x": values}), {"x": values}, {"x": pandas.Series(values)}):
        assert draft_schema(table)[0].to_dict()["columns"]["x"] == column
    categories = [f"w{i}" for i in range(99)]
    assert "order" in draft_column(pandas.Categorical(categories * 9, categories, ordered=True))[1]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["M", "F", "m"], "2 rows hold declared values in another spelling"),
        ([" f ", "m", "M "], "1 row holds declared values in another spelling"),
        (["man", "woman", "m"], "2 rows hold values that the schema does not declare"),
        (["m", "f", "x"], ""),
        (["M", "F", "x"], "so the column is lost."),
    ],
)
def test_a_check_reports_values_that_become_other(values, message):
    """It fails only if spelling alone makes every value of the column another."""
    column = {"kind": "category", "values": ["f", "m"]}
    misfits = check_table({"x": values}, TableSchema.from_dict(make_schema(x=column)))
    report = " ".join(map(str, misfits))
    assert message in report
    assert bool(message) == ('They count as "other"' in report)
    assert any(misfit.stops for misfit in misfits) == ("lost" in message)


def test_a_column_without_a_name_is_named_in_words():
    _, notes = draft_schema({"": [1] * 9, "x": [1, 2, 3] * 3})
    assert "'' (the column without a name) is" in notes[0]


@pytest.mark.parametrize("second", ["age", "a\u0301ge"])
def test_two_columns_of_one_name_are_refused(second):
    """Names are compared in composed form."""
    first = unicodedata.normalize("NFC", second)
    table = pa.Table.from_arrays([pa.array([31, 45]), pa.array([1.5, 2.5])], names=[first, second])
    with pytest.raises(InvalidInput, match="two columns with the same name"):
        draft_schema(table)


def test_a_repeated_column_is_a_misfit():
    schema, _ = draft_schema({"age": [20, 20, 34, 41, 57] * 20})
    table = pa.Table.from_arrays([pa.array([31]), pa.array([45])], names=["age", "age"])
    misfits = check_table(table, schema)
    assert [(misfit.column, misfit.stops) for misfit in misfits] == [("age", True)]


# ------------------------------------------------------------------ rows sampled from a schema


def sample_patients(size, seed=0):
    rng = np.random.default_rng(seed)
    ill = rng.random(size) < 0.3
    return pa.table({
        "age": rng.normal(50 + 20 * ill, 8).round(), "dose": rng.choice([1, 2, 4], size),
        "sex": rng.choice(["f", "m"], size), "ward": np.where(ill, "A", "B"),
        "weight": pa.array(rng.normal(70, 9, size), mask=rng.random(size) < 0.2),
    })  # fmt: skip


def test_sampled_rows_are_as_declared_and_repeatable():
    schema, _ = draft_schema(sample_patients(3000, 7))
    sampled = rows_from_schema(schema, 4000, seed=1)
    assert sampled.equals(rows_from_schema(schema, 4000, seed=1))
    assert not sampled.equals(rows_from_schema(schema, 4000))
    compute_features = TableFeatures(schema).transform
    features, real = compute_features(sampled), compute_features(sample_patients(4000))
    assert np.abs(features.mean(axis=0) - real.mean(axis=0)).max() < 0.3
    assert abs(sampled["weight"].null_count / 4000 - 0.2) < 0.05
    with pytest.raises(InvalidInput, match="size"):
        rows_from_schema(schema, 0)


def test_every_kind_samples_cells_that_read_as_declared():
    schema = TableSchema.from_dict(make_schema(
        a={"kind": "number", "low": 0, "center": 3.0, "spread": 1.0, "log": True},
        b={"kind": "whole", "low": -3, "high": 3}, c={"kind": "yes_no"},
        d={"kind": "date", "low": "2020-01-01", "high": "2021-01-01"},
        e={"kind": "category", "values": [1, 2]}, f={"kind": "category", "values": ["x"]},
        g={"kind": "levels", "values": ["x", "y"], "shares": [1, 0]},
        h={"kind": "number", "center": -1e6, "spread": 1e3, "missing": 0.5},
    ))  # fmt: skip
    sampled = rows_from_schema(schema, 500, seed=0)
    assert np.isfinite(TableFeatures(schema).transform(sampled)).all()
    assert set(sampled["g"].to_pylist()) == {"x"}
    assert set(sampled["f"].to_pylist()) == {"x", "(other)"}
