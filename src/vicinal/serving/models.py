"""Bodies of requests and responses: checked by pydantic, shown in OpenAPI, decoded to rows."""

import json
from typing import Annotated, Any, Literal, Self, TypeVar

import numpy as np
import pydantic
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.types import Strict

from vicinal.features.table_schema import TableSchema
from vicinal.serving._limits import Problem
from vicinal.store.base_store import BaseStore

_FIRST = Field(fail_fast=True)
"""One error is enough: a body of a million would make a list of a million errors."""

Finite = Annotated[float, Strict(), Field(allow_inf_nan=False, ge=-1e30, le=1e30)]
Text = Annotated[str, StringConstraints(max_length=20_000), Strict()]
Name = (
    Annotated[int, Strict(), Field(ge=-(2**63), lt=2**63)]
    | Annotated[str, Strict(), StringConstraints(min_length=1, max_length=300)]
)
Row = Annotated[list[Finite], _FIRST]
Vectors = Annotated[list[Row], _FIRST, Field(min_length=1)]
Grey = Annotated[list[Row], _FIRST]
Pixel = Annotated[list[Finite], _FIRST, Field(min_length=3, max_length=3)]
Color = Annotated[list[Annotated[list[Pixel], _FIRST]], _FIRST]
Images = Annotated[
    Annotated[list[Grey], _FIRST] | Annotated[list[Color], _FIRST], Field(min_length=1)
]
Texts = Annotated[list[Text], _FIRST, Field(min_length=1)]
Cell = Annotated[bool, Strict()] | Annotated[int, Strict()] | Finite | Text | None
NamedRows = Annotated[list[dict[Text, Cell]], _FIRST, Field(min_length=1)]
Names = Annotated[list[Name], _FIRST]


class RowsBody(BaseModel):
    """Rows in exactly one of four forms, as the store takes them (GET /v1/status says which)."""

    model_config = ConfigDict(extra="forbid")

    vectors: Vectors | None = Field(None, description="q vectors of d finite numbers each.")
    images: Images | None = Field(
        None, description="q images: h rows of w pixels, grey or three numbers."
    )
    texts: Texts | None = Field(None, description="q texts.")
    rows: NamedRows | None = Field(
        None, description="q rows of a table, by column name; null where nothing is known."
    )

    @pydantic.model_validator(mode="after")
    def _one_form(self) -> Self:
        forms = (self.vectors, self.images, self.texts, self.rows)
        if sum(rows is not None for rows in forms) != 1:
            raise ValueError
        return self


class PredictRequest(RowsBody):
    """Queries. They are public: the guarantee protects records, not queries."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"vectors": [[0.1, 2.9, 0.2, 0.0]]}]})


class RecordsRequest(RowsBody):
    """Records to add, with their labels and the people they belong to."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"vectors": [[0.1, 2.9, 0.2, 0.0]], "labels": [1], "subjects": ["person-7"]}
            ]
        }
    )
    labels: Names | None = Field(None, description="q class names, where records have classes.")
    targets: Vectors | None = Field(
        None, description="q rows of numbers, or of 0 and 1, where records carry those."
    )
    subjects: Names | None = Field(
        None,
        description="q ids, exactly if the first records had some; 5 and '5' are one id. Without, "
        "records are one person each.",
    )
    ids_differ: bool = Field(
        False,
        description="Whether new ids are those of other people although they differ from known "
        "ones, or from each other, by leading zeros, case, blanks or width only.",
    )


class PaidAnswers(BaseModel):
    """What every reply tells of the plan."""

    charged: int = Field(description="New answers; the others are replays and cost nothing.")
    left: int = Field(description="New answers that the audience's plan has left.")


class PredictResponse(PaidAnswers):
    """Answers that have been paid for, durably."""

    labels: list[int | str] = Field(examples=[[1]])
    votes: list[list[float]] | None = Field(description="Noisy votes (q, c), if votes leave.")
    probabilities: list[list[float]] | None = Field(
        description="Probability of every class, where votes leave."
    )
    confidence: list[float] | None = Field(
        description="Lead of the best class over the next, in standard deviations of its noise."
    )


class NumbersResponse(PaidAnswers):
    """Predictions of numbers that have been paid for, durably."""

    targets: list[str] = Field(description="p names.")
    predictions: list[list[float]] = Field(description="Predictions (q, p).")
    errors: list[list[float]] = Field(description="Standard errors (q, p), of the noise alone.")


class LabelSetsResponse(PaidAnswers):
    """Sets of labels that have been paid for, durably."""

    names: list[int | str] = Field(description="c labels.")
    labels: list[list[int | str]] = Field(description="Those given to each of q queries.")
    shares: list[list[float]] = Field(description="Noisy shares of the neighbours (q, c).")
    errors: list[list[float]] = Field(description="Their standard errors (q, c).")


class AnswersResponse(pydantic.RootModel[PredictResponse | NumbersResponse | LabelSetsResponse]):
    """Classes, numbers or sets of labels, as the store's records carry.

    GET /v1/status says which.
    """


class GuaranteeResponse(BaseModel):
    """What all answers to an audience guarantee to everybody in the data."""

    audience: str
    guarantee: dict[str, Any]


class AudienceUsage(BaseModel):
    """An audience's plan of answers, and how worn budgets are as far as public points tell."""

    planned: int
    used: int
    left: int
    usage: float | None


