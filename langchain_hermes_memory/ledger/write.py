"""What transactions change in the ledger: records come in and are folded into memories, or are forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pydantic_core import PydanticSerializationError
from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from langchain_hermes_memory.ledger.fulltext import SqliteFullText
from langchain_hermes_memory.ledger.schema import (
    clean,
    digest,
    index_key,
    marks,
    memories,
    micros,
    namespaces,
    records,
)
from langchain_hermes_memory.record import Namespace, Record
from langchain_hermes_memory.words import terms

NEWEST = (
    "type",
    "status",
    "action_key",
    "category",
    "error_code",
    "tool",
    "importance",
    "newest",
    "description",
    "marks",
)
"""Columns of a memory that follow its newest record."""

# What every capture runs is built once: building a statement costs more than running it.
_FOLDED = select(
    memories.c.number,
    memories.c.first_seen,
    memories.c.last_seen,
    memories.c.newest,
    memories.c.description,
    memories.c.marks,
    memories.c.length,
    memories.c.admitted,
    memories.c.dirty,
    memories.c.pinned,
).where(memories.c.namespace_id == bindparam("namespace"), memories.c.fold_key == bindparam("fold"))
_FOLDS = ("first_seen", "last_seen", "length", "admitted", "dirty", "pinned")
"""Columns that every fold sets."""
_FOLD = (
    update(memories)
    .where(memories.c.number == bindparam("of_number"))
    .values(
        {
            "times": memories.c.times + 1,
            "revision": memories.c.revision + bindparam("changes"),
            **{name: bindparam(name) for name in _FOLDS},
        }
    )
)
_FOLD_NEWEST = _FOLD.values({name: bindparam(name) for name in NEWEST})
_GROWN = (
    update(namespaces)
    .where(namespaces.c.id == bindparam("namespace"))
    .values(
        memories=namespaces.c.memories + bindparam("more_memories"),
        terms=namespaces.c.terms + bindparam("more_terms"),
    )
)


class Entry(NamedTuple):
    """A record, turned into rows before the transaction begins."""

    at: int
    record_row: dict[str, Any]
    newest_columns: dict[str, Any]
    """Values of `NEWEST`."""
    mark_rows: list[dict[str, str]]
    terms: list[str]


def entry(record: Record) -> Entry:
    """Turn a record into rows."""
    try:
        body = record.model_dump_json()
    except PydanticSerializationError:  # a text holds half of a surrogate pair
        record = Record.model_validate(_cleaned(record.model_dump()))
        body = record.model_dump_json()
    at = micros(record.timestamp)
    result, action = record.execution_result, record.action
    action_key = index_key(action.key)
    names = [record.tool_name, result.error_code, *(target.value for target in action.targets)]
    mark_rows = [
        {"kind": kind, "value": index_key(value)}
        for kind, values in (("target", [target.value for target in action.targets]), ("tag", record.tags))
        for value in dict.fromkeys(values)
    ]
    described = terms(record.description)
    known = set(described)
    named = [term for name in names for term in terms(name)]
    shared = {"type": record.type.value, "status": result.status.value, "action_key": action_key}
    return Entry(
        at=at,
        record_row={
            **shared,
            "id": index_key(record.id),
            "at": at,
            "session": index_key(record.context.session_id),
            "tool_call_id": index_key(record.context.tool_call_id),
            "body": body,
        },
        newest_columns={
            **shared,
            "category": result.category.value if result.category else "",
            "error_code": index_key(result.error_code),
            "tool": index_key(record.tool_name),
            "importance": record.importance_score,
            "newest": index_key(record.id),
            "description": clean(record.description),
            "marks": digest(*names, *record.tags),
        },
        mark_rows=mark_rows,
        terms=described + list(dict.fromkeys(term for term in named if term not in known)),
    )


def namespace_id(connection: Connection, namespace: Namespace) -> int | None:
    """Return the id of a namespace that has been written to."""
    found: int | None = connection.scalar(
        select(namespaces.c.id).where(namespaces.c.digest == digest(namespace.user, namespace.agent))
    )
    return found


def make_namespace(connection: Connection, namespace: Namespace) -> int:
    """Return the id of a new namespace."""
    body = Namespace(user=_speakable(namespace.user), agent=_speakable(namespace.agent))
    values = {"digest": digest(namespace.user, namespace.agent), "body": body.model_dump_json()}
    return _new_key(connection.execute(insert(namespaces), values).inserted_primary_key)


def add(
    connection: Connection, namespace: int, new: Entry, *, fold_key: str, admitted: bool, pinned: bool
) -> int:
    """Add a record and fold it into its memory; return the memory's number."""
    fold_key = index_key(fold_key)
    old = connection.execute(_FOLDED, {"namespace": namespace, "fold": fold_key}).first()
    if old is None:
        number = _begin_memory(
            connection, namespace, new, fold_key=fold_key, admitted=admitted, pinned=pinned
        )
    else:
        number = int(old.number)
    connection.execute(insert(records), {**new.record_row, "namespace_id": namespace, "memory": number})
    if old is not None:
        _fold(connection, namespace, new, old, admitted=admitted, pinned=pinned)
    return number


