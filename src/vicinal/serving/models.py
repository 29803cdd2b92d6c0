"""Pydantic models of request and response bodies, and the conversion of bodies to rows."""

import json
from typing import Annotated, Any, Literal, Self, TypeVar

import numpy as np
import pydantic
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.types import Strict

from vicinal.features.table_schema import TableSchema
from vicinal.serving._problems import Problem
from vicinal.store.base_store import BaseStore

_FIRST_ERROR = Field(fail_fast=True)
"""Validation stops at the first error; otherwise a body could produce a million of them."""

Finite = Annotated[float, Strict(), Field(allow_inf_nan=False, ge=-1e30, le=1e30)]
Text = Annotated[str, StringConstraints(max_length=20_000), Strict()]
LabelOrId = (
    Annotated[int, Strict(), Field(ge=-(2**63), lt=2**63)]
    | Annotated[str, Strict(), StringConstraints(min_length=1, max_length=300)]
)
Row = Annotated[list[Finite], _FIRST_ERROR]
Vectors = Annotated[list[Row], _FIRST_ERROR, Field(min_length=1)]
GrayImage = Annotated[list[Row], _FIRST_ERROR]
Pixel = Annotated[list[Finite], _FIRST_ERROR, Field(min_length=3, max_length=3)]
ColorImage = Annotated[list[Annotated[list[Pixel], _FIRST_ERROR]], _FIRST_ERROR]
Images = Annotated[
    Annotated[list[GrayImage], _FIRST_ERROR] | Annotated[list[ColorImage], _FIRST_ERROR],
    Field(min_length=1),
]
Texts = Annotated[list[Text], _FIRST_ERROR, Field(min_length=1)]
Cell = Annotated[bool, Strict()] | Annotated[int, Strict()] | Finite | Text | None
NamedRows = Annotated[list[dict[Text, Cell]], _FIRST_ERROR, Field(min_length=1)]
LabelsOrIds = Annotated[list[LabelOrId], _FIRST_ERROR]


class RowsBody(BaseModel):
    """Rows in exactly one of four formats: the one that GET /v1/status reports as `takes`."""

    model_config = ConfigDict(extra="forbid")

    vectors: Vectors | None = Field(None, description="q vectors of d finite numbers each.")
    images: Images | None = Field(
        None, description="q images: h rows of w pixels, each one number or a list of three."
    )
    texts: Texts | None = Field(None, description="q texts.")
    rows: NamedRows | None = Field(
        None, description="q table rows as objects by column name; null is a missing value."
    )

    @pydantic.model_validator(mode="after")
    def _check_single_format(self) -> Self:
        """Raise ValueError unless exactly one of the four formats is given."""
        formats = (self.vectors, self.images, self.texts, self.rows)
        if sum(rows is not None for rows in formats) != 1:
            raise ValueError(
                "it must have exactly one of the fields vectors, images, texts and rows"
            )
        return self


class PredictRequest(RowsBody):
    """Queries. They are public: the guarantee protects the records, not the queries."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"vectors": [[0.1, 2.9, 0.2, 0.0]]}]})
    coverage: Annotated[float, Strict(), Field(gt=0, lt=1)] | None = Field(
        None,
        description="Share of future outcomes that sets of classes, or intervals of numbers, must "
        "contain; null: none are returned. Requires an earlier evaluation of the audience.",
    )


class RecordsRequest(RowsBody):
    """Records to add, with their labels or targets and their subjects."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"vectors": [[0.1, 2.9, 0.2, 0.0]], "labels": [1], "subjects": ["person-7"]}
            ]
        }
    )
    labels: LabelsOrIds | None = Field(None, description="q class names, for a store of classes.")
    targets: Vectors | None = Field(
        None,
        description="q rows of numbers, or of 0 and 1, for a store of numbers or of label sets.",
    )
    subjects: LabelsOrIds | None = Field(
        None,
        description="q subject ids; required if the first records had ids, otherwise not allowed. "
        "5 and '5' are the same id. Without ids, each record is a subject of its own.",
    )
    ids_differ: bool = Field(
        False,
        description="Whether new ids denote different subjects although they differ from existing "
        "ids, or from each other, only in spelling, as '007' differs from 7.",
    )


class PaidAnswers(BaseModel):
    """The use of the audience's plan, part of every reply."""

    charged: int = Field(
        description="Number of new answers. The other answers are repeated without a charge."
    )
    left: int = Field(
        description="Number of new answers that remain for you: in the audience's plan, or of your "
        "quota if that is less."
    )
    promise: str | None = Field(
        None, description="Statement on the coverage of sets or intervals, if requested."
    )
    notes: list[str] | None = Field(
        None,
        description="Notes on unexpected values of table rows, such as numbers outside the "
        "declared bounds, which count as the nearest bound; absent if there are none.",
    )


