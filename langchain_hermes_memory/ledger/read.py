"""What is read from the ledger: memories with what has become of them, records, candidates, counts."""

from __future__ import annotations

import functools
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from pydantic import ValidationError
from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Row,
    ScalarSelect,
    Select,
    and_,
    bindparam,
    exists,
    func,
    literal_column,
    or_,
    select,
)

from langchain_hermes_memory.ledger.schema import (
    index_key,
    marks,
    memories,
    micros,
    moment,
    namespaces,
    records,
)
from langchain_hermes_memory.record import (
    Lifecycle,
    Memory,
    Namespace,
    Occurrences,
    Record,
    RecordType,
    Status,
)

logger = logging.getLogger(__name__)

MAX_RECORD_IDS = 200
"""Records that a memory names."""
CHUNK = 500
"""Numbers in one statement."""

NAMESPACE: BindParameter[int] = bindparam("namespace")
_NUMBERS: BindParameter[int] = bindparam("numbers", expanding=True)
# `+ 0` keeps SQLite from going through a whole namespace, or all records of a memory, for a few numbers.
_BY_NUMBER = and_(memories.c.namespace_id + 0 == NAMESPACE, memories.c.number.in_(_NUMBERS))
FAILED = (Status.FAILURE.value, Status.PARTIAL.value)


class Pending(NamedTuple):
    """A memory that the vector index has yet to take in."""

    number: int
    namespace: Namespace
    description: str
    revision: int
    """Goes back into `Ledger.mark_indexed`."""


# ---------------------------------------------------------------------- memories


def load_memories(
    connection: Connection,
    namespace: int,
    numbers: Sequence[int],
    *,
    at: datetime | None,
    window: timedelta,
    recurring_after: int,
) -> list[Memory]:
    """Return memories in the order of their numbers as given; unknown numbers are left out."""
    found: dict[int, Memory] = {}
    statement = _memories_statement(recurring_after)
    for start in range(0, len(numbers), CHUNK):
        wanted = {"namespace": namespace, "numbers": list(numbers[start : start + CHUNK])}
        rows = connection.execute(statement, wanted).all()
        ids: dict[int, list[str]] = {row.number: [row.newest] for row in rows if row.times == 1}
        folded = [row.number for row in rows if row.times > 1]
        for number, record_id in (
            connection.execute(_RECORD_IDS, {**wanted, "numbers": folded}) if folded else ()
        ):
            ids.setdefault(number, []).append(record_id)
        for row in rows:
            memory = _memory(row, ids.get(row.number, ()), at, window)
            if memory is not None:
                found[memory.number] = memory
    return [found[number] for number in dict.fromkeys(numbers) if number in found]


@functools.cache
def _memories_statement(recurring_after: int) -> Select[Any]:
    """Build the statement that brings memories, their newest records and what their siblings say."""
    newest, solution, solving = records.alias("newest"), memories.alias("solution"), records.alias("solving")
    return (
        select(
            memories,
            newest.c.body,
            solving.c.body.label("solution_body"),
            *_successes(),
            _crowd(recurring_after).label("crowded_since"),
            _same_action().label("action_times"),
        )
        .join(
            newest, and_(newest.c.namespace_id == memories.c.namespace_id, newest.c.id == memories.c.newest)
        )
        .outerjoin(solution, solution.c.number == memories.c.solution)
        .outerjoin(
            solving,
            and_(solving.c.namespace_id == solution.c.namespace_id, solving.c.id == solution.c.newest),
        )
        .where(_BY_NUMBER)
    )


