"""Subject ids as bytes: framed, so that they can be found in a file, and hashed with a key."""

import hashlib
import hmac
import re
from collections import Counter
from collections.abc import Iterable
from unicodedata import normalize
from urllib.parse import quote, unquote

from vicinal.checks import SubjectId
from vicinal.errors import InvalidInput

MOST_BYTES = 1000
"""Longest framed id: it fits into one page of a database, so that it stands there in one piece."""

OPENING = b"<id:"
"""How every framed id begins."""

_PLAIN = "".join(chr(code) for code in range(33, 127) if chr(code) not in "<>%")
_NEED_NO_ESCAPE = re.compile("[!-$&-;=?-~\n]*")
_WHOLE_NUMBER = ord("i")
_LEADING_ZEROS = re.compile(r"(?<![0-9])0+(?=[0-9])")
_FRAMED = re.compile(rb"<id:[is][!-;=?-~]*>")


def frame_id(subject: SubjectId) -> bytes:
    """Return an id as it is stored, such as ``<id:i7>`` or ``<id:sanna>``.

    Raises InvalidInput if it would be longer than :data:`MOST_BYTES`.
    """
    frame = framed_at_any_length(subject)
    if len(frame) > MOST_BYTES:
        raise InvalidInput(
            f"The 'subjects' parameter must hold ids of at most {MOST_BYTES} bytes. Got a longer "
            "one; hash it first."
        )
    return frame


def framed_at_any_length(subject: SubjectId) -> bytes:
    """Return :func:`frame_id` also of an id that is too long to be stored."""
    kind, text = "i" if isinstance(subject, int) else "s", str(subject)
    return f"<id:{kind}{quote(text, safe=_PLAIN)}>".encode()


def framed_all(subjects: Iterable[SubjectId]) -> list[bytes]:
    """Return what :func:`frame_id` returns for each of many ids, sooner."""
    ids = list(subjects)
    for of_type, kind in ((str, "<id:s"), (int, "<id:i")):
        if set(map(type, ids)) == {of_type}:
            texts = list(map(str, ids))
            # A line break needs an escape, so none stands in an id that needs none.
            joined = "\n".join(texts)
            plain = _NEED_NO_ESCAPE.fullmatch(joined) and joined.count("\n") == len(texts) - 1
            if plain and max(map(len, texts)) <= MOST_BYTES - len(kind) - 1:
                return (kind + joined.replace("\n", f">\n{kind}") + ">").encode().split(b"\n")
    return [frame_id(one) for one in ids]


def parse_framed_id(stored: bytes) -> SubjectId:
    """Return the id that :func:`frame_id` made `stored` of."""
    text = stored[5:-1].decode()
    if stored[4] == _WHOLE_NUMBER:
        return int(text)
    return unquote(text) if "%" in text else text


def fold_ids(subjects: Iterable[SubjectId]) -> list[str]:
    """Return ids without leading zeros, case, blanks and width: equal ones may be one person's."""
    # No id holds a line break. Unicode compares identifiers so: forms and case, twice.
    text = normalize("NFKD", normalize("NFD", "\n".join(map(str, subjects))).casefold())
    text = normalize("NFKD", text.replace(" ", "").replace("\u0131", "i").casefold())
    return _LEADING_ZEROS.sub("", text).split("\n") if text else []


def find_similar_ids(subjects: Iterable[SubjectId]) -> set[SubjectId]:
    """Return those of some ids that equal another one of them once they are :func:`fold_ids`."""
    ids = list(dict.fromkeys(subjects))
    if not any(isinstance(one, str) for one in ids):
        return set()
    names = fold_ids(ids)
    counts = Counter(names)
    return {one for one, name in zip(ids, names, strict=True) if counts[name] > 1}


def first_framed_id(content: bytes, at: int = 0) -> bytes | None:
    """Return the framed id that begins at a place of `content`; None if none does."""
    match = _FRAMED.match(content, at)
    return None if match is None else match[0]


def keyed_hash(key: bytes, subject: SubjectId) -> bytes:
    """Return 32 bytes that tell an id only to whoever has the key, and a guess of the id."""
    kind = b"i" if isinstance(subject, int) else b"s"
    return hmac.digest(key, kind + str(subject).encode(), hashlib.sha256)


def folded_hashes(key: bytes, subjects: Iterable[SubjectId]) -> list[bytes]:
    """Return keyed hashes of ids as they are :func:`fold_ids`; never those of ids themselves."""
    return [hmac.digest(key, b"f" + one.encode(), hashlib.sha256) for one in fold_ids(subjects)]


def keyed_digest(key: bytes, content: bytes) -> bytes:
    """Return 32 bytes that tell content only to whoever has the key; never those of an id."""
    return hmac.digest(key, b"r" + content, hashlib.sha256)
