"""Opens the ledger's database and runs its transactions: one writer at a time, errors that say what to do."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from sqlalchemy import Connection, create_engine, event, func, inspect, select
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.pool import QueuePool, StaticPool

from langchain_hermes_memory.errors import (
    ConfigurationError,
    SchemaVersionError,
    StoreClosedError,
    StoreDamagedError,
    StoreError,
    StoreLockedError,
)
from langchain_hermes_memory.ledger import schema
from langchain_hermes_memory.ledger.fulltext import SqliteFullText
from langchain_hermes_memory.record import utc_now

_MAGIC = b"SQLite format 3\0"
CACHE_KIB = 16_384
"""Pages that each connection keeps in memory."""


class Database:
    """A SQLite database in WAL mode, opened at the current schema version.

    Args:
        target: A file, `:memory:`, or a SQLAlchemy URL of the dialect `sqlite`.
        durability: `fast` survives a killed process, `full` also a power cut.
        busy_timeout: Seconds to wait while another process writes.

    Raises:
        StoreDamagedError: The file is damaged or no SQLite database; it is left as it was.
        SchemaVersionError: A newer version of this package wrote it.
        StoreLockedError: Another process holds it.
        StoreError: It cannot be created or written.
        ConfigurationError: The URL cannot be used.
    """

    def __init__(
        self, target: str | Path, *, durability: Literal["fast", "full"], busy_timeout: float
    ) -> None:
        url = _url(target)
        self.where = url.database or ":memory:"
        self._synchronous = "FULL" if durability == "full" else "NORMAL"
        self._busy_milliseconds = int(busy_timeout * 1_000)
        self._in_memory = self.where == ":memory:"
        self._closed = False
        # Threads wait for each other here rather than in SQLite, whose waiting sleeps.
        self._writing = threading.RLock()
        if not self._in_memory:
            _make_folder(Path(self.where).parent)
            _look_at(Path(self.where))
        self._engine = create_engine(
            url,
            poolclass=StaticPool if self._in_memory else QueuePool,
            connect_args={"check_same_thread": False},
        )
        event.listen(self._engine, "connect", self._on_connect)
        event.listen(self._engine, "begin", _on_begin)
        try:
            self._open()
        except BaseException:
            self._engine.dispose()
            raise
        _databases.add(self)

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """Give a connection that sees one consistent state."""
        self._check()
        # The one connection of an in-memory store is not shared, by readers either.
        alone = self._writing if self._in_memory else contextlib.nullcontext()
        with self._telling(), alone, self._engine.connect() as connection:
            yield connection

    @contextlib.contextmanager
    def write(self) -> Iterator[Connection]:
        """Give a connection inside a transaction: committed at the end, undone on an error."""
        self._check()
        with (
            self._telling(),
            self._writing,
            self._engine.connect() as connection,
            connection.execution_options(write=True).begin(),
        ):
            yield connection

    def close(self) -> None:
        """Close all connections; a second call does nothing."""
        with self._writing:
            self._closed = True
            self._engine.dispose()

    def _check(self) -> None:
        if self._closed:
            msg = "The memory is closed. Open it again to go on."
            raise StoreClosedError(msg)

    # ------------------------------------------------------------------ forks

    def before_fork(self) -> None:
        """Let the transaction in progress end: SQLite's notes on held locks are copied into the child."""
        self._writing.acquire(timeout=self._busy_milliseconds / 1_000)

    def after_fork_in_parent(self) -> None:
        """Go on."""
        with contextlib.suppress(RuntimeError):  # the wait may have been in vain
            self._writing.release()

    def after_fork_in_child(self) -> None:
        """Begin anew: connections must not be carried over, and a lock of another thread would stay shut."""
        self._writing = threading.RLock()
        if not self._in_memory:
            self._engine.dispose(close=False)

    # ------------------------------------------------------------------ opening

    def _open(self) -> None:
        with self._telling():
            # Looked at before anything is set, so that a foreign or newer file stays untouched.
            with self._engine.connect() as connection:
                found = self._version(connection)
            if not self._in_memory:
                self._use_wal()
            if found != schema.newest_version():
                self._upgrade()

    def _version(self, connection: Connection) -> int:
        """Return the version of the tables, 0 for an empty file."""
        tables = set(inspect(connection).get_table_names())
        if not tables:
            return 0
        if schema.schema_versions.name not in tables:
            msg = (
                f"{self.where} is a database of another program; nothing was changed. "
                "Name another folder for the memory."
            )
            raise StoreError(msg)
        found = connection.scalar(select(func.max(schema.schema_versions.c.version))) or 0
        if found > schema.newest_version():
            msg = (
                f"{self.where} was written by a newer version of langchain-hermes-memory (schema {found}, "
                f"this one knows {schema.newest_version()}); nothing was changed. Upgrade the package."
            )
            raise SchemaVersionError(msg)
        return found

    def _upgrade(self) -> None:
        with self._engine.connect() as connection, connection.execution_options(write=True).begin():
            found = self._version(connection)  # once more: another process may have been faster
            if found == 0:
                schema.METADATA.create_all(connection, checkfirst=False)
                SqliteFullText.create(connection)
            else:
                for step in schema.UPGRADES[found - 1 :]:
                    step(connection)
            if found != schema.newest_version():
                values = {"version": schema.newest_version(), "applied_at": utc_now().isoformat()}
                connection.execute(schema.schema_versions.insert(), values)

    def _use_wal(self) -> None:
        raw = self._engine.raw_connection()
        try:
            raw.cursor().execute("PRAGMA journal_mode=WAL")
        except sqlite3.Error as error:
            raise self._named(error) from error
        finally:
            raw.close()

    def _on_connect(self, connection: sqlite3.Connection, _: object) -> None:
        # The driver's own way of beginning transactions is off: `_on_begin` says how.
        connection.isolation_level = None
        for pragma in (
            f"busy_timeout={self._busy_milliseconds}",
            f"synchronous={self._synchronous}",
            "foreign_keys=ON",
            f"cache_size=-{CACHE_KIB}",
        ):
            connection.execute(f"PRAGMA {pragma}")

    # ------------------------------------------------------------------ errors

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except IntegrityError:
            raise
        except DBAPIError as error:
            raise self._named(error.orig) from error
        except PoolTimeoutError as error:
            msg = f"All connections to {self.where} were busy for half a minute. Use fewer threads at once."
            raise StoreLockedError(msg) from error

    def _named(self, error: BaseException | None) -> StoreError:
        name = getattr(error, "sqlite_errorname", "")
        if self._closed:
            return StoreClosedError("The memory was closed while it was in use. Open it again to go on.")
        for prefixes, kind, advice in _ADVICE:
            if name.startswith(prefixes):
                return kind(f"{self.where}: {error}. {advice}")
        return StoreError(f"{self.where}: {error}. Nothing of this call was written.")


