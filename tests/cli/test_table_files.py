"""Files as people have them: variants of one table, read at first try or refused with the way on.

The table is nassCDS (crashes, US, public), a few hundred rows of it; names and values that are no
ASCII, dates and a laboratory value are put in, as tables in Europe have them.
"""

import csv
import datetime as dt
import json
import os
import re
import sys
import zipfile
from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from command_line import invoked as run
from command_line import option_words
from vicinal.cli.main import app
from vicinal.datasets import load_table
from vicinal.datasets.tables import detect_csv_format
from vicinal.features import CsvForm, TableFeatures, TableSchema

SHARED = Path(os.environ.get("VICINAL_SHARED", Path(__file__).parents[3] / "shared"))
TABLE = SHARED / "data" / "tables" / "nassCDS.parquet"

SIZE = 300
PLAIN = CsvForm()


def write_csv(path, rows, form=PLAIN, date="%Y-%m-%d", end="\n"):
    """Write rows as the programs of this form do."""

    def cell(value):
        if value is None:
            return ""
        if isinstance(value, dt.date):
            return value.strftime(date)
        return str(value).replace(".", form.decimal) if isinstance(value, float) else str(value)

    with path.open("w", newline="", encoding=form.encoding) as file:
        writer = csv.writer(file, delimiter=form.delimiter, lineterminator=end)
        writer.writerow(rows[0])
        writer.writerows([cell(value) for value in row.values()] for row in rows)


OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
BOOK = '<workbook><sheets><sheet name="a" sheetId="1" r:id="r0"/></sheets></workbook>'
STYLES = '<cellXfs count="2"><xf numFmtId="0"/><xf numFmtId="14" applyNumberFormat="1"/></cellXfs>'


def relate(*targets):
    """Return the XML that names other files of a workbook, as pairs of their kind and name."""
    listed = "".join(
        f'<Relationship Id="r{i}" Type="{OFFICE}/{kind}" Target="{name}"/>'
        for i, (kind, name) in enumerate(targets)
    )
    return f"<Relationships>{listed}</Relationships>"


def write_xlsx(path, rows):
    """Write the smallest workbook that there is, with numbers, texts, truth values and dates."""

    def cell(value):
        if value is None:
            return "<c/>"
        if isinstance(value, bool):
            return f'<c t="b"><v>{value:d}</v></c>'
        if isinstance(value, dt.date):
            return f'<c s="1"><v>{(value - dt.date(1899, 12, 30)).days}</v></c>'
        if isinstance(value, str):
            return f'<c t="inlineStr"><is><t>{escape(value)}</t></is></c>'
        return f"<c><v>{value}</v></c>"

    lines = [list(rows[0]), *(row.values() for row in rows)]
    cells = "".join(f"<row>{''.join(map(cell, line))}</row>" for line in lines)
    with zipfile.ZipFile(path, "w") as book:
        book.writestr("_rels/.rels", relate(("officeDocument", "xl/workbook.xml")))
        book.writestr("xl/workbook.xml", BOOK)
        files = relate(("worksheet", "sheet.xml"), ("styles", "styles.xml"))
        book.writestr("xl/_rels/workbook.xml.rels", files)
        book.writestr("xl/styles.xml", f"<styleSheet>{STYLES}</styleSheet>")
        book.writestr("xl/sheet.xml", f"<worksheet><sheetData>{cells}</sheetData></worksheet>")


def write_parquet(path, rows):
    parquet.write_table(pa.Table.from_pylist(rows), path)


@pytest.fixture(scope="module")
def people():
    """Return public and private rows, each a list of dicts."""
    if not TABLE.is_file():
        pytest.skip(f"needs the table {TABLE}")
    table = parquet.read_table(TABLE).slice(0, 2 * SIZE)
    rng = np.random.default_rng(0)
    values = rng.lognormal(0, 1, len(table)).round(2)
    rows = [
        {
            "dvcat": row["dvcat"], "Größe": round(row["weight"], 3), "sex": row["sex"],
            "age": row["ageOFocc"], "yearVeh": None if i % 9 == 0 else row["yearVeh"],
            "Rolle": {"driver": "Fahrer"}.get(row["occRole"], "Rücksitz"), "crp": float(value),
            "seen": dt.date(row["yearacc"], 1, 1) + dt.timedelta(i % 300),
            "dead": row["dead"], "case": row["caseid"].replace(":", "-"),
        }
        for i, (row, value) in enumerate(zip(table.to_pylist(), values, strict=True))
    ]  # fmt: skip
    for row in rows[::17]:
        row["dead"] = "dead"
    return rows[:SIZE], rows[SIZE:]


