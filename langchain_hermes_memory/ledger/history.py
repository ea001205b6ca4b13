"""How actions went: counted and listed over all records, admitted to long-term memory or not."""

from __future__ import annotations

import functools
from datetime import UTC, datetime

from sqlalchemy import Connection, Executable, and_, bindparam, exists, func, select

from langchain_hermes_memory.ledger.read import FAILED, NAMESPACE, read_record
from langchain_hermes_memory.ledger.schema import index_key, memories, micros, moment, records
from langchain_hermes_memory.record import Category, Record, Status
from langchain_hermes_memory.score import History

_NOT_ITS_FAULT = (Category.BLOCKED.value, Category.CANCELLED.value)


def history(connection: Connection, namespace: int, action_key: str, since: datetime) -> History:
    """Return how an action went before; a refusal or a cancellation is no failure of it."""
    values = {"namespace": namespace, "action": index_key(action_key), "since": micros(since)}
    row = connection.execute(_history_statement(), values).one()
    return History(failures=row[0], failures_ever=row[1], successes=row[2], successes_since_failure=row[3])


@functools.cache
def _history_statement() -> Executable:
    """Built once: to build it takes longer than to run it."""
    mine = and_(records.c.namespace_id == NAMESPACE, records.c.action_key == bindparam("action"))
    of_memory = records.join(memories, memories.c.number == records.c.memory)
    failed = and_(records.c.status.in_(FAILED), memories.c.category.not_in(_NOT_ITS_FAULT))
    succeeded = records.c.status == Status.SUCCESS.value
    last_failure = select(func.max(records.c.at)).select_from(of_memory).where(mine, failed).scalar_subquery()
    return (
        select(
            func.count().filter(failed, records.c.at >= bindparam("since")),
            func.count().filter(failed),
            func.count().filter(succeeded),
            func.count().filter(succeeded, records.c.at > last_failure),
        )
        .select_from(of_memory)
        .where(mine)
    )


def tool_share(connection: Connection, namespace: int, tool: str) -> float:
    """Return the share of the memories that are of a tool."""
    of_tool = func.count().filter(memories.c.tool == index_key(tool))
    row = connection.execute(select(of_tool, func.count()).where(memories.c.namespace_id == namespace)).one()
    return float(row[0] / row[1]) if row[1] else 0.0


def run_times(
    connection: Connection, namespace: int, action_key: str, limit: int
) -> list[tuple[int, datetime, Status]]:
    """Return the newest runs of an action as (memory, time, status)."""
    rows = connection.execute(
        select(records.c.memory, records.c.at, records.c.status)
        .where(records.c.namespace_id == namespace, records.c.action_key == index_key(action_key))
        .order_by(records.c.at.desc())
        .limit(limit)
    )
    return [(number, moment(at, UTC), Status(status)) for number, at, status in rows]


def unresolved_failures(
    connection: Connection, namespace: int, session_id: str, since: datetime, limit: int
) -> list[tuple[int, Record]]:
    """Return failures of a session that neither a later success nor a solution has settled, newest first."""
    values = {"namespace": namespace, "session": index_key(session_id), "since": micros(since)}
    found: dict[int, Record] = {}
    for number, body in connection.execute(_unresolved_statement(), values):
        record = read_record(body) if number not in found else None
        if record is not None:
            found[number] = record
        if len(found) >= limit:
            break
    return list(found.items())


@functools.cache
def _unresolved_statement() -> Executable:
    later = records.alias("later")
    succeeded = exists().where(
        later.c.namespace_id == records.c.namespace_id,
        later.c.action_key == records.c.action_key,
        later.c.status == Status.SUCCESS.value,
        later.c.at > records.c.at,
    )
    return (
        select(records.c.memory, records.c.body)
        .join(memories, memories.c.number == records.c.memory)
        .where(
            records.c.namespace_id == NAMESPACE,
            records.c.session == bindparam("session"),
            records.c.status.in_(FAILED),
            records.c.at >= bindparam("since"),
            memories.c.solution.is_(None),
            ~succeeded,
        )
        .order_by(records.c.at.desc(), records.c.id.desc())
    )
