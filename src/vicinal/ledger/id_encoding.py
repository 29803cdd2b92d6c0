"""Subject ids as bytes: framed, so that they can be found in a file, and hashed with a key.

A framed id is ``<id:i7>`` for the integer 7 and ``<id:sanna>`` for the text "anna". Its brackets
never occur inside it, so no framed id is part of another one, and a search through the bytes of a
file finds every id that was not erased.
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Iterable
from urllib.parse import quote, unquote

from vicinal.checks import SubjectId
from vicinal.errors import InvalidInput
from vicinal.ledger.id_folding import fold_ids

MAX_FRAME_BYTES = 1000
"""Maximal length of a framed id in bytes. It fits into a row of
:mod:`vicinal.ledger.subject_pages`, hence into one page of a database file, so the file holds it
in one piece."""

OPENING = b"<id:"
"""The first bytes of every framed id."""

_UNESCAPED = "".join(chr(code) for code in range(33, 127) if chr(code) not in "<>%")
"""Characters that a framed id holds unescaped: visible ASCII without ``<``, ``>`` and ``%``."""

_NEED_NO_ESCAPE = re.compile("[!-$&-;=?-~\n]*")
"""Lines of unescaped characters only."""

_INTEGER_KIND = ord("i")
"""The byte after the opening of an integer's frame; "s" stands there for text."""

_FRAMED = re.compile(rb"<id:[is][!-;=?-~]*>")


def frame_id(subject: SubjectId) -> bytes:
    """Return the framed form in which an id is stored, such as ``<id:i7>`` or ``<id:sanna>``.

    Raises InvalidInput if it would be longer than :data:`MAX_FRAME_BYTES`.
    """
    frame = frame_id_of_any_length(subject)
    if len(frame) > MAX_FRAME_BYTES:
        raise InvalidInput(
            f"The 'subjects' parameter must hold ids of at most {MAX_FRAME_BYTES} bytes. Got a "
            "longer one; hash it first."
        )
    return frame


def frame_id_of_any_length(subject: SubjectId) -> bytes:
    """Return the framed form of an id of any length, also one that is too long to be stored."""
    kind = "i" if isinstance(subject, int) else "s"
    return f"<id:{kind}{quote(str(subject), safe=_UNESCAPED)}>".encode()


def frame_ids(subjects: Iterable[SubjectId]) -> list[bytes]:
    """Return the framed form of each id; faster than :func:`frame_id` for many ids.

    Raises InvalidInput if a framed id would be longer than :data:`MAX_FRAME_BYTES`.
    """
    ids = list(subjects)
    for id_type, opening in ((str, "<id:s"), (int, "<id:i")):
        if set(map(type, ids)) == {id_type}:
            texts = list(map(str, ids))
            # All ids are joined by line breaks and framed by one replacement. That is correct if
            # no id needs an escape, hence none holds a line break.
            joined = "\n".join(texts)
            is_plain = _NEED_NO_ESCAPE.fullmatch(joined) and joined.count("\n") == len(texts) - 1
            if is_plain and max(map(len, texts)) <= MAX_FRAME_BYTES - len(opening) - 1:
                framed = opening + joined.replace("\n", f">\n{opening}") + ">"
                return framed.encode().split(b"\n")
    return [frame_id(subject) for subject in ids]


def parse_framed_id(framed_id: bytes) -> SubjectId:
    """Return the id of a framed id; the inverse of :func:`frame_id`."""
    text = framed_id[5:-1].decode()
    if framed_id[4] == _INTEGER_KIND:
        return int(text)
    return unquote(text) if "%" in text else text


def match_framed_id(content: bytes, offset: int = 0) -> bytes | None:
    """Return the framed id that begins at an offset of a file's content; None if none does."""
    match = _FRAMED.match(content, offset)
    return None if match is None else match[0]


def keyed_hash(key: bytes, subject: SubjectId) -> bytes:
    """Return the HMAC-SHA-256 of an id, 32 bytes; without the key no guess can be tested."""
    kind = b"i" if isinstance(subject, int) else b"s"
    return hmac.digest(key, kind + str(subject).encode(), hashlib.sha256)


def fold_and_hash(
    key: bytes,
    subjects: Iterable[SubjectId],
    fold: Callable[[Iterable[SubjectId]], list[str]] = fold_ids,
) -> list[bytes]:
    """Return the HMAC-SHA-256 of each id folded by `fold`; never a :func:`keyed_hash`."""
    hash_prefix = b"f"
    return [
        hmac.digest(key, hash_prefix + folded.encode(), hashlib.sha256) for folded in fold(subjects)
    ]


def keyed_digest(key: bytes, content: bytes) -> bytes:
    """Return the HMAC-SHA-256 of `content`, 32 bytes; it never equals a hash of an id."""
    return hmac.digest(key, b"r" + content, hashlib.sha256)