def _begin_memory(
    connection: Connection, namespace: int, new: Entry, *, fold_key: str, admitted: bool, pinned: bool
) -> int:
    columns = {
        **new.newest_columns,
        "namespace_id": namespace,
        "fold_key": fold_key,
        "times": 1,
        "first_seen": new.at,
        "last_seen": new.at,
        "length": len(new.terms),
        "admitted": admitted,
        "dirty": admitted and bool(new.newest_columns["description"]),
        "pinned": pinned,
    }
    number = _new_key(connection.execute(insert(memories), columns).inserted_primary_key)
    _put_marks(connection, namespace, number, new)
    SqliteFullText.put(connection, namespace, number, new.terms)
    connection.execute(_GROWN, {"namespace": namespace, "more_memories": 1, "more_terms": len(new.terms)})
    return number


def _fold(
    connection: Connection, namespace: int, new: Entry, old: Any, *, admitted: bool, pinned: bool
) -> None:
    values = {
        "of_number": old.number,
        "first_seen": min(old.first_seen, new.at),
        "last_seen": max(old.last_seen, new.at),
        "length": old.length,
        "admitted": admitted or old.admitted,
        "pinned": pinned or old.pinned,
    }
    changed = admitted and not old.admitted
    newer = (new.at, new.newest_columns["newest"]) > (old.last_seen, old.newest)
    if newer:
        values.update(new.newest_columns)
        described_anew = values["description"] != old.description
        changed = changed or (described_anew and values["admitted"])
        if described_anew or values["marks"] != old.marks:
            values["length"] = len(new.terms)
            _rewrite(connection, namespace, old.number, new, old_length=old.length)
    values.update(dirty=changed or old.dirty, changes=int(changed))
    connection.execute(_FOLD_NEWEST if newer else _FOLD, values)


def _dirty() -> dict[str, Any]:
    return {"dirty": True, "revision": memories.c.revision + 1}


def _rewrite(connection: Connection, namespace: int, number: int, new: Entry, *, old_length: int) -> None:
    """Replace words and marks of a memory."""
    connection.execute(delete(marks).where(marks.c.memory == number))
    _put_marks(connection, namespace, number, new)
    SqliteFullText.remove(connection, [number])
    SqliteFullText.put(connection, namespace, number, new.terms)
    grown = len(new.terms) - old_length
    connection.execute(_GROWN, {"namespace": namespace, "more_memories": 0, "more_terms": grown})


def _put_marks(connection: Connection, namespace: int, number: int, new: Entry) -> None:
    rows = [{**row, "namespace_id": namespace, "memory": number} for row in new.mark_rows]
    if rows:
        connection.execute(insert(marks), rows)


# ---------------------------------------------------------------------- changes by number


def change(connection: Connection, namespace: int, numbers: Iterable[int], values: dict[str, Any]) -> int:
    """Set columns of memories; return how many there were."""
    target = update(memories).where(
        memories.c.namespace_id == namespace, memories.c.number.in_(list(numbers))
    )
    return int(connection.execute(target.values(values)).rowcount)


