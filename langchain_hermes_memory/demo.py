"""The demonstration: real agents with real tools on a scratch folder, and what the memory makes of it.

    python -m langchain_hermes_memory.demo
    python -m langchain_hermes_memory.demo --lang zh
    python -m langchain_hermes_memory.demo --model openai:gpt-4o-mini

Without `--model` the planner is a chat model that follows a script, so that the demonstration needs no
network; everything else is real: agents, tools, files, ledger, index, embeddings.
"""

from __future__ import annotations

import json
import logging
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from langchain_classic.agents import AgentExecutor, create_tool_calling_agent
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import BaseTool, tool
from langchain_core.vectorstores import InMemoryVectorStore
from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from langchain_hermes_memory import HermesMemory, HermesMemoryError, OfflineEmbeddings
from langchain_hermes_memory.record import Record, RecordType
from langchain_hermes_memory.testing import ScriptedChatModel

Planner = Callable[[Sequence[Any]], BaseChatModel]
"""Makes the chat model of one run; is given the script that stands in for a real one."""

_STORED: Any = {
    "id": True,
    "type": True,
    "tool_name": True,
    "timestamp": True,
    "original_command": True,
    "execution_result": {"status", "category", "error_code", "transient", "suggested_action"},
    "context": {"user_intent", "trigger", "session_id", "environment"},
    "importance_score": True,
    "tags": True,
}


def words(lang: Literal["en", "zh"]) -> Mapping[str, str]:
    """Return what the demonstration says in a language."""
    source = resources.files("langchain_hermes_memory") / "text" / "demo.toml"
    found: Mapping[str, str] = tomllib.loads(source.read_text("utf-8"))[lang]
    return found


class NaiveMemory(BaseCallbackHandler):
    """What most agents have for a memory: the text of each tool run, found by similarity, shown as it is.

    Args:
        embeddings: The model that the other memory uses too.
        head: The line above what is found.
    """

    def __init__(self, embeddings: Embeddings, head: str) -> None:
        self._store = InMemoryVectorStore(embeddings)
        self._head = head
        self._call = ""

    def on_tool_start(self, serialized: dict[str, Any] | None, input_str: str, **_: Any) -> None:
        """Note the call."""
        self._call = f"{(serialized or {}).get('name')}({input_str})"

    def on_tool_end(self, output: Any, **_: Any) -> None:
        """Keep call and result."""
        self._store.add_texts([f"{self._call} -> {getattr(output, 'content', output)}"])

    def block(self, query: str, k: int = 3) -> str:
        """Return the nearest texts."""
        found = self._store.similarity_search(query, k)
        return "\n".join([self._head, *(f"- {document.page_content}" for document in found)])


