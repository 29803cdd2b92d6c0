"""Rows of private models: what an audience's model is made of, in text, part by part.

A model is public once what its training charged is durable. Both are written in one transaction:
no model without its charges. Content is text or base 64: no part may look like a stored id.
"""

from __future__ import annotations

from collections.abc import Mapping

from vicinal.ledger._database import Database
from vicinal.ledger._tables import MODELS

PUT = "put"
"""The part that says how many queries the model has put to the private records."""


def write_parts(database: Database, audience: int, parts: Mapping[str, str]) -> None:
    """Write parts of an audience's model, inside a transaction."""
    rows = [(audience, part, content) for part, content in parts.items()]
    database.replace(MODELS, rows)


def read_parts(database: Database, audience: int) -> dict[str, str]:
    """Return all parts of an audience's model by name; none where it has no model."""
    rows = database.read("SELECT part, content FROM models WHERE audience = ?", (audience,))
    return {str(part): str(content) for part, content in rows}