def changed(rows, **of_columns):
    return [
        {**row, **{name: change(row[name]) for name, change in of_columns.items()}} for row in rows
    ]


EUROPE = CsvForm(";", ",", "cp1252")
GERMAN = "%d.%m.%Y"
READ = {
    "commas": (".csv", write_csv, {}),
    "semicolons": (".csv", write_csv, {"form": CsvForm(";")}),
    "semicolons, decimal comma": (".csv", write_csv, {"form": CsvForm(";", ",", "utf-8-sig")}),
    "Excel in Europe": (".csv", write_csv, {"form": EUROPE, "date": GERMAN, "end": "\r\n"}),
    "Latin-1": (".csv", write_csv, {"form": CsvForm(encoding="latin-1")}),
    "tabs": (".tsv", write_csv, {"form": CsvForm("\t")}),
    "Excel's Unicode text": (".txt", write_csv, {"form": CsvForm("\t", ",", "utf-16")}),
    "dates 31.12.1997": (".csv", write_csv, {"date": GERMAN}),
    "dates 12/31/1997": (".csv", write_csv, {"date": "%m/%d/%Y"}),
    "Parquet": (".parquet", write_parquet, {}),
    "Excel": (".xlsx", write_xlsx, {}),
}


def draft(folder, name, public, private, **more):
    """Write two files, draft a schema from the public one, and return paths and what was said."""
    suffix, write, options = READ[name]
    if suffix == ".xlsx":
        pytest.importorskip("python_calamine")
    paths = [folder / f"{which}{suffix}" for which in ("public", "private")]
    for path, rows in zip(paths, (public, private), strict=True):
        write(path, rows, **options | more)
    out = folder / "schema.json"
    said = run("schema", paths[0], "--label", "dead", "--subject", "case", "-o", out).stderr
    return *paths, out, said


def init(folder, data, schema, **options):
    """Return the result of `init` on a table, by the schema, without a private model."""
    given = {"data": data, "features": "table", "schema": schema, "model_share": 0, "queries": 400}
    return run("init", folder / "store", "-q", **{**given, **options})


def read(path, schema):
    declared = TableSchema.load(schema)
    return load_table(path, "dead", "case", schema=declared, form=declared.file)


@pytest.mark.parametrize("name", READ)
def test_variants_are_read_at_first_try(name, people, tmp_path):
    """A row has the same numbers in every file, and --check and init take it as it is."""
    public, private, schema, said = draft(tmp_path, name, *people)
    kinds = {n: c["kind"] for n, c in json.loads(schema.read_text())["columns"].items()}
    assert kinds["crp"] == "number"
    assert kinds["seen"] == "date"
    assert kinds["age"] == "whole"
    assert kinds["Rolle"] == kinds["sex"] == "category"
    form = READ[name][2].get("form", PLAIN)
    assert detect_csv_format(public).delimiter == form.delimiter
    assert detect_csv_format(public).decimal == form.decimal
    assert (str(detect_csv_format(public)) in said) == (detect_csv_format(public) != PLAIN)
    found, plain = read(private, schema), pa.Table.from_pylist(people[1])
    features = TableFeatures(schema)
    np.testing.assert_array_equal(
        features.codes(found.features), features.codes(plain.drop_columns(["dead", "case"]))
    )
    assert found.labels.tolist() == plain["dead"].to_pylist()
    assert found.subjects.tolist() == plain["case"].to_pylist()
    options = {"label": "dead", "subject": "case", "classes": "alive,dead"}
    told = run("schema", "--json", check=private, schema=schema, **options).stdout
    assert json.loads(told)["fits"]
    if name in ("Excel in Europe", "Excel"):
        init(tmp_path, private, schema, public=public, **options)
        asked = "predict", tmp_path / "store", "--id", "case", "--data"
        assert run(*asked, "-", stdin=public.read_bytes()).stdout == run(*asked, public).stdout