class PredictResponse(PaidAnswers):
    """Predicted classes, durably charged."""

    labels: list[int | str] = Field(examples=[[1]])
    votes: list[list[float]] | None = Field(
        description="Noisy votes (q, c), if the store releases votes."
    )
    probabilities: list[list[float]] | None = Field(
        description="Probability of each class (q, c), if the store releases votes."
    )
    confidence: list[float] | None = Field(
        description="Difference between the highest and the second highest vote, in standard "
        "deviations of its noise."
    )
    sets: list[list[int | str]] | None = Field(
        None, description="Classes not excluded, the most probable first, if requested."
    )


class NumbersResponse(PaidAnswers):
    """Predicted numbers, durably charged."""

    targets: list[str] = Field(description="Names of the p numbers.")
    predictions: list[list[float]] = Field(description="Predictions (q, p).")
    errors: list[list[float]] = Field(description="Standard errors (q, p) due to the noise only.")
    low: list[list[float]] | None = Field(None, description="Lower ends (q, p), if requested.")
    high: list[list[float]] | None = Field(None, description="Upper ends (q, p), if requested.")


class LabelSetsResponse(PaidAnswers):
    """Predicted label sets, durably charged."""

    names: list[int | str] = Field(description="Names of the c labels.")
    labels: list[list[int | str]] = Field(description="Labels assigned to each of q queries.")
    shares: list[list[float]] = Field(
        description="Noisy share of the neighbours with each label (q, c)."
    )
    errors: list[list[float]] = Field(description="Standard errors of the shares (q, c).")


class AnswersResponse(pydantic.RootModel[PredictResponse | NumbersResponse | LabelSetsResponse]):
    """Classes, numbers or label sets: the kind of target that GET /v1/status reports."""


class GuaranteeResponse(BaseModel):
    """The differential privacy guarantee that all answers to an audience give every subject."""

    audience: str
    guarantee: dict[str, Any]


class AudienceUsage(BaseModel):
    """Answers of an audience's plan, and the share of budgets used, estimated at public points."""

    planned: int
    used: int
    left: int
    usage: float | None


class KeyUsage(BaseModel):
    """Quota of the key's holder; null: limited only by the plan of the audience.

    `left` is never more than the audience has left.
    """

    name: str
    role: Literal["analyst", "curator"]
    audience: str
    quota: int | None
    used: int
    left: int


class QuotaResponse(BaseModel):
    """Planned, used and remaining answers: of the key's audience, or of all for a curator."""

    mine: KeyUsage
    audiences: dict[str, AudienceUsage]


class TableColumnFacts(BaseModel):
    """A column that the store accepts, from its public schema."""

    name: str
    kind: str = Field(description="As in the schema; 'moment' is a date with a time of day.")
    values: list[str] | None = Field(description="Allowed values; null for numbers.")


class StatusResponse(BaseModel):
    """The inputs that the store accepts and the targets that it predicts."""

    takes: Literal["vectors", "images", "texts", "rows"]
    numbers: int | None = Field(description="Length of a vector; null if it is unknown.")
    columns: list[TableColumnFacts] | None = Field(
        description="Columns of the rows or of the vectors, in order; null if they have no names."
    )
    classes: list[int | str] = Field(description="Names of the classes; empty for other targets.")
    target: dict[str, Any] = Field(
        description="Target of the records: its kind (classes, bounds for numbers, or labels) "
        "and its declared properties."
    )
    most_queries: int = Field(description="Largest number of queries in a request.")
    release: str = Field(description="Released result: votes or label.")


class DataChange(BaseModel):
    """A change of the data."""

    at: str
    what: str
    version: int


class HistoryResponse(BaseModel):
    """Changes of the data, the newest last."""

    version: int
    history: list[DataChange]


class ChangedResponse(BaseModel):
    """A durable change of the data."""

    done: Literal["added", "erased"]
    version: int


class ErasureOutcome(BaseModel):
    """Number of the erased ids that were in the store before. Private."""

    enrolled: int
    erased: int = Field(description="Ids erased earlier.")
    unknown: int = Field(description="Ids that were never in the store.")
    similar: int = Field(
        description="Unknown ids that differ in spelling only from the id of a subject that is "
        "enrolled, or was erased or evaluated; several spellings of one id count once. "
        "Erase that id if it denotes the same subject."
    )


class ErasedResponse(ChangedResponse):
    """A durable erasure."""

    outcome: ErasureOutcome | None = Field(None, description="Only with outcome=true.")


class ProblemResponse(BaseModel):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str