def rescore(connection: Connection, namespace: int, record: Record, *, admitted: bool) -> bool:
    """Replace the importance of a stored record; return whether it is there."""
    mine = records.c.namespace_id == namespace, records.c.id == index_key(record.id)
    number = connection.scalar(select(records.c.memory).where(*mine))
    if number is None:
        return False
    connection.execute(update(records).where(*mine).values(body=entry(record).record_row["body"]))
    memory = update(memories).where(memories.c.number == number)
    newest = memory.where(memories.c.newest == index_key(record.id))
    connection.execute(newest.values(importance=record.importance_score))
    if admitted:
        connection.execute(memory.where(~memories.c.admitted).values(admitted=True, **_dirty()))
    return True


def mark_indexed(connection: Connection, indexed: Iterable[tuple[int, int]]) -> None:
    """Note that the vector index holds memories as of a revision; what changed since stays pending."""
    rows = [{"of_number": number, "of_revision": revision} for number, revision in indexed]
    statement = update(memories).where(
        memories.c.number == bindparam("of_number"), memories.c.revision == bindparam("of_revision")
    )
    if rows:
        connection.execute(statement.values(dirty=False), rows)


def mark_all_pending(connection: Connection, namespace: int | None) -> int:
    """Have the admitted memories indexed again; return how many they are."""
    statement = update(memories).where(memories.c.admitted, memories.c.description != "")
    if namespace is not None:
        statement = statement.where(memories.c.namespace_id == namespace)
    return int(connection.execute(statement.values(_dirty())).rowcount)


# ---------------------------------------------------------------------- forgetting


def forget(connection: Connection, namespace: int, numbers: Iterable[int]) -> list[int]:
    """Remove memories with their records, words and marks; return the numbers of those that were there."""
    mine = memories.c.namespace_id == namespace, memories.c.number.in_(list(numbers))
    rows = connection.execute(select(memories.c.number, memories.c.length).where(*mine)).all()
    gone = [int(row.number) for row in rows]
    SqliteFullText.remove(connection, gone)
    connection.execute(delete(memories).where(*mine))
    shrunk = {
        "namespace": namespace,
        "more_memories": -len(rows),
        "more_terms": -sum(row.length for row in rows),
    }
    connection.execute(_GROWN, shrunk)
    return gone


def forget_records(connection: Connection, namespace: int, ids: Sequence[str]) -> list[int]:
    """Remove records; return the numbers of the memories that had no other and went with them."""
    mine = records.c.namespace_id == namespace, records.c.id.in_([index_key(record_id) for record_id in ids])
    touched = connection.scalars(select(records.c.memory).where(*mine).distinct()).all()
    connection.execute(delete(records).where(*mine))
    left = set(connection.scalars(select(records.c.memory).where(records.c.memory.in_(touched)).distinct()))
    for number in sorted(left):
        _count_again(connection, namespace, number)
    return forget(connection, namespace, [number for number in touched if number not in left])


def _count_again(connection: Connection, namespace: int, number: int) -> None:
    """Compute a memory anew from the records that it has left."""
    mine = records.c.memory == number
    times, first, last = connection.execute(
        select(func.count(), func.min(records.c.at), func.max(records.c.at)).where(mine)
    ).one()
    body = connection.scalar(
        select(records.c.body).where(mine).order_by(records.c.at.desc(), records.c.id.desc()).limit(1)
    )
    newest = entry(Record.model_validate_json(body or ""))
    length = connection.scalar(select(memories.c.length).where(memories.c.number == number)) or 0
    _rewrite(connection, namespace, number, newest, old_length=length)
    connection.execute(
        update(memories)
        .where(memories.c.number == number)
        .values(
            **newest.newest_columns,
            times=times,
            first_seen=first,
            last_seen=last,
            length=len(newest.terms),
            dirty=memories.c.admitted if newest.newest_columns["description"] else False,
            revision=memories.c.revision + 1,
        )
    )


# ---------------------------------------------------------------------- values


def _speakable(value: str) -> str:
    """Return a text that JSON can hold."""
    return value.encode("utf-8", "replace").decode()


def _cleaned(value: Any) -> Any:
    if isinstance(value, str) and type(value) is str:
        return clean(value)
    if isinstance(value, dict):
        return {key: _cleaned(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(item) for item in value]
    return value


def _new_key(key: Any) -> int:
    return int(key[0])