def test_without_the_extra_excel_files_are_refused_with_the_way_on(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    write_xlsx(tmp_path / "a.xlsx", [{"age": 1}])
    assert "pip install 'vicinal[excel]'" in run("schema", tmp_path / "a.xlsx", code=2).stderr


def test_laboratory_cells_count_as_their_limits(people, tmp_path):
    lab = [changed(rows, crp=lambda x: "<0.5" if x < 0.5 else x) for rows in people]
    _, private, schema, _ = draft(tmp_path, "commas", *lab)
    column = json.loads(schema.read_text())["columns"]["crp"]
    assert (column["kind"], column["limits"]) == ("number", True)
    codes = TableFeatures(schema).codes(read(private, schema).features)
    place = TableSchema.load(schema).names.index("crp")
    assert codes[:, place].tolist() == [max(row["crp"], 0.5) for row in people[1]]
    schema.write_text(schema.read_text().replace('"limits": true,', ""))
    told = run("schema", "--curator", check=private, schema=schema, code=2)
    below = [i for i, row in enumerate(people[1], 1) if row["crp"] < 0.5]
    assert f"'crp': {len(below)} rows hold values that are not numbers." in told.stdout
    assert '"limits": true' in told.stdout
    assert f"rows {below[0]}, {below[1]}" in told.stdout
    plain = run("schema", check=private, schema=schema, code=2).stdout
    assert f"rows {below[0]}" not in plain, "row numbers are for --curator"


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".xlsx"])
@pytest.mark.parametrize("classes", ["false,true", "TRUE,FALSE", "0,1"])
def test_truth_values_have_their_own_names_in_every_format(suffix, classes, people, tmp_path):
    truths = [changed(rows, dead=lambda value: value == "dead") for rows in people]
    name = {".parquet": "Parquet", ".csv": "commas", ".xlsx": "Excel"}[suffix]
    public, private, schema, _ = draft(tmp_path, name, *truths)
    found = read(private, schema).labels
    assert found.dtype == bool
    assert found.tolist() == [row["dead"] for row in truths[1]]
    options = {"label": "dead", "subject": "case", "classes": classes}
    run("schema", check=private, schema=schema, **options)
    init(tmp_path, private, schema, public=public, **options)
    answers = json.loads(run("predict", tmp_path / "store", "--json", data=public).stdout)
    assert {str(label) for label in answers["labels"]} <= set(classes.split(","))


def test_the_check_says_what_init_would_refuse(people, tmp_path):
    """Missing labels, unknown classes, ids that are none: counts, and rows for the curator."""
    private = [dict(row) for row in people[1]]
    private[4]["dead"], private[6]["dead"], private[9]["case"] = "", "gone", " x"
    public, data, schema, _ = draft(tmp_path, "Excel in Europe", people[0], private)
    options = {"label": "dead", "subject": "case", "classes": "alive,dead"}
    told = run("schema", "--curator", check=data, schema=schema, **options, code=2).stdout
    for column, fault, row in (
        ("dead", "missing values, which are not allowed there", 5),
        ("dead", "labels outside the classes", 7),
        ("case", "values that cannot be ids", 10),
    ):
        assert re.search(
            rf"error: column '{column}': 1 row holds {fault}\..*\n +rows {row}\n", told
        )
    assert "gone" not in told
    assert "'y'" not in init(tmp_path, data, schema, public=public, **options, code=2).stderr


def test_a_private_file_of_another_form_is_refused_with_the_way_on(people, tmp_path):
    """Public rows from the Internet, private ones from Excel: the schema says how these are."""
    public, _, schema, _ = draft(tmp_path, "commas", *people)
    private = tmp_path / "excel.csv"
    write_csv(private, people[1], EUROPE, GERMAN)
    check = {"check": private, "schema": schema, "label": "dead", "subject": "case"}
    told = run("schema", **check, code=2).stderr
    assert "';' between fields, a decimal comma, encoding cp1252" in told
    assert '"file"' in told
    declared = json.loads(schema.read_text())
    declared["file"] = {"delimiter": ";", "decimal": ",", "encoding": "cp1252"}
    schema.write_text(json.dumps(declared))
    assert '"form"' in run("schema", **check, code=2).stdout
    declared["columns"]["seen"]["form"] = GERMAN
    schema.write_text(json.dumps(declared))
    run("schema", **check, reference=public)


def test_free_text_is_told_from_categories(people, tmp_path):
    rng = np.random.default_rng(1)
    words = ["the", "patient", "came", "home", "after", "a", "night", "with", "fever"]
    for size in (30, SIZE):
        rows = [
            {**row, "note": " ".join(rng.choice(words, 7)), "town": f"town {i % 25}"}
            for i, row in enumerate(people[0][:size])
        ]
        *_, schema, said = draft(tmp_path, "semicolons", rows, rows)
        kinds = {n: c["kind"] for n, c in json.loads(schema.read_text())["columns"].items()}
        assert kinds["note"] == "text"
        assert "--features text" in said
    assert kinds["town"] == "category"