def _successes() -> tuple[ColumnElement[Any], ...]:
    """Return, for a failure: when and as which memory its action succeeded next, and when last before."""
    other = records.alias("other")
    same = and_(
        memories.c.status.in_(FAILED),
        other.c.namespace_id == memories.c.namespace_id,
        other.c.action_key == memories.c.action_key,
        other.c.status == Status.SUCCESS.value,
    )
    after = (
        select(other.c.at)
        .where(same, other.c.at > memories.c.last_seen)
        .order_by(other.c.at, other.c.id)
        .limit(1)
    )
    before = select(func.max(other.c.at)).where(same, other.c.at < memories.c.first_seen)
    return (
        after.scalar_subquery().label("resolved_at"),
        after.with_only_columns(other.c.memory).scalar_subquery().label("resolved_by"),
        before.scalar_subquery().label("worked_until"),
    )


def _crowd(recurring_after: int) -> ScalarSelect[Any]:
    """Return since when a failure was seen that often: the time of its `recurring_after`-th newest record."""
    occurrence = records.alias("occurrence")
    mine = and_(memories.c.status.in_(FAILED), occurrence.c.memory == memories.c.number)
    newest_first = select(occurrence.c.at).where(mine).order_by(occurrence.c.at.desc())
    return newest_first.offset(recurring_after - 1).limit(1).scalar_subquery()


def _same_action() -> ScalarSelect[Any]:
    sibling = memories.alias("sibling")
    same = and_(
        sibling.c.namespace_id == memories.c.namespace_id, sibling.c.action_key == memories.c.action_key
    )
    return select(func.sum(sibling.c.times)).where(same).scalar_subquery()


def _record_ids_statement() -> Select[Any]:
    """Build the statement that brings the ids of the newest records of each memory."""
    newest = records.alias("newest")
    latest = (
        select(newest.c.number)
        .where(newest.c.memory == memories.c.number)
        .order_by(newest.c.at.desc(), newest.c.id.desc())
        .limit(MAX_RECORD_IDS)
    )
    return (
        select(records.c.memory, records.c.id)
        .join(memories, memories.c.number == records.c.memory + 0)
        .where(_BY_NUMBER, records.c.number.in_(latest))
        .order_by(records.c.memory, records.c.at.desc(), records.c.id.desc())
    )


_RECORD_IDS = _record_ids_statement()


def _memory(row: Row[Any], ids: Iterable[str], at: datetime | None, window: timedelta) -> Memory | None:
    record = read_record(row.body)
    if record is None:
        return None
    zone = record.timestamp.tzinfo
    end = row.last_seen if at is None else micros(at)
    recurs = row.crowded_since is not None and row.crowded_since > end - window // timedelta(microseconds=1)
    if row.resolved_at is not None:
        lifecycle = Lifecycle.RESOLVED
    else:
        lifecycle = Lifecycle.RECURRING if recurs else Lifecycle.OPEN
    solution = read_record(row.solution_body) if row.solution_body else None
    return Memory(
        number=row.number,
        record=record if record.pinned == row.pinned else record.model_copy(update={"pinned": row.pinned}),
        occurrences=Occurrences(
            times=row.times,
            first_seen=moment(row.first_seen, zone),
            last_seen=moment(row.last_seen, zone),
            record_ids=tuple(ids),
            action_times=row.action_times,
        ),
        lifecycle=lifecycle,
        resolved_at=None if row.resolved_at is None else moment(row.resolved_at, zone),
        resolved_by=row.resolved_by,
        worked_until=None if row.worked_until is None else moment(row.worked_until, zone),
        solution=row.solution,
        solution_text=solution.original_command if solution else "",
        obsolete=row.obsolete,
        feedback=row.feedback,
    )


def read_record(body: str) -> Record | None:
    """Return a stored record; one that cannot be read is logged and left out: it costs itself alone."""
    try:
        return Record.model_validate_json(body)
    except ValidationError as error:
        logger.warning("A stored record cannot be read and is left out: %s", error.errors()[0]["msg"])
        return None


# ---------------------------------------------------------------------- records


def session_records(
    connection: Connection, namespace: int, session_id: str, limit: int, kind: RecordType | None
) -> list[Record]:
    """Return the newest records of a session, newest first."""
    statement = _of_session(select(records.c.body), namespace, session_id)
    if kind is not None:
        statement = statement.where(records.c.type == kind.value)
    found = (read_record(body) for body in connection.scalars(statement.limit(limit)))
    return [record for record in found if record is not None]