class KeyUsage(BaseModel):
    """What the key's holder may ask; null: as much as the audience has left."""

    name: str
    role: Literal["analyst", "curator"]
    audience: str
    quota: int | None
    used: int
    left: int | None


class QuotaResponse(BaseModel):
    """Answers planned, used and left: the key's audience, or all of them for a curator."""

    mine: KeyUsage
    audiences: dict[str, AudienceUsage]


class TableColumnFacts(BaseModel):
    """A column of the table that the store takes, from its public schema."""

    name: str
    kind: str = Field(description="As in the schema; a date with a time of day is a moment.")
    values: list[str] | None = Field(description="What may stand there; null for numbers.")


class StatusResponse(BaseModel):
    """What the store takes."""

    takes: Literal["vectors", "images", "texts", "rows"]
    numbers: int | None = Field(description="Length of a vector, where the store says.")
    columns: list[TableColumnFacts] | None = Field(
        description="The columns, where they have names: of rows, or of vectors, in order."
    )
    classes: list[int | str] = Field(description="None where records carry something else.")
    target: dict[str, Any] = Field(
        description="What records carry: its kind (classes, bounds of numbers, "
        "labels), and what is declared of it."
    )
    most_queries: int
    release: str = Field(description="What leaves: votes or label.")


class DataChange(BaseModel):
    """A change of the data."""

    at: str
    what: str
    version: int


class HistoryResponse(BaseModel):
    """When the data changed, the newest last."""

    version: int
    history: list[DataChange]


class ChangedResponse(BaseModel):
    """A change has become durable."""

    done: Literal["added", "erased"]
    version: int


class ErasureOutcome(BaseModel):
    """How many of the ids were there before an erasure. Private."""

    enrolled: int
    erased: int = Field(description="Erased before.")
    unknown: int = Field(description="Never there.")


class ErasedResponse(ChangedResponse):
    """An erasure has become durable."""

    outcome: ErasureOutcome | None = Field(None, description="With outcome=true only.")


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


def width_of(store: BaseStore) -> int | None:
    """Return how long a vector must be, or None where the store alone can tell."""
    extractor = store.schema.extractor
    plain = extractor.kind == "columns" and extractor.public_map is None
    return store.schema.n_features if plain else None


def columns_of(store: BaseStore) -> list[dict[str, Any]] | None:
    """Return name, kind and values of every column; None where what is asked has no names."""
    extractor = store.schema.extractor
    if extractor.kind == "columns" and extractor.columns is not None:
        return [{"name": name, "kind": "number", "values": None} for name in extractor.columns]
    if extractor.takes != "rows":
        return None
    declared = TableSchema.from_dict(extractor.options["schema"]).columns
    return [
        {
            "name": column.name,
            "kind": "moment" if getattr(column, "time", False) else column.kind,
            "values": column.declared_values,
        }
        for column in declared
    ]


def parse_body(model: type[AnyBody], content: bytes) -> AnyBody:
    """Return a body as its model has it, or raise a problem that repeats nothing of it."""
    try:
        body = model.model_validate_json(content)
    except pydantic.ValidationError as error:
        # Field and kind of the first error, nothing of what was sent.
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = next((part for part in first["loc"] if part in model.model_fields), None)
        where = "The body" if place is None else f"The field '{place}'"
        at = [part + 1 for part in first["loc"] if isinstance(part, int)]
        where += "".join(f", {noun} {n}," for noun, n in zip(("row", "column"), at, strict=False))
        detail = f"{where} is not what this path takes ({first['type']})."
        raise Problem(422, "unusable", detail) from None
    # pydantic keeps the last of equal keys, a proxy may have checked the first: neither is right.
    # A second parse takes as long as the first. Without strings but keys, there is no need: each
    # key has two quotes, so as many as of different keys leave none for a repeated one.
    if content.count(b'"') != 2 * len(body.model_fields_set):
        json.loads(content, object_pairs_hook=_refuse_repeated_keys)
    return body


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> None:
    if len({key for key, _ in pairs}) != len(pairs):
        raise Problem(400, "repeated-key", "An object in the body has the same key twice.")


def decode_rows(body: RowsBody, store: BaseStore, most: int) -> tuple[Any, int]:
    """Return raw rows for the store, and how many.

    413 for too many; 422 if they are in another form, or not all of the same shape.
    """
    form = store.schema.extractor.takes
    rows = getattr(body, form)
    if rows is None:
        raise Problem(422, "unusable", f"This store takes '{form}', and no other form.")
    if len(rows) > most:
        raise Problem(413, "too-many", f"A request must have at most {most} rows.")
    if form in ("texts", "rows"):
        return rows, len(rows)
    width = width_of(store)
    other = next((i for i, row in enumerate(rows, 1) if len(row) != width), 0)
    if form == "vectors" and width is not None and other:
        detail = f"Every vector must have {width} numbers; row {other} has others."
        raise Problem(422, "unusable", detail)
    try:
        array = np.array(rows, dtype=np.float64)  # (q, d), (q, h, w) or (q, h, w, 3)
    except ValueError:
        raise Problem(422, "unusable", f"All '{form}' must have the same shape.") from None
    if array.size == 0:
        raise Problem(422, "unusable", f"The '{form}' must not be empty.")
    return array, len(rows)
