"""The tables of the ledger, their version, and how older stores are brought up to it.

A memory is a row of `memories`: all records of one action with one outcome, folded. Every occurrence keeps
its own row in `records`, with the whole record as JSON. Columns beside the JSON are what is searched and
sorted by; they can be computed from it again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

METADATA = MetaData()

_NUMBER = BigInteger().with_variant(Integer, "sqlite")

schema_versions = Table(
    "schema_versions",
    METADATA,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("applied_at", String, nullable=False),
)

meta = Table(
    "meta",
    METADATA,
    Column("key", String, primary_key=True),
    Column("value", Text, nullable=False),
)

namespaces = Table(
    "namespaces",
    METADATA,
    Column("id", _NUMBER, primary_key=True),
    Column("digest", String(64), nullable=False, unique=True),
    Column("body", Text, nullable=False),  # the namespace as JSON, whatever characters it has
    Column("memories", Integer, nullable=False, default=0),
    Column("terms", BigInteger, nullable=False, default=0),
    sqlite_autoincrement=True,
)

memories = Table(
    "memories",
    METADATA,
    Column("number", _NUMBER, primary_key=True),
    Column("namespace_id", ForeignKey("namespaces.id"), nullable=False),
    Column("fold_key", String, nullable=False),
    Column("action_key", String, nullable=False),
    Column("type", String, nullable=False),
    Column("status", String, nullable=False),
    Column("category", String, nullable=False),
    Column("error_code", String, nullable=False),
    Column("tool", String, nullable=False),
    Column("importance", SmallInteger, nullable=False),
    Column("times", Integer, nullable=False),
    Column("first_seen", BigInteger, nullable=False),  # microseconds since 1970, as every time here
    Column("last_seen", BigInteger, nullable=False),
    Column("newest", String, nullable=False),  # id of the record that was seen last
    Column("description", Text, nullable=False),
    Column(
        "marks", String(64), nullable=False
    ),  # digest of tags, targets and names: rewritten only when they change
    Column("length", Integer, nullable=False),  # terms in the full-text index
    Column("admitted", Boolean, nullable=False),
    Column("dirty", Boolean, nullable=False),  # the vector index has to catch up
    Column("revision", Integer, nullable=False, default=0),  # counts what made it dirty
    Column("pinned", Boolean, nullable=False),
    Column("obsolete", Boolean, nullable=False, default=False),
    Column("feedback", Integer, nullable=False, default=0),
    Column("solution", ForeignKey("memories.number", ondelete="SET NULL")),
    UniqueConstraint("namespace_id", "fold_key"),
    Index("memories_action", "namespace_id", "action_key"),
    Index("memories_recent", "namespace_id", "last_seen"),
    Index("memories_dirty", "number", sqlite_where=text("dirty = 1"), postgresql_where=text("dirty")),
    Index(
        "memories_solution",
        "solution",
        sqlite_where=text("solution IS NOT NULL"),
        postgresql_where=text("solution IS NOT NULL"),
    ),
    # A number is a handle that was shown to models: it never comes back for another memory.
    sqlite_autoincrement=True,
)

records = Table(
    "records",
    METADATA,
    Column("number", _NUMBER, primary_key=True),
    Column("namespace_id", ForeignKey("namespaces.id"), nullable=False),
    Column("id", String, nullable=False),
    Column("memory", ForeignKey("memories.number", ondelete="CASCADE"), nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("type", String, nullable=False),
    Column("status", String, nullable=False),
    Column("action_key", String, nullable=False),
    Column("session", String, nullable=False),
    Column("tool_call_id", String, nullable=False),
    Column("body", Text, nullable=False),
    UniqueConstraint("namespace_id", "id"),
    Index("records_memory", "memory", "at"),
    Index("records_action", "namespace_id", "action_key", "status", "at"),
    Index("records_session", "namespace_id", "session", "at"),
    Index(
        "records_call",
        "namespace_id",
        "tool_call_id",
        sqlite_where=text("tool_call_id <> ''"),
        postgresql_where=text("tool_call_id <> ''"),
    ),
)

marks = Table(
    "marks",
    METADATA,
    Column("namespace_id", ForeignKey("namespaces.id"), primary_key=True),
    Column("kind", String(8), primary_key=True),
    Column("value", String, primary_key=True),
    Column("memory", ForeignKey("memories.number", ondelete="CASCADE"), primary_key=True),
    Index("marks_memory", "memory"),
    sqlite_with_rowid=False,
)

UPGRADES: tuple[Callable[[Connection], None], ...] = ()
"""Steps from each version to the next, the first from 1 to 2. A new store is made at the newest."""


def newest_version() -> int:
    """Return the version of the tables that this package writes."""
    return 1 + len(UPGRADES)


# ---------------------------------------------------------------------- values

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST = (datetime(1, 1, 3, tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LAST = (datetime(9999, 12, 29, tzinfo=UTC) - _EPOCH) // _MICROSECOND
_MAX_KEY_CHARS = 200
_HASHED = "\x01"


def micros(at: datetime) -> int:
    """Return a time as microseconds since 1970, within what can be shown in every zone again."""
    return max(_FIRST, min(_LAST, (at - _EPOCH) // _MICROSECOND))


def moment(at: int, zone: tzinfo | None) -> datetime:
    """Return the time of so many microseconds since 1970, in a zone."""
    return (_EPOCH + at * _MICROSECOND).astimezone(zone or UTC)


def clean(value: str) -> str:
    """Return a text that every database takes: without NUL, and without halves of surrogate pairs."""
    return value.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def index_key(value: str) -> str:
    """Return a text fit for an index: itself where short and plain, else a digest unlike any plain text."""
    if len(value) <= _MAX_KEY_CHARS and not value.startswith(_HASHED) and clean(value) == value:
        return value
    return _HASHED + digest(value)


def digest(*values: str) -> str:
    """Return a digest that is another for every other sequence of texts."""
    hashed = hashlib.sha256()
    for value in values:
        raw = value.encode("utf-8", "surrogatepass")
        hashed.update(len(raw).to_bytes(8, "big") + raw)
    return hashed.hexdigest()