def session_numbers(connection: Connection, namespace: int, session_id: str, limit: int) -> list[int]:
    """Return the memories of the newest records of a session, newest first."""
    statement = _of_session(select(records.c.memory), namespace, session_id).limit(limit)
    return list(dict.fromkeys(connection.scalars(statement)))


def _of_session(statement: Select[Any], namespace: int, session_id: str) -> Select[Any]:
    mine = records.c.namespace_id == namespace, records.c.session == index_key(session_id)
    return statement.where(*mine).order_by(records.c.at.desc(), records.c.id.desc())


def recorded_calls(
    connection: Connection, namespace: int, session_id: str, tool_call_ids: Iterable[str]
) -> set[str]:
    """Return those of the calls that a session has a record of."""
    keys = {index_key(call): call for call in tool_call_ids if call}
    statement = select(records.c.tool_call_id).where(
        records.c.namespace_id == namespace,
        records.c.tool_call_id != literal_column("''"),  # as the partial index has it
        records.c.tool_call_id.in_(list(keys)),
        records.c.session == index_key(session_id),
    )
    return {keys[key] for key in connection.scalars(statement)}


# ---------------------------------------------------------------------- candidates


def by_action(connection: Connection, namespace: int, action_key: str, *, admitted_only: bool) -> list[int]:
    """Return the memories of an action, newest first."""
    mine = memories.c.namespace_id == namespace, memories.c.action_key == index_key(action_key)
    return _newest_first(connection, select(memories.c.number).where(*mine), admitted_only=admitted_only)


def by_targets(
    connection: Connection, namespace: int, values: Iterable[str], limit: int, *, admitted_only: bool
) -> list[int]:
    """Return the memories of targets: those that have most of them first, then the newest."""
    keys = list({index_key(value) for value in values})
    statement = (
        select(memories.c.number)
        .join(marks, marks.c.memory == memories.c.number)
        .where(marks.c.namespace_id == namespace, marks.c.kind == "target", marks.c.value.in_(keys))
        .group_by(memories.c.number, memories.c.last_seen)
        .order_by(func.count().desc())
        .limit(limit)
    )
    return _newest_first(connection, statement, admitted_only=admitted_only)


def _newest_first(connection: Connection, statement: Select[Any], *, admitted_only: bool) -> list[int]:
    if admitted_only:
        statement = statement.where(memories.c.admitted)
    return list(connection.scalars(statement.order_by(memories.c.last_seen.desc(), memories.c.number.desc())))


class Filters(NamedTuple):
    """Which memories to list; None or empty: any."""

    status: Collection[Status] = ()
    category: Collection[str] = ()
    error_code: str | None = None
    tool: str | None = None
    tags: Collection[str] = ()
    since: datetime | None = None
    until: datetime | None = None
    min_importance: int | None = None
    type: RecordType | None = None
    session: str | None = None
    admitted: bool | None = True
    obsolete: bool | None = None


def select_numbers(
    connection: Connection, namespace: int, filters: Filters, *, limit: int | None, offset: int
) -> list[int]:
    """Return the memories that pass all filters, newest first."""
    statement = (
        select(memories.c.number)
        .where(memories.c.namespace_id == namespace, *_conditions(filters))
        .limit(limit)
        .offset(offset)
    )
    return _newest_first(connection, statement, admitted_only=False)


