"""The ledger: the records of truth, in a database of our own; the vector index is derived from it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Self

from sqlalchemy import Connection, func, select
from sqlalchemy.exc import IntegrityError

from langchain_hermes_memory.errors import StoreError
from langchain_hermes_memory.ledger import history, read, write
from langchain_hermes_memory.ledger.database import Database
from langchain_hermes_memory.ledger.fulltext import SqliteFullText
from langchain_hermes_memory.ledger.read import Filters, Pending
from langchain_hermes_memory.ledger.schema import index_key, memories, meta, namespaces, records
from langchain_hermes_memory.record import Memory, Namespace, Record, RecordType, Status
from langchain_hermes_memory.score import History

__all__ = ["Filters", "Ledger", "Pending"]

WINDOW = timedelta(days=7)
RECURRING_AFTER = 3
ANY = Filters()


class Ledger:
    """Keeps every record, folds equal ones into memories, and finds them by anything but meaning.

    Safe to use from many threads and from several processes. Every method that touches the database raises
    `StoreClosedError` after `close()`, `StoreLockedError` while another process writes for longer than the
    time-out, `StoreDamagedError` for a damaged file and `StoreError` for a full disk and the like; what
    failed has changed nothing.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._namespace_ids: dict[Namespace, int] = {}

    @classmethod
    def open(
        cls,
        target: str | Path,
        *,
        durability: Literal["fast", "full"] = "fast",
        busy_timeout: float = 5.0,
    ) -> Self:
        """Open a ledger, creating it where there is none.

        Args:
            target: A file, `:memory:`, or a SQLAlchemy URL such as `sqlite:////srv/memory/ledger.db`.
            durability: `fast` survives a killed process; `full` also a power cut, at the price of a disk
                sync per record.
            busy_timeout: Seconds to wait while another process writes.

        Raises:
            StoreDamagedError: The file is damaged or no SQLite database; it is left as it was.
            SchemaVersionError: A newer version of this package wrote it; it is left as it was.
            StoreLockedError: Another process holds it.
            StoreError: It cannot be created or written, or belongs to another program.
            ConfigurationError: The URL cannot be used.
        """
        return cls(Database(target, durability=durability, busy_timeout=busy_timeout))

    def close(self) -> None:
        """Close all connections; a second call does nothing."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ writing

    def add(self, record: Record, *, fold_key: str, admitted: bool) -> int:
        """Add a record and fold it into its memory, in one transaction; return the memory's number.

        Records may come in any order of time. One whose id the namespace already has changes nothing.

        Args:
            record: What to keep.
            fold_key: Records of a namespace with equal keys are one memory.
            admitted: Whether it enters long-term memory; once in, a memory stays in.
        """
        new = write.entry(record)
        for _ in range(2):
            try:
                with self._database.write() as connection:
                    return write.add(
                        connection,
                        self._namespace_for_writing(connection, record.namespace),
                        new,
                        fold_key=fold_key,
                        admitted=admitted,
                        pinned=record.pinned,
                    )
            except IntegrityError:
                known = self._memory_of(record)
                if known is not None:
                    return known
                self._namespace_ids.clear()  # another process may have rebuilt the store
        msg = f"The record {record.id} cannot be added: the ledger contradicts itself. Restore a backup."
        raise StoreError(msg)

    def rescore(self, record: Record, *, admitted: bool) -> bool:
        """Store a record's new importance; return False where the record is gone.

        Args:
            record: The record as stored, with other score and reasons.
            admitted: Whether it enters long-term memory now; one that is in stays in.
        """
        with self._database.write() as connection:
            where = self._namespace_id(connection, record.namespace)
            return where is not None and write.rescore(connection, where, record, admitted=admitted)

    def link_solution(self, namespace: Namespace, failure: int, solution: int) -> bool:
        """Note that another way worked in the task of a failure; False where there is no such memory."""
        with self._database.write() as connection:
            where = self._namespace_id(connection, namespace)
            known = connection.scalar(
                select(func.count()).where(memories.c.namespace_id == where, memories.c.number == solution)
            )
            return bool(known) and self._change(connection, where, failure, {"solution": solution})

    def add_feedback(self, namespace: Namespace, number: int, verdict: int) -> bool:
        """Add a user's verdict (+1 helpful, -1 misleading) to a memory; False where there is none."""
        with self._database.write() as connection:
            values = {"feedback": memories.c.feedback + verdict}
            return self._change(connection, self._namespace_id(connection, namespace), number, values)

    def set_obsolete(self, namespace: Namespace, number: int, *, obsolete: bool = True) -> bool:
        """Withdraw a memory, or bring it back; False where there is none."""
        with self._database.write() as connection:
            return self._change(
                connection, self._namespace_id(connection, namespace), number, {"obsolete": obsolete}
            )

    def pin(self, namespace: Namespace, number: int, *, pinned: bool = True) -> bool:
        """Keep a memory from being forgotten and from ageing, or let it go; False where there is none."""
        with self._database.write() as connection:
            return self._change(
                connection, self._namespace_id(connection, namespace), number, {"pinned": pinned}
            )

    def forget(self, namespace: Namespace, numbers: Iterable[int]) -> list[int]:
        """Remove memories with all that belongs to them; return the numbers of those that were there."""
        with self._database.write() as connection:
            where = self._namespace_id(connection, namespace)
            return [] if where is None else write.forget(connection, where, numbers)

    def forget_records(self, namespace: Namespace, ids: Iterable[str]) -> list[int]:
        """Remove records; return the numbers of the memories that had no other record and are gone with them.

        A memory that has others left is counted anew and indexed again.
        """
        with self._database.write() as connection:
            where = self._namespace_id(connection, namespace)
            return [] if where is None else write.forget_records(connection, where, list(ids))

    # ------------------------------------------------------------------ memories

    def memories(
        self,
        namespace: Namespace,
        numbers: Iterable[int],
        *,
        at: datetime | None = None,
        window: timedelta = WINDOW,
        recurring_after: int = RECURRING_AFTER,
    ) -> list[Memory]:
        """Return memories with what has become of them, in the order of `numbers`; unknown ones are left out.

        A failure is resolved when its action has succeeded after it, recurring when it was seen
        `recurring_after` times within the window, else open. Whatever the order in which records came in,
        the result is the same.

        Args:
            namespace: Whose.
            numbers: Which.
            at: End of the window in which repetitions count; None: each memory's last occurrence.
            window: Its length.
            recurring_after: Occurrences from which a failure recurs, at least 1.
        """
        with self._database.read() as connection:
            where = self._namespace_id(connection, namespace)
            if where is None:
                return []
            return read.load_memories(
                connection, where, list(numbers), at=at, window=window, recurring_after=recurring_after
            )

    def select(
        self, namespace: Namespace, filters: Filters = ANY, *, limit: int | None = None, offset: int = 0
    ) -> list[int]:
        """Return the numbers of the memories that pass all filters, the last seen first."""
        with self._database.read() as connection:
            where = self._namespace_id(connection, namespace)
            return (
                []
                if where is None
                else read.select_numbers(connection, where, filters, limit=limit, offset=offset)
            )

    def search_words(
        self,
        namespace: Namespace,
        query_terms: Sequence[str],
        limit: int,
        *,
        admitted_only: bool = True,
        also: Collection[int] = (),
    ) -> list[tuple[int, float]]:
        """Return the memories whose words match best, with BM25 scores (above 0), best first.

        Args:
            namespace: Whose.
            query_terms: From `words.terms`. Those that more than a tenth of a larger namespace has are left
                out where others remain.
            limit: Memories to return.
            admitted_only: Whether memories outside long-term memory are left out ...
            also: ... but for these numbers.
        """
        with self._database.read() as connection:
            where = self._namespace_id(connection, namespace)
            row = connection.execute(
                select(namespaces.c.memories, namespaces.c.terms).where(namespaces.c.id == where)
            ).first()
            if where is None or row is None or not row.memories:
                return []
            return SqliteFullText.search(
                connection,
                where,
                query_terms,
                limit,
                size=row.memories,
                mean_length=row.terms / row.memories,
                everything=not admitted_only,
                also=also,
            )

    def by_action(self, namespace: Namespace, action_key: str, *, admitted_only: bool = True) -> list[int]:
        """Return the memories of exactly this action, the last seen first."""
        with self._database.read() as connection:
            where = self._namespace_id(connection, namespace)
            return (
                []
                if where is None
                else read.by_action(connection, where, action_key, admitted_only=admitted_only)
            )

    def by_targets(
        self, namespace: Namespace, values: Iterable[str], limit: int, *, admitted_only: bool = True
    ) -> list[int]:
        """Return the memories of these very targets: those with most of them first, then the last seen."""
        with self._database.read() as connection:
            where = self._namespace_id(connection, namespace)
            if where is None:
                return []
            return read.by_targets(connection, where, values, limit, admitted_only=admitted_only)

    # ------------------------------------------------------------------ records

    def history(self, namespace: Namespace, action_key: str, since: datetime) -> History:
        """Return how an action went: failures since a time and ever, successes ever and since it last failed.

        Refusals by a person or a policy, and cancellations, are no failures of the action.
        """
        with self._database.read() as connection:
            where = self._namespace_id(connection, namespace)
            return History() if where is None else history.history(connection, where, action_key, since)

    def tool_share(self, namespace: Namespace, tool: str) -> float:
        """Return the share of a namespace's memories that are of a tool, 0 to 1."""
        with self._database.read() as connection:
            where = self._namespace_id(connection, namespace)
            return 0.0 if where is None else history.tool_share(connection, where, tool)

    def run_times(
        self, namespace: Namespace, action_key: str, limit: int = 500
    ) -> list[tuple[int, datetime, Status]]:
        """Return the newest runs of an action as (number of its memory, UTC time, status), newest first."""
        with self._database.read() as connection:
            where = self._namespace_id(connection, namespace)
            return [] if where is None else history.run_times(connection, where, action_key, limit)

    def by_session(
        self,
        namespace: Namespace,
        session_id: str,
        limit: int,
        *,
        type: RecordType | None = None,  # noqa: A002
    ) -> list[Record]:
        """Return the newest records of a session, newest first, admitted or not: its working memory."""
        with self._database.read() as connection:
            where = self._namespace_id(connection, namespace)
            return [] if where is None else read.session_records(connection, where, session_id, limit, type)

    def session_numbers(self, namespace: Namespace, session_id: str, limit: int) -> list[int]:
        """Return the numbers of the memories of the newest `limit` records of a session, newest first."""
        with self._database.read() as connection:
            where = self._namespace_id(connection, namespace)
            return [] if where is None else read.session_numbers(connection, where, session_id, limit)

    def recorded_calls(self, namespace: Namespace, session_id: str, tool_call_ids: Iterable[str]) -> set[str]:
        """Return those of the tool calls that a session has a record of."""
        with self._database.read() as connection:
            where = self._namespace_id(connection, namespace)
            return (
                set() if where is None else read.recorded_calls(connection, where, session_id, tool_call_ids)
            )

    def unresolved_failures(
        self, namespace: Namespace, session_id: str, since: datetime, limit: int
    ) -> list[tuple[int, Record]]:
        """Return a session's failures since a time, newest first, that wait for a solution.

        Each is the memory's number with its newest record of the session. Failures whose action has
        succeeded since and those that have a solution are left out.
        """
        with self._database.read() as connection:
            where = self._namespace_id(connection, namespace)
            return (
                []
                if where is None
                else history.unresolved_failures(connection, where, session_id, since, limit)
            )

    # ------------------------------------------------------------------ the queue of the vector index

    def pending(self, limit: int) -> list[Pending]:
        """Return memories of all namespaces that the vector index has yet to take in, oldest first."""
        with self._database.read() as connection:
            return read.pending(connection, limit)

    def to_embed(
        self, namespace: Namespace, numbers: Collection[int], limit: int
    ) -> list[tuple[int, int, str]]:
        """Return the given memories and the newest that the vector index has yet to take in.

        Args:
            namespace: Whose.
            numbers: The given ones.
            limit: How many of the newest.

        Returns:
            Number, revision and the text to embed of each.
        """
        with self._database.read() as connection:
            where = self._namespace_id(connection, namespace)
            return [] if where is None else read.to_embed(connection, where, numbers, limit)

    def pending_count(self) -> int:
        """Return how many memories the vector index has yet to take in."""
        with self._database.read() as connection:
            return connection.scalar(select(func.count()).select_from(memories).where(memories.c.dirty)) or 0

    def mark_indexed(self, indexed: Iterable[tuple[int, int]]) -> None:
        """Note that the vector index holds memories, given as (number, revision).

        One that has changed since stays pending.
        """
        with self._database.write() as connection:
            write.mark_indexed(connection, indexed)

    def mark_all_pending(self, namespace: Namespace | None = None) -> int:
        """Have the admitted memories of a namespace, or of all, indexed again; return how many they are."""
        with self._database.write() as connection:
            where = None if namespace is None else self._namespace_id(connection, namespace)
            if namespace is not None and where is None:
                return 0
            return write.mark_all_pending(connection, where)

    # ------------------------------------------------------------------ the whole

    def get_meta(self, key: str) -> str | None:
        """Return a value that is kept with the store, or None."""
        with self._database.read() as connection:
            return connection.scalar(select(meta.c.value).where(meta.c.key == key))

    def set_meta(self, key: str, value: str) -> None:
        """Keep a value with the store."""
        with self._database.write() as connection:
            connection.execute(meta.delete().where(meta.c.key == key))
            connection.execute(meta.insert(), {"key": key, "value": value})

    def counts(self, namespace: Namespace | None = None) -> dict[str, int]:
        """Return numbers of records and memories.

        Keys: `records`, `memories`, `admitted`, `pending`, `obsolete`; memories also by `status.*`,
        `category.*` and `type.*`.
        """
        with self._database.read() as connection:
            where = None if namespace is None else self._namespace_id(connection, namespace)
            return read.counts(connection, -1 if namespace is not None and where is None else where)

    def namespaces(self) -> list[Namespace]:
        """Return the namespaces that hold a memory, in the order of their first record."""
        with self._database.read() as connection:
            return read.all_namespaces(connection)

    # ------------------------------------------------------------------ parts

    def _namespace_id(self, connection: Connection, namespace: Namespace) -> int | None:
        known = self._namespace_ids.get(namespace)
        if known is None:
            known = write.namespace_id(connection, namespace)
            if known is not None:
                self._namespace_ids[namespace] = known
        return known

    def _namespace_for_writing(self, connection: Connection, namespace: Namespace) -> int:
        known = self._namespace_id(connection, namespace)
        # Not remembered until it is read back: this transaction may still fail.
        return write.make_namespace(connection, namespace) if known is None else known

    def _memory_of(self, record: Record) -> int | None:
        with self._database.read() as connection:
            where = self._namespace_id(connection, record.namespace)
            mine = records.c.namespace_id == where, records.c.id == index_key(record.id)
            return connection.scalar(select(records.c.memory).where(*mine))

    @staticmethod
    def _change(connection: Connection, where: int | None, number: int, values: dict[str, Any]) -> bool:
        return where is not None and write.change(connection, where, [number], values) > 0
