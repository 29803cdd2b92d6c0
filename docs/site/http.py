"""The reference of the HTTP interface, from the service's own OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_HEAD = """# HTTP

A running service answers `GET /openapi.json` with the document that this page is made of. Errors
are `application/problem+json`: [the service](../reference/service.md) lists their kinds, its bounds
and how to retry.

"""


def pages(root: Path) -> Iterator[tuple[str, str]]:  # noqa: ARG001
    """Yield the page of paths and bodies."""
    from vicinal.serving.app import build_openapi

    document = build_openapi()
    paths = "".join(
        _path(method, path, entry)
        for path, methods in document["paths"].items()
        for method, entry in methods.items()
    )
    bodies = "".join(_schema(*item) for item in document["components"]["schemas"].items())
    yield "http.md", f"{_HEAD}{paths}# Bodies\n\n{bodies}".replace("\n# Bodies", "\n## Bodies")


def _path(method: str, path: str, entry: dict[str, Any]) -> str:
    lines = [f"## {method.upper()} {path}", entry.get("description") or entry.get("summary", "")]
    body = entry.get("requestBody", {}).get("content", {})
    lines += [f"Body: {_types(body)}."] if body else []
    lines += [
        f"- `{p['name']}` ({p['in']}): {p.get('description', '')}"
        for p in entry.get("parameters", ())
    ]
    rows = "".join(
        f"| {status} | {reply.get('description', '')} | {_types(reply.get('content', {}))} |\n"
        for status, reply in entry["responses"].items()
    )
    return "\n\n".join(lines) + f"\n\n| status | | body |\n|---|---|---|\n{rows}\n"


def _types(content: dict[str, Any]) -> str:
    return ", ".join(
        f"`{media}`" + (f" {_name(what['schema'])}" if _name(what.get("schema", {})) else "")
        for media, what in content.items()
    )


def _name(schema: dict[str, Any]) -> str:
    reference = schema.get("$ref", "").rpartition("/")[2]
    return f"[{reference}](#{reference.lower()})" if reference else ""


def _schema(name: str, schema: dict[str, Any]) -> str:
    needed = schema.get("required", ())
    rows = "".join(
        f"| `{key}` | {value.get('description', '')} | {'yes' if key in needed else ''} |\n"
        for key, value in schema.get("properties", {}).items()
    )
    example = (schema.get("examples") or [None])[0]
    shown = f"\n```json\n{json.dumps(example)}\n```\n" if example else ""
    head = f"### {name}\n\n{schema.get('description', '')}\n\n| field | | needed |\n|---|---|---|\n"
    return f"{head}{rows}{shown}\n"