class Disk:
    """A scratch folder that stands for the root of a disk, with the tools that work on it.

    Args:
        root: The folder; no tool reaches outside it, whatever path it is given.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.rival_takes = ""
        """A folder that another process removes just before it is cleaned, once."""

    def inside(self, path: str) -> Path:
        """Return where a path of the disk really lies; one that would lead out of it leads to its root."""
        real = (self.root / path.lstrip("/")).resolve()
        return real if real.is_relative_to(self.root) else self.root

    def fill(self, path: str) -> None:
        """Put three files into a folder."""
        folder = self.inside(path)
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(3):
            (folder / f"part-{number}.tmp").write_text("x" * 1000, "utf-8")

    def folders(self) -> Iterable[tuple[str, int]]:
        """Return the lowest folders, each with the number of its files."""
        for folder in sorted(each for each in self.root.rglob("*") if each.is_dir()):
            children = list(folder.iterdir())
            if not any(child.is_dir() for child in children):
                yield f"/{folder.relative_to(self.root).as_posix()}", len(children)

    def tools(self) -> list[BaseTool]:
        """Return tools that report as tools of agents do."""

        @tool
        def list_folder(path: str) -> str:
            """List a folder."""
            folder = self.inside(path)
            if not folder.is_dir():
                return f"ERROR: {path}: no such directory"
            return "\n".join(sorted(child.name for child in folder.iterdir())) or "(empty)"

        @tool
        def clean_folder(path: str) -> str:
            """Delete all files in a folder under /tmp."""
            folder = self.inside(path)
            if not folder.is_relative_to(self.root / "tmp"):
                return f"ERROR: blocked by policy 'tmp-only': {path} lies outside /tmp"
            self._rival(path)
            if not folder.is_dir():
                return f"ERROR: failed to clean {path}: path does not exist"
            files = [file for file in folder.iterdir() if file.is_file()]
            for file in files:
                file.unlink()
            return f"SUCCESS: cleaned {path}, {len(files)} files removed"

        @tool
        def run_command(command: str) -> str:
            """Run a shell command; a policy allows `ls PATH` and nothing else."""
            try:
                name, *arguments = shlex.split(command)
            except ValueError:
                return f"ERROR: not a command: {command!r}"
            if name == "ls":
                return str(list_folder.invoke({"path": arguments[-1] if arguments else "/"}))
            return f"ERROR: blocked by policy 'read-only-shell': {command!r} is not allowed"

        return [list_folder, clean_folder, run_command]

    def _rival(self, path: str) -> None:
        if path == self.rival_takes:
            self.rival_takes = ""
            script = "import shutil, sys; shutil.rmtree(sys.argv[1])"
            subprocess.run([sys.executable, "-c", script, str(self.inside(path))], check=True)  # noqa: S603 - ours


class Demo:
    """One demonstration.

    Args:
        root: A scratch folder for disk and memory.
        planner: Makes the chat models.
        says: What it says; see `words`.
        console: Where it says it.
    """

    def __init__(self, root: Path, planner: Planner, says: Mapping[str, str], console: Console) -> None:
        self.planner = planner
        self.says = says
        self.console = console
        self.disk = Disk(root / "disk")
        embeddings = OfflineEmbeddings()
        self.memory = HermesMemory(root / "memory", embeddings=embeddings, session_id="monday")
        self.naive = NaiveMemory(embeddings, says["naive_head"])

    def scene(self, name: str) -> str:
        """Print the head of a scene; return its request."""
        self.console.print()
        self.console.rule(f"[bold]{self.says[name]}", align="left")
        self._plain(self.says[f"{name}_note"], style="italic")
        return self.says[f"{name}_request"]

    def executor(self, name: str, *calls: Mapping[str, Any], compare: bool = True) -> None:
        """Let an AgentExecutor work on a scene's request; show what it was told first."""

        def run(model: BaseChatModel, request: str) -> str:
            prompt = ChatPromptTemplate.from_messages(
                [
                    ("system", self.says["system"] + "\n\n{memory}"),
                    ("human", "{input}"),
                    ("placeholder", "{agent_scratchpad}"),
                ]
            )
            tools = self.disk.tools()
            plain = AgentExecutor(agent=create_tool_calling_agent(model, tools, prompt), tools=tools)
            attached = self.memory.attach(plain, working_key=None)
            answer = attached.invoke({"input": request}, {"callbacks": [self.naive]})
            return str(answer["output"])

        self._run("AgentExecutor", name, calls, run, self.memory, compare=compare)

    def agent(self, name: str, *calls: Mapping[str, Any], session: str, compare: bool = True) -> None:
        """Let an agent of `create_agent` work on a scene's request; show what it was told first."""
        memory = self.memory.scoped(session_id=session)

        def run(model: BaseChatModel, request: str) -> str:
            from langchain.agents import create_agent

            agent: Any = create_agent(
                model,
                self.disk.tools(),
                system_prompt=self.says["system"],
                middleware=[memory.middleware()],
            )
            answer = agent.invoke({"messages": [("user", request)]}, {"callbacks": [self.naive]})
            return str(answer["messages"][-1].text)

        self._run("create_agent", name, calls, run, memory, compare=compare)

    def show_record(self, session: str) -> None:
        """Print the newest tool run of a session as it is stored, and why it is stored like that."""
        memory = self.memory.scoped(session_id=session)
        record = next((each for each in memory.recent() if each.type is RecordType.TOOL), None)
        if record is None:
            self._plain(self.says["unused"])
            return
        syntax = Syntax(_compact(record), "json", word_wrap=True, background_color="default")
        self.console.print(Panel(syntax, title=self.says["record"]))
        hits = memory.recall(
            record.context.user_intent, tool=record.tool_name, command=record.original_command
        )
        handle = next((hit.memory.handle for hit in hits if hit.memory.record.id == record.id), None)
        if handle is not None:
            text = Text(str(memory.explain(handle)))
            self.console.print(Panel(text, title=self.says["why_memory"].format(handle=handle)))

    def compare(self, ours: str, naive: str) -> None:
        """Print a block beside that of a naive memory."""
        table = Table(expand=True)
        table.add_column(self.says["ours"], ratio=3, overflow="fold")
        table.add_column(self.says["naive"], ratio=2, overflow="fold")
        table.add_row(Text(ours or self.says["nothing"]), Text(naive))
        self.console.print(table)

    def _run(
        self,
        kind: str,
        name: str,
        calls: Sequence[Mapping[str, Any]],
        run: Callable[[BaseChatModel, str], str],
        memory: HermesMemory,
        *,
        compare: bool,
    ) -> None:
        request = self.says[f"{name}_request"]
        # Before the run: afterwards both memories know how it went.
        ours, naive, why = memory.context(request).text, self.naive.block(request), memory.explain(request)
        model = self.planner([*calls, self.says[f"{name}_answer"]])
        answer = run(model, request)
        if isinstance(model, ScriptedChatModel):
            ours = str(model.seen[0][0].content).removeprefix(self.says["system"]).strip()
        self._plain(f"{kind}  {self.says['user']}: {request}", style="bold")
        if compare:
            self.console.print(Panel(Text(str(why)), title=self.says["why_recall"]))
            self.compare(ours, naive)
        self._plain(f"{kind}  {self.says['agent']}: {answer}", style="bold")
        counts = [self.says["files"].format(path=path, number=number) for path, number in self.disk.folders()]
        self._plain(f"{self.says['disk']}  {'  '.join(counts)}")

    def _plain(self, text: str, style: str = "") -> None:
        self.console.print(text, style=style, markup=False, highlight=False)