def _conditions(filters: Filters) -> Iterable[ColumnElement[bool]]:
    columns: Mapping[ColumnElement[Any], object] = {
        memories.c.error_code: None if filters.error_code is None else index_key(filters.error_code),
        memories.c.tool: None if filters.tool is None else index_key(filters.tool),
        memories.c.type: None if filters.type is None else filters.type.value,
        memories.c.admitted: filters.admitted,
        memories.c.obsolete: filters.obsolete,
    }
    yield from (column == value for column, value in columns.items() if value is not None)
    if filters.status:
        yield memories.c.status.in_([str(status) for status in filters.status])
    if filters.category:
        yield memories.c.category.in_([str(category) for category in filters.category])
    if filters.min_importance is not None:
        yield memories.c.importance >= filters.min_importance
    for tag in dict.fromkeys(filters.tags):
        yield exists().where(
            marks.c.namespace_id == memories.c.namespace_id,
            marks.c.kind == "tag",
            marks.c.value == index_key(tag),
            marks.c.memory == memories.c.number,
        )
    yield from _run_conditions(filters)


def _run_conditions(filters: Filters) -> Iterable[ColumnElement[bool]]:
    """Ask for one run of the memory that lies in the time range and the session."""
    run = []
    if filters.since is not None:
        run.append(records.c.at >= micros(filters.since))
    if filters.until is not None:
        run.append(records.c.at < micros(filters.until))
    if filters.session is not None:
        run.append(records.c.session == index_key(filters.session))
    if run:
        yield exists().where(records.c.memory == memories.c.number, *run)


# ---------------------------------------------------------------------- the queue and the whole


def pending(connection: Connection, limit: int) -> list[Pending]:
    """Return memories that the vector index has yet to take in, oldest first."""
    statement = (
        select(memories.c.number, namespaces.c.body, memories.c.description, memories.c.revision)
        .join(namespaces, namespaces.c.id == memories.c.namespace_id)
        .where(memories.c.dirty)
        .order_by(memories.c.number)
        .limit(limit)
    )
    return [
        Pending(number, Namespace.model_validate_json(body), description, revision)
        for number, body, description, revision in connection.execute(statement)
    ]


def to_embed(
    connection: Connection, namespace: int, numbers: Collection[int], limit: int
) -> list[tuple[int, int, str]]:
    """Return the given memories and the newest pending ones, as (number, revision, text)."""
    mine = memories.c.namespace_id == namespace
    newest = select(memories.c.number).where(mine, memories.c.dirty)
    newest = newest.order_by(memories.c.number.desc()).limit(limit)
    statement = select(memories.c.number, memories.c.revision, memories.c.description).where(
        mine, or_(memories.c.number.in_(list(numbers)), memories.c.number.in_(newest))
    )
    return [(row.number, row.revision, row.description) for row in connection.execute(statement)]


def all_namespaces(connection: Connection) -> list[Namespace]:
    """Return all namespaces that hold a memory, in the order of their first record."""
    statement = select(namespaces.c.body).where(namespaces.c.memories > 0).order_by(namespaces.c.id)
    return [Namespace.model_validate_json(body) for body in connection.scalars(statement)]


def counts(connection: Connection, namespace: int | None) -> dict[str, int]:
    """Return how many records and memories there are, as a whole and by status, category and type."""
    of_records = select(func.count()).select_from(records)
    if namespace is not None:
        of_records = of_records.where(records.c.namespace_id == namespace)
    found = {"records": connection.scalar(of_records) or 0}
    columns = (memories.c.type, memories.c.status, memories.c.category)
    statement = select(
        *columns,
        func.count().label("memories"),
        func.count().filter(memories.c.admitted).label("admitted"),
        func.count().filter(memories.c.dirty).label("pending"),
        func.count().filter(memories.c.obsolete).label("obsolete"),
    ).group_by(*columns)
    if namespace is not None:
        statement = statement.where(memories.c.namespace_id == namespace)
    totals = Counter({"memories": 0, "admitted": 0, "pending": 0, "obsolete": 0})
    for row in connection.execute(statement):
        totals.update({name: getattr(row, name) for name in ("memories", "admitted", "pending", "obsolete")})
        for column in ("type", "status", "category"):
            if getattr(row, column):
                totals[f"{column}.{getattr(row, column)}"] += row.memories
    return {**found, **totals}
