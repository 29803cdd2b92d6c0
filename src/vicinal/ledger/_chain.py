"""What the ledger holds, as digests, and its history, as a chain of them.

**Digests.** The ledger has a sum, modulo 2^128, of a keyed digest of every row and its table's name
(a multiset hash: Bellare & Micciancio 1997, with a secret key). A commit adds the rows that it
wrote and subtracts those that it took away, so it costs what it changes. Opening adds up all rows
and compares: a bit that flipped, a row that is gone, twice there or older gives another sum. A long
value enters the digest of its row by its SHA-256, which processors have instructions for.

**Chain.** Every transaction that writes rows adds a link: the number of the link before plus one,
the clock, the sum, and a head, SHA-256 over these and the head before. A head
stands for the whole history: two ledgers with the same head have gone the same way. The witness
keeps the last one, so neither an earlier state nor another continuation is taken for this ledger.

The key keeps digests from confirming a guess of who was erased. Whoever has the key and may write
to the folder can make digests of anything; the witness still tells that the history is another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

from vicinal.errors import StoreDamaged
from vicinal.ledger._database import Database
from vicinal.ledger._id_encoding import keyed_digest
from vicinal.ledger._tables import Tables

Rows = Sequence[Sequence[Any]]
Key = tuple[Any, ...]

NO_HEAD = bytes(32)
"""The head before the first link."""

LONG = 1 << 10
"""Bytes of a value from which on its row's digest covers its SHA-256 instead."""

_DIGEST = 16
_MODULUS = 1 << 8 * _DIGEST
_DOMAIN = b"vicinal chain\x01"
_OTHER_ROWS = "The ledger is not what was written: its rows differ."


@dataclass(frozen=True, slots=True)
class ChainLink:
    """One link: the row of the table `chain`.

    - `number`: how many links there were before.
    - `clock`: the ledger's clock.
    - `content`: the sum.
    - `head`: digest of this link and, through the head before, of all earlier ones.
    """

    number: int
    clock: int
    content: bytes
    head: bytes

    @classmethod
    def after(cls, head: bytes, number: int, clock: int, content: bytes) -> ChainLink:
        """Return the link that follows on `head`."""
        counts = number.to_bytes(8) + clock.to_bytes(8)
        return cls(
            number, clock, content, hashlib.sha256(_DOMAIN + head + counts + content).digest()
        )

    def follows(self, before: ChainLink) -> bool:
        """Tell whether this link is the next one after another."""
        return self == ChainLink.after(before.head, before.number + 1, self.clock, self.content)


_NO_LINK = ChainLink(-1, 0, bytes(32), NO_HEAD)


class Chain:
    """The sum of all rows' digests and the last link, as of the last commit; see :func:`attach`.

    `key`: the store's secret key.
    """

    def __init__(self, key: bytes) -> None:
        self._key = keyed_digest(key, b"digests of rows")
        self._prefixes: dict[str, bytes] = {}
        self._sum = 0
        self._pending: int | None = None
        self._replaced: dict[str, dict[Key, int]] = {}
        self.last = _NO_LINK

    def enter(self, table: str, removed: Rows, added: Rows) -> None:
        """Take note of rows that a transaction takes away and writes."""
        if removed:
            self._replaced.pop(table, None)
        self._note(self.total(table, [added]) - self.total(table, [removed]))

    def has_digest(self, table: str, key: Key) -> bool:
        """Tell whether the digest of a row is known: :meth:`replace` noted it last."""
        return key in self._replaced.get(table, ())

    def replace(self, table: str, key: Key, before: Rows, after: Rows) -> None:
        """Take note of the row of a key that a transaction writes, takes away, or writes anew.

        `before`: the row of that key until now, if there is one and its digest is not known.
        `after`: the row from now on, if there is one.
        """
        digests = self._replaced.setdefault(table, {})
        old = digests.pop(key, None)
        new = self.total(table, [after])
        if after:
            digests[key] = new
        self._note(new - (self.total(table, [before]) if old is None else old))

    def total(self, table: str, batches: Iterable[Rows]) -> int:
        """Return the sum of the digests of rows, which come a good many at a time."""
        if table not in self._prefixes:
            name = hashlib.blake2b(table.encode(), key=self._key, digest_size=_DIGEST)
            self._prefixes[table] = name.digest()
        prefix = self._prefixes[table]
        return sum(_digest_of(prefix, row) for rows in batches for row in rows) % _MODULUS

    def forget(self) -> None:
        """Take note that a transaction was rolled back."""
        self._pending = None
        self._replaced.clear()

    @property
    def pending(self) -> bool:
        """Whether the present transaction has written rows."""
        return self._pending is not None

    def next(self, clock: int) -> ChainLink:
        """Return the link of the present transaction."""
        content = _content(self._sum + (self._pending or 0))
        return ChainLink.after(self.last.head, self.last.number + 1, clock, content)

    def commit(self, link: ChainLink) -> None:
        """Take note that the transaction of a link is durable; or go on from the link."""
        self._sum, self._pending, self.last = int.from_bytes(link.content), None, link

    def _note(self, change: int) -> None:
        self._pending = (self._pending or 0) + change