def play(demo: Demo) -> None:
    """Run all scenes."""
    clean = {"name": "clean_folder", "args": {"path": "/tmp/cache"}}
    for path in ("/tmp/cache", "/var/tmp", "/srv/reports"):
        demo.disk.fill(path)

    demo.scene("accident")
    demo.disk.rival_takes = "/tmp/cache"
    demo.executor("accident", {"name": "list_folder", "args": {"path": "/tmp"}}, clean, compare=False)
    demo.show_record("monday")

    demo.scene("vague")
    demo.disk.fill("/tmp/cache")
    demo.executor("vague", clean)

    demo.scene("solved")
    demo.disk.fill("/tmp/cache")
    demo.agent("solved", clean, session="monday")

    demo.scene("limit")
    forbidden = {"name": "run_command", "args": {"command": "rm -rf /srv/reports"}}
    demo.agent("limit", forbidden, session="tuesday", compare=False)
    demo.show_record("tuesday")

    demo.scene("other")
    demo.agent("other", session="friday")

    request = demo.scene("thanks")
    demo.compare(demo.memory.context(request).text, demo.naive.block(request))


def main(
    model: Annotated[str, typer.Option(help="A real planner, as `provider:name` of init_chat_model.")] = "",
    lang: Annotated[Literal["en", "zh"], typer.Option(help="Language of the demonstration.")] = "en",
) -> None:
    """Show real agents with real tools on a scratch folder, and what the memory makes of it."""
    logging.basicConfig(level=logging.WARNING)
    says = words(lang)
    console = Console(width=min(max(shutil.get_terminal_size((118, 40)).columns, 80), 118))
    planner = _real(model) if model else _scripted
    console.print(says["real"].format(model=model) if model else says["scripted"], highlight=False)
    root = Path(tempfile.mkdtemp(prefix="hermes-demo-"))
    try:
        demo = Demo(root, planner, says, console)
        try:
            play(demo)
        finally:
            demo.memory.close()
    except HermesMemoryError as error:
        raise _stopped(str(error)) from error
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _scripted(script: Sequence[Any]) -> BaseChatModel:
    return ScriptedChatModel(script=list(script))


def _real(model: str) -> Planner:
    """Return a planner that is a real model, after asking it once: keys and network show only then."""
    try:
        from langchain.chat_models import init_chat_model

        real: BaseChatModel = init_chat_model(model)
        real.invoke("Answer with one word: ready?")
    except Exception as error:  # each provider raises errors of its own
        raise _stopped(f"The model {model!r} cannot be used: {error}") from error
    return lambda _: real


def _stopped(why: str) -> typer.Exit:
    typer.echo(f"Error: {' '.join(why.split())}", err=True)
    return typer.Exit(1)


def _compact(record: Record) -> str:
    """Return a record as JSON in its stored shape, a line for each field."""
    stored = record.model_dump(mode="json", include=_STORED)
    fields = [
        f"  {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in stored.items()
    ]
    return "{\n" + ",\n".join(fields) + "\n}"


if __name__ == "__main__":
    typer.run(main)