@pytest.mark.parametrize("form", ["{:,.2f}", "{:.1f} %", "€ {:.2f}"])
def test_numbers_for_readers_are_no_categories_and_the_way_on_is_said(form, people, tmp_path):
    rows = [{**row, "crp": form.format(1000 * row["crp"])} for row in people[0]]
    *_, schema, said = draft(tmp_path, "commas", rows, rows)
    assert json.loads(schema.read_text())["columns"]["crp"]["kind"] == "ignored"
    assert "'crp' is ignored: its numbers have separators" in said
    assert "1234.5" in said


@pytest.mark.parametrize("name", ["commas", "Parquet"])
def test_blanks_around_names_are_no_part_of_them(name, people, tmp_path):
    """Fails if a label or an id becomes a feature, as its name is not told."""
    padded = [
        [{f" {key} ": value for key, value in row.items()} for row in part] for part in people
    ]
    _, private, schema, _ = draft(tmp_path, name, *padded)
    assert not {"dead", "case", " dead ", " case "} & set(TableSchema.load(schema).names)
    found = TableFeatures(schema).codes(read(private, schema).features)
    plain = pa.Table.from_pylist(people[1]).drop_columns(["dead", "case"])
    np.testing.assert_array_equal(found, TableFeatures(schema).codes(plain))


def test_a_line_for_excel_and_two_columns_of_a_name_have_a_way_on(tmp_path):
    for content, way in (
        ("sep=;\na;b\n1;2\n", "Delete that line"),
        ("\ufeffsep=,\na,b,c\n1,2,3\n", "Delete that line"),
        ("a, a\n1,2\n", "Rename one, or drop it"),
    ):  # fmt: skip
        path = tmp_path / "public.csv"
        path.write_text(content, encoding="utf-8")
        assert way in run("schema", path, code=2).stderr


def test_what_was_found_can_be_overridden(people, tmp_path):
    path = tmp_path / "public.csv"
    write_csv(path, people[0], CsvForm(";", ",", "cp1250"))
    told = run("schema", path, decimal=",", encoding="cp1250", delimiter=";")
    assert json.loads(told.stdout)["file"]["encoding"] == "cp1250"
    for option, value in (("--delimiter", "xx"), ("--decimal", "x"), ("--encoding", "none")):
        assert f"{option} option must" in run("schema", path, option, value, code=2).stderr


def test_a_wrong_form_of_files_or_dates_is_refused_in_the_schema():
    plain = {"format": "vicinal table schema", "version": 1}
    number = {"kind": "number", "low": 0, "high": 1}
    for more, column, words in (
        ({"file": {"decimal": ";"}}, number, "decimal"),
        ({}, {**number, "limits": 1}, "limits"),
        ({}, {"kind": "date", "low": "2000-01-01", "high": "2001-01-01", "form": "%d.%m"}, "form"),
    ):
        with pytest.raises(ValueError, match=words):
            TableSchema.from_dict({**plain, **more, "columns": {"a": column}})


AGE_SCHEMA = {
    "format": "vicinal table schema", "version": 1,
    "columns": {"age": {"kind": "whole", "low": 0, "high": 30}},
}  # fmt: skip
CELLS = ["alive", " dead ", "", "NA", None, "gone", "TRUE", "07", "5.0", "a\tb", "Müller", "-3"]
"""What may stand where a label or an id should."""


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("column", ["dead", "case"])
@pytest.mark.parametrize("cell", CELLS)
def test_the_check_and_init_agree_on_every_label_and_id(suffix, column, cell, tmp_path):
    rows = [{"age": i, "dead": ["alive", "dead"][i % 2], "case": f"p{i}"} for i in range(30)]
    rows[7][column] = cell
    data, schema = tmp_path / f"data{suffix}", tmp_path / "schema.json"
    (write_csv if suffix == ".csv" else write_parquet)(data, rows)
    schema.write_text(json.dumps(AGE_SCHEMA))
    options = {"label": "dead", "subject": "case", "classes": "alive,dead"}
    assert_check_and_init_agree(tmp_path, data, schema, **options)


def assert_check_and_init_agree(folder, data, schema, **labels):
    """Compare the exit codes of both commands; a refused table has a row with a fault."""
    given = ("--features", "table", "--reference", "from-schema", "--queries", 5)
    commands = [
        ("schema", "--check", data, "--schema", schema, *option_words(**labels)),
        ("init", folder / "store", "--data", data, "--schema", schema, *given, "-q",
         "--model-share", 0, *option_words(**labels)),
    ]  # fmt: skip
    checked, made = (CliRunner().invoke(app, list(map(str, words))) for words in commands)
    assert checked.exit_code == made.exit_code, (checked.output, made.output)
    assert made.exit_code == 0 or "1 row holds" in checked.output