class HealthResponse(BaseModel):
    """The service can answer."""

    status: Literal["ok"]


AnyBody = TypeVar("AnyBody", bound=RowsBody)


def get_n_features(store: BaseStore) -> int | None:
    """Return the number of features of a vector in a request, None if it is unknown.

    It is unknown for images, texts and table rows, and if a map changes the number of features.
    """
    extractor = store.schema.extractor
    takes_vectors = extractor.kind == "columns" and extractor.public_map is None
    return store.schema.n_features if takes_vectors else None


def describe_columns(store: BaseStore) -> list[dict[str, Any]] | None:
    """Return name, kind and allowed values of every column, or None if columns have no names."""
    extractor = store.schema.extractor
    if extractor.kind == "columns" and extractor.columns is not None:
        return [{"name": name, "kind": "number", "values": None} for name in extractor.columns]
    if extractor.raw_form != "rows":
        return None
    columns = TableSchema.from_dict(extractor.options["schema"]).columns
    return [
        {
            "name": column.name,
            "kind": "moment" if getattr(column, "time", False) else column.kind,
            "values": column.declared_values,
        }
        for column in columns
    ]


def parse_body(model: type[AnyBody], content: bytes) -> AnyBody:
    """Return the JSON text `content` as an instance of `model`.

    Raises problem 400 for repeated keys and 422 for other errors, without quoting the body.
    """
    try:
        body = model.model_validate_json(content)
    except pydantic.ValidationError as error:
        raise Problem(422, "unusable", _describe_error(error, model)) from None
    # Refuse repeated keys: pydantic keeps the last value, but a proxy may have checked the first.
    # Finding them requires a second parse, as slow as the first. It is skipped if the only strings
    # are keys (two quotes each) and there are as many as distinct fields, so none is repeated.
    if content.count(b'"') != 2 * len(body.model_fields_set):
        json.loads(content, object_pairs_hook=_refuse_repeated_keys)
    return body


def _describe_error(error: pydantic.ValidationError, model: type[BaseModel]) -> str:
    """Return a sentence on the location and the rule of the first error in a body, not the input.

    `model`: declares the fields of the body.
    """
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    first = errors[0]
    if first["type"] == "extra_forbidden":
        return f"The body may have only these fields: {', '.join(model.model_fields)}."
    field = next((name for name in first["loc"] if name in model.model_fields), None)
    location = "The body" if field is None else f"The field '{field}'"
    positions = [index + 1 for index in first["loc"] if isinstance(index, int)]
    location += "".join(
        f", {axis} {position}" for axis, position in zip(("row", "column"), positions, strict=False)
    )
    if positions:
        location += ","
    rule = first["msg"].removeprefix("Value error, ")
    prefix = "Input should be "
    if rule.startswith(prefix):
        # A value of several allowed types has an error for each of them.
        same_field = [each for each in errors if each["loc"][:1] == first["loc"][:1]]
        rules = dict.fromkeys(each["msg"].removeprefix(prefix) for each in same_field)
        rule = f"it must be {' or '.join(rules)}"
    return f"{location} is not valid for this path: {rule}."


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> None:
    """Raise problem 400 if a JSON object, given as its pairs, has a key twice."""
    if len({key for key, _ in pairs}) != len(pairs):
        raise Problem(400, "repeated-key", "An object in the body contains a key twice.")


def decode_rows(body: RowsBody, store: BaseStore, max_rows: int) -> tuple[Any, int]:
    """Return the rows in the store's format, and their number.

    Vectors become an array (q, d), images (q, h, w) or (q, h, w, 3); texts and table rows stay
    lists. Raises problem 413 for more than `max_rows`, 422 for another format or unequal shapes.
    """
    row_format = store.schema.extractor.raw_form
    rows = getattr(body, row_format)
    if rows is None:
        raise Problem(422, "unusable", f"This store accepts only '{row_format}'.")
    if len(rows) > max_rows:
        raise Problem(413, "too-many", f"A request must have at most {max_rows} rows.")
    if row_format in ("texts", "rows"):
        return rows, len(rows)
    n_features = get_n_features(store)
    wrong_row = next((i for i, row in enumerate(rows, 1) if len(row) != n_features), 0)
    if row_format == "vectors" and n_features is not None and wrong_row:
        detail = (
            f"Every vector must have {n_features} numbers; row {wrong_row} has a different length."
        )
        raise Problem(422, "unusable", detail)
    try:
        array = np.array(rows, dtype=np.float64)
    except ValueError:
        raise Problem(422, "unusable", f"All '{row_format}' must have the same shape.") from None
    if array.size == 0:
        raise Problem(422, "unusable", f"The '{row_format}' must not be empty.")
    return array, len(rows)