_ADVICE: tuple[tuple[tuple[str, ...], type[StoreError], str], ...] = (
    (
        ("SQLITE_BUSY", "SQLITE_LOCKED"),
        StoreLockedError,
        "Another process is writing. Try again, or close the process that holds the memory.",
    ),
    (
        ("SQLITE_CORRUPT", "SQLITE_NOTADB"),
        StoreDamagedError,
        "The file is damaged or no ledger; nothing was changed. Restore a backup, or move it away.",
    ),
    (("SQLITE_FULL",), StoreError, "The disk is full; nothing of this call was written. Free some space."),
    (
        ("SQLITE_READONLY", "SQLITE_PERM", "SQLITE_CANTOPEN", "SQLITE_AUTH"),
        StoreError,
        "The file or its folder cannot be written. Check its permissions, or name another folder.",
    ),
    (("SQLITE_IOERR",), StoreError, "The disk could not be read or written. Check the disk and its space."),
)


def _on_begin(connection: Connection) -> None:
    # A writer takes the lock at once: a transaction that reads first and writes later could not wait for it.
    write = connection.get_execution_options().get("write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _look_at(file: Path) -> None:
    """Refuse a file that SQLite would take for an empty one and overwrite."""
    try:
        with file.open("rb") as opened:
            head = opened.read(len(_MAGIC))
    except OSError:
        return
    if head not in (b"", _MAGIC):
        msg = f"{file} is no SQLite database; nothing was changed. Restore a backup, or move it away."
        raise StoreDamagedError(msg)


def _url(target: str | Path) -> URL:
    if isinstance(target, Path) or "://" not in target:
        return URL.create("sqlite", database=str(target))
    try:
        url = make_url(target)
    except ArgumentError as error:
        msg = f"{target!r} is no database URL. Give a path, or a URL such as sqlite:///memory.db."
        raise ConfigurationError(msg) from error
    if url.get_backend_name() != "sqlite":
        msg = f"The ledger cannot be kept in {url.get_backend_name()!r}. Give a path, or a URL such as sqlite:///memory.db."
        raise ConfigurationError(msg)
    return url


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"Cannot create {folder}: {error.strerror}. Check its permissions, or name another folder."
        raise StoreError(msg) from error


_databases: weakref.WeakSet[Database] = weakref.WeakSet()


def _each(step: Callable[[Database], None]) -> Callable[[], None]:
    def run() -> None:
        for database in list(_databases):
            step(database)

    return run


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_each(Database.before_fork),
        after_in_parent=_each(Database.after_fork_in_parent),
        after_in_child=_each(Database.after_fork_in_child),
    )
