"""The command line: looks into a store and maintains it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from langchain_hermes_memory import HermesMemory, HermesMemoryError
from langchain_hermes_memory._text import one_line
from langchain_hermes_memory.store import LEDGER_FILE

app = typer.Typer(no_args_is_help=True, help="Looks into the memory of an agent, and maintains it.")
console = Console()

Store = Annotated[Path, typer.Argument(help="Folder of the store.", show_default=False)]
User = Annotated[str, typer.Option(help="Whose memory.")]
Agent = Annotated[str, typer.Option(help="Which agent's memory.")]


@contextmanager
def _opened(path: Path, user: str = "default", agent: str = "default") -> Iterator[HermesMemory]:
    """Open a store that is there; errors of ours become one line and exit code 1."""
    try:
        with HermesMemory.open(_existing(path), user=user, agent=agent) as memory:
            yield memory
    except HermesMemoryError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from error


def _existing(path: Path) -> Path:
    if not (path / LEDGER_FILE).is_file():
        raise HermesMemoryError(f"{path} holds no memory: there is no {LEDGER_FILE} in it.")
    return path


@app.command()
def stats(path: Store, user: User = "default", agent: Agent = "default") -> None:
    """Show how many records and memories there are, by status, category and kind."""
    with _opened(path, user, agent) as memory:
        table = Table("what", "number")
        for name, number in memory.stats().items():
            if not name.startswith("session."):
                table.add_row(name, str(number))
        console.print(table)


@app.command()
def recall(
    path: Store,
    query: Annotated[str, typer.Argument(help="A request, or a handle such as M17 with --explain.")],
    user: User = "default",
    agent: Agent = "default",
    k: Annotated[int | None, typer.Option(min=1, help="Memories shown.")] = None,
    explain: Annotated[bool, typer.Option(help="Show every candidate and why.")] = False,  # noqa: FBT002
) -> None:
    """Show the block that an agent would be given for a request."""
    with _opened(path, user, agent) as memory:
        shown = memory.explain(query, k=k) if explain else memory.context(query, k=k)
        typer.echo(str(shown) or "Nothing relevant is known.")


@app.command()
def recent(
    path: Store,
    user: User = "default",
    agent: Agent = "default",
    session: Annotated[str, typer.Option(help="Which session's records.")] = "default",
    limit: Annotated[int, typer.Option(min=1, help="Records shown.")] = 20,
) -> None:
    """Show the newest records of a session, newest first, also those outside long-term memory."""
    with _opened(path, user, agent) as memory:
        records = memory.scoped(session_id=session).recent(limit)
        if not records:
            typer.echo(f"There is no record of session {session!r}; --session names another.")
            return
        table = Table("when", "status", "importance", "what")
        for record in records:
            when = f"{record.timestamp:%Y-%m-%d %H:%M}"
            status = record.execution_result.status.value
            table.add_row(when, status, str(record.importance_score), escape(one_line(record.description)))
        console.print(table)


@app.command()
def reembed(path: Store) -> None:
    """Index a store again with the embedding model that is installed now; nothing may have it open."""
    try:
        number = HermesMemory.reembed(path)
    except HermesMemoryError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from error
    typer.echo(f"{number} memories are indexed.")