@pytest.mark.parametrize("cell", ["high", "<0.5", "", None, "inf", "3.5", -4])
def test_the_check_and_init_agree_on_every_number_to_predict(cell, tmp_path):
    rows = [{"age": i, "stay": i / 3} for i in range(30)]
    rows[7]["stay"] = cell
    data, schema = tmp_path / "data.csv", tmp_path / "schema.json"
    write_csv(data, rows)
    schema.write_text(json.dumps(AGE_SCHEMA))
    assert_check_and_init_agree(tmp_path, data, schema, target="stay=0..10")


def test_a_check_of_numbers_takes_no_label_and_needs_bounds(tmp_path):
    check = {"check": tmp_path / "data.csv", "schema": tmp_path / "schema.json"}
    run("schema", **check, target="stay=0..10", label="stay", code=2)
    assert "NAME=LOW..HIGH" in run("schema", **check, target="stay", code=2).output


@pytest.mark.parametrize(
    ("content", "code", "hint"),
    [
        ("# made by a program\na,b\n1,2\n3,4\n", 0, "--comment"),
        ("A title\na;b\n1;2\n3;4\n", 0, "Delete a title"),
        ("# made by a program, 2026\na,b,c\n1,2,3\n", 2, "--comment"),
        ("a,b\n'x, y',1\n", 2, "--quote"),
        ("a,b\nx\\, y,1\n", 2, "--escape"),
    ],
)
def test_files_that_need_further_marks_have_a_way_on(content, code, hint, tmp_path):
    path = tmp_path / "public.csv"
    path.write_text(content)
    assert hint in run("schema", path, code=code).stderr


def test_clipped_queries_are_reported(tmp_path):
    """Fails if an age of 850 years, or dates of another century, are answered without a note."""
    days = [dt.date(2020, 1, 1) + dt.timedelta(i) for i in range(40)]
    rows = [
        {"age": 20 + i % 25, "size": 1.5 + i / 100, "seen": day, "y": "ab"[i % 2]}
        for i, day in enumerate(days)
    ]
    public, queries, schema = (tmp_path / name for name in ("p.csv", "q.csv", "schema.json"))
    write_csv(public, rows)
    run("schema", public, label="y", out=schema)
    init(tmp_path, public, schema, reference="from-schema", label="y", classes="a,b")
    strange = [{**row, "size": 150 + row["size"]} for row in rows]
    strange[0] |= {"age": 850, "seen": dt.date(1920, 1, 1)}
    write_csv(queries, strange)
    told = " ".join(run("predict", tmp_path / "store", data=queries).stderr.split())
    assert "outside the declared bounds count as the nearest bound" in told
    assert "such rows: 'age' (1), 'seen' (1)." in told
    assert "column 'size': 40 rows hold values outside the declared bounds" in told
    assert "the units may differ" in told
    assert "bounds" not in run("predict", tmp_path / "store", data=public).stderr


def test_values_in_another_spelling_are_reported(tmp_path):
    """Fails if private rows or queries with M for m lose their sex without a word."""
    rows = [{"sex": "mf"[i % 2], "age": i, "y": ["no", "yes"][i % 2]} for i in range(40)]
    public, private = tmp_path / "public.csv", tmp_path / "private.csv"
    write_csv(public, rows)
    write_csv(private, changed(rows, sex=str.upper))
    schema = tmp_path / "schema.json"
    assert "spelling" not in run("schema", public, label="y", out=schema).stderr
    check = {"schema": schema, "label": "y"}
    assert "spelling" not in run("schema", **check, check=public).stdout
    told = run("schema", **check, check=private, code=2).stdout
    assert "error: column 'sex': 40 rows hold declared values in another spelling" in told
    assert "No row holds a declared value, so the column is lost." in told
    assert "'M'" not in told
    split = run("schema", **check, check=private, classes="no,yes;maybe", code=2).stdout
    assert "--classes splits" in split
    assert "repeat it" in split
    create = run(
        *("init", tmp_path / "store"), data=public, features="table", schema=schema, queries=200,
        reference="from-schema", label="y", classes="no,yes", model_share=0,
    )  # fmt: skip
    assert "Run vicinal schema --check first" in " ".join(create.stderr.split())
    for path in (public, private):
        told = run("predict", tmp_path / "store", data=path).stderr
        assert ("declared values in another spelling" in told) == (path == private)