def attach(database: Database, key: bytes) -> Chain:
    """Check a database against its digests, and digest all that is written to it from now on.

    Raises StorageFailed if it holds anything else than what was written.
    """
    chain = Chain(key)
    links = list(islice(_links_backward(database, 2), 2))
    last, before = [*links, _NO_LINK, _NO_LINK][:2]
    if not links or last.content != _content_of_rows(database, chain):
        raise StoreDamaged(f"{_OTHER_ROWS} Restore a backup.")
    if not last.follows(before):
        raise StoreDamaged(
            "The ledger is not what was written: its last link differs. Restore a backup."
        )
    chain.commit(last)
    database.chain = chain
    return chain


def chain_faults(database: Database, key: bytes) -> list[str]:
    """Return in words what is wrong with rows and links, all of them."""
    links = [_NO_LINK, *reversed(list(_links_backward(database)))]
    same = links[-1].content == _content_of_rows(database, Chain(key))
    faults = [] if same else [_OTHER_ROWS]
    if not all(link.follows(before) for before, link in pairwise(links)):
        faults.append("The chain of commits is broken.")
    return faults


def _content_of_rows(database: Database, chain: Chain) -> bytes:
    """Return what the last link must hold: of all tables that are there, also unknown ones."""
    names = (name for name in database.tables() if name != Tables.CHAIN.name)
    return _content(sum(chain.total(name, database.scan(name)) for name in names))


def _content(total: int) -> bytes:
    return (total % _MODULUS).to_bytes(_DIGEST)


def descends(database: Database, clock: int, head: bytes) -> bool:
    """Tell whether the ledger was at this clock with this head once, and has gone on from there.

    It reads the links since then, by number, and no others: the clock never goes back.
    """
    later: ChainLink | None = None
    for link in _links_backward(database):
        if link.clock < clock or (later is not None and not later.follows(link)):
            return False
        if (link.clock, link.head) == (clock, head):
            return True
        later = link
    return False


def _links_backward(database: Database, batch: int = 256) -> Iterator[ChainLink]:
    """Yield all links, the last one first, without holding all of them."""
    before = f"number < ? ORDER BY number DESC LIMIT {batch}"
    number = 1 << 62
    while rows := database.rows(Tables.CHAIN, before, (number,)):
        yield from map(_link_of, rows)
        number = rows[-1][0]


def _link_of(row: Sequence[Any]) -> ChainLink:
    counts = all(isinstance(value, int) and 0 <= value < 1 << 63 for value in row[:2])
    if not counts or not all(isinstance(value, bytes) for value in row[2:]):
        raise StoreDamaged(
            "The ledger is not what was written: a link of its chain differs. Restore a backup."
        )
    return ChainLink(*row)


def _digest_of(prefix: bytes, row: Sequence[Any]) -> int:
    """Return the digest of a row, in an encoding that no other row has."""
    parts = [prefix]
    for value in row:
        kind = type(value)  # most values, encoded without a call
        if kind is int:
            parts.append(b"i%d;" % value)
        elif kind is bytes and len(value) < LONG:
            parts.append(b"b%d:%b" % (len(value), value))
        else:
            parts.append(_value(value))
    encoded = b"".join(parts)
    return int.from_bytes(hashlib.blake2b(encoded, digest_size=_DIGEST).digest(), "little")


def _value(value: Any) -> bytes:
    if isinstance(value, bytes):
        return _sized(b"b", value)
    if isinstance(value, int):
        return b"i%d;" % value
    if isinstance(value, str):
        return _sized(b"s", value.encode("utf-8", "surrogatepass"))
    # A number with a fraction was not written here: it must differ from what was.
    return b"n;" if value is None else b"o" + repr(value).encode() + b";"


def _sized(kind: bytes, content: bytes) -> bytes:
    """Return kind and length, and the content or, if it is long, its digest."""
    size = len(content)
    if size < LONG:
        return b"%b%d:%b" % (kind, size, content)
    return b"%b%d#%b" % (kind, size, hashlib.sha256(content).digest())
