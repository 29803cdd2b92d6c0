"""`vicinal certificate`: the page and the JSON that go into a file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeGuard

import typer

from vicinal.cli._options import Json, StorePath
from vicinal.cli._output import as_json, output_folder, read_json, write_file
from vicinal.cli._shards import AcceptLoss, opened_at
from vicinal.errors import InvalidInput

Stated = Annotated[str | None, typer.Option(help="The operator's own words.")]


def certificate(
    store: StorePath,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for both files.")],
    audit: Annotated[
        list[Path] | None, typer.Option(help="A report of `vicinal audit --out`; repeat for more.")
    ] = None,
    controller: Stated = None,
    purpose: Stated = None,
    retention: Stated = None,
    vouched_by: Stated = None,
    accuracy: Stated = None,
    json: Json = False,
    accept_loss: AcceptLoss = False,
) -> None:
    """Write certificate.html and certificate.json: what is guaranteed, by what, shown how."""
    from datetime import UTC, datetime

    from vicinal import __version__
    from vicinal.reports import certificate_page, deployment_certificate

    audits = [read_audit(path) for path in audit or []]
    with opened_at(store, accept_loss=accept_loss) as opened:
        facts = opened.facts()
    for path, report in zip(audit or [], audits, strict=True):
        if report.get("identity") not in (None, facts.get("identity")):
            raise InvalidInput(f"The file {path} is a report of another store. Audit this one.")
    content = deployment_certificate(
        facts, __version__, datetime.now(UTC).isoformat(timespec="seconds"),
        controller=controller, purpose=purpose, retention=retention, vouched_by=vouched_by,
        accuracy=accuracy, audits=audits,
    )  # fmt: skip
    folder = output_folder(out)
    write_file(folder / "certificate.json", as_json(content) + "\n")
    write_file(folder / "certificate.html", certificate_page(content))
    typer.echo(as_json(content) if json else f"Written: {folder / 'certificate.html'} and .json")


_REPORT = {"at": str, "version": str, "holds": bool, "claims": list}
_CLAIM = {
    "mechanism": str, "world": str, "lower": float, "claim": float, "ratio": float,
    "confidence": float, "controls": list,
}  # fmt: skip
_SEEN = {"epsilon": float}
_CONTROL = {"name": str, "caught": bool}


def read_audit(path: Path) -> dict[str, Any]:
    """Return a report that `vicinal audit --out` wrote."""
    report = read_json(path, "audit")
    if not (_has(report, _REPORT) and all(_is_claim(claim) for claim in report["claims"])):
        raise InvalidInput(f"The file {path} is no report of `vicinal audit --out`.")
    return report


def _is_claim(claim: Any) -> bool:
    """Tell whether a claim holds all that the certificate shows of it."""
    return (
        _has(claim, _CLAIM)
        and all(_has(control, _CONTROL) for control in claim["controls"])
        and ("would_have_seen" not in claim or _has(claim["would_have_seen"], _SEEN))
    )


def _has(value: Any, fields: Mapping[str, type]) -> TypeGuard[dict[str, Any]]:
    """Tell whether a JSON object has these fields, of these types; numbers must be finite."""
    return isinstance(value, dict) and all(
        _is(value.get(name), kind) for name, kind in fields.items()
    )


def _is(value: Any, kind: type) -> bool:
    if kind is float:
        return type(value) in (int, float) and math.isfinite(value)
    return isinstance(value, kind)
