"""The OpenAPI document: what FastAPI cannot see, because handlers read bodies themselves."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from vicinal.serving import schemas
from vicinal.serving.npy import NPY
from vicinal.serving.problems import MEDIA

_DESCRIPTION = """\
Differentially private predictions by nearest neighbours. Every new answer is charged, durably, to
the people whose records took part in it, before it is sent. Queries are public: whoever shares
your audience gets the stored answer to an equal query, at no cost.
"""
_KEYED: dict[str, Any] = {"security": [{"key": []}]}
_IDEMPOTENCY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same key gets the same answers, at no further cost. Always send one.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[ -~]+$"},
    "example": "monday-1",
}
_ONCE = {
    **_IDEMPOTENCY,
    "description": "The same key adds the same records once. Always send one.",
}
_SUBJECT = {
    "name": "subject",
    "in": "path",
    "required": True,
    "description": "A person's id; 5 and '5' are one.",
    "schema": {"type": "string", "minLength": 1},
    "example": "person-7",
}
_OUTCOME = {
    "name": "outcome",
    "in": "query",
    "required": False,
    "description": "true: say whether the person was there, was erased before, or never was.",
    "schema": {"type": "boolean", "default": False},
}


def _body(model: type[BaseModel]) -> dict[str, Any]:
    example = model.model_config["json_schema_extra"]["examples"][0]  # type: ignore[index]
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    content = {"application/json": {"schema": schema, "example": example}}
    return {"requestBody": {"required": True, "content": content}}


_NPY_FILE: dict[str, Any] = {
    "schema": {
        "type": "string",
        "format": "binary",
        "description": "A .npy file: float32, float64 or uint8, C order, one query a row.",
    }
}
_PREDICT = {**_KEYED, **_body(schemas.PredictRequest), "parameters": [_IDEMPOTENCY]}
_PREDICT["requestBody"]["content"][NPY] = _NPY_FILE
_ADD = {**_KEYED, **_body(schemas.RecordsRequest), "parameters": [_ONCE]}
_ERASE = {**_KEYED, "parameters": [_SUBJECT, _OUTCOME]}

BODIES: dict[str, tuple[dict[str, Any], type[BaseModel], str]] = {
    "predict": (_PREDICT, schemas.PredictResponse, "Answer queries"),
    "guarantee": (_KEYED, schemas.GuaranteeResponse, "The guarantee of your audience, whole"),
    "quota": (_KEYED, schemas.QuotaResponse, "Answers planned, used and left"),
    "status": (_KEYED, schemas.StatusResponse, "What the store takes, and how the process does"),
    "history": (_KEYED, schemas.HistoryResponse, "When the data changed (curators)"),
    "add_records": (_ADD, schemas.ChangedResponse, "Add records (curators)"),
    "erase_subject": (_ERASE, schemas.ErasedResponse, "Erase a person for good (curators)"),
}
"""For each handler: what its operation says beside the usual, its response, its summary."""


def about() -> dict[str, Any]:
    """Return what the document says of the service as a whole."""
    from vicinal import __version__

    return {"version": __version__, "description": _DESCRIPTION, "openapi_url": "/openapi.json"}


def document(app: FastAPI) -> None:
    """Add keys, bodies and problems to the document of an application."""
    plain = app.openapi

    def whole() -> dict[str, Any]:
        if app.openapi_schema is None or "securitySchemes" not in app.openapi_schema.get(
            "components", {}
        ):
            app.openapi_schema = _completed(plain())
        return app.openapi_schema

    app.openapi = whole  # type: ignore[method-assign]


def _completed(found: dict[str, Any]) -> dict[str, Any]:
    components = found.setdefault("components", {})
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    models = components.setdefault("schemas", {})
    for model in (schemas.PredictRequest, schemas.RecordsRequest, schemas.ProblemResponse):
        models[model.__name__] = model.model_json_schema()
    problem = {"$ref": "#/components/schemas/ProblemResponse"}
    response = {"description": "What went wrong", "content": {MEDIA: {"schema": problem}}}
    for operations in found["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)
            operation["responses"]["default"] = response
    return found
