"""The demonstration: real agents with real tools on a scratch folder, and what the memory makes of it.

    python -m langchain_hermes_memory.demo
    python -m langchain_hermes_memory.demo --model openai:gpt-4o-mini

Without `--model` the planner is a chat model that follows a script, so that the demonstration needs no
network; everything else is real: agents, tools, files, ledger, index, embeddings.
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from langchain_classic.agents import AgentExecutor, create_tool_calling_agent
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import BaseTool, tool
from rich.columns import Columns
from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax
from rich.text import Text

from langchain_hermes_memory import Block, HermesMemory, OfflineEmbeddings, RecallFilter, Status
from langchain_hermes_memory.testing import ScriptedChatModel

console = Console(width=118)

Planner = Callable[[Sequence[Any]], BaseChatModel]
"""Makes the chat model of one run; is given the script that stands in for a real one."""


class NaiveMemory(BaseCallbackHandler):
    """What most agents have for a memory: the text of each tool run, found by similarity, shown as it is."""

    def __init__(self, embeddings: Embeddings) -> None:
        self._embeddings = embeddings
        self._texts: list[str] = []
        self._call = ""

    def on_tool_start(self, serialized: dict[str, Any] | None, input_str: str, **_: Any) -> None:
        """Note the call."""
        self._call = f"{(serialized or {}).get('name')}({input_str})"

    def on_tool_end(self, output: Any, **_: Any) -> None:
        """Keep call and result."""
        self._texts.append(f"{self._call} -> {getattr(output, 'content', output)}")

    def block(self, query: str, k: int = 3) -> str:
        """Return the nearest texts."""
        texts = list(dict.fromkeys(self._texts))
        vectors = np.asarray(self._embeddings.embed_documents(texts))
        order = np.argsort(-vectors @ np.asarray(self._embeddings.embed_query(query)))
        return "Relevant past experience:\n" + "\n".join(f"- {texts[int(n)]}" for n in order[:k])


def folder_tools(root: Path) -> list[BaseTool]:
    """Return tools that work on a scratch folder and report as tools of agents do."""

    def inside(path: str) -> Path:
        return root / path.lstrip("/")

    @tool
    def clean_folder(path: str) -> str:
        """Delete all files in a folder."""
        folder = inside(path)
        if path.startswith("/srv"):
            return f"ERROR: blocked by policy 'protect-srv': deleting in {path} is not allowed"
        if not folder.is_dir():
            return f"ERROR: failed to clean {path}: path does not exist"
        files = [file for file in folder.iterdir() if file.is_file()]
        for file in files:
            file.unlink()
        return f"SUCCESS: cleaned {path}, {len(files)} files removed"

    @tool
    def list_folder(path: str) -> str:
        """List a folder."""
        folder = inside(path)
        if not folder.is_dir():
            return f"ERROR: {path}: no such directory"
        return "\n".join(sorted(child.name for child in folder.iterdir())) or "(empty)"

    return [clean_folder, list_folder]


class Demo:
    """One demonstration.

    Args:
        root: The scratch folder.
        planner: Makes the chat models.
    """

    def __init__(self, root: Path, planner: Planner) -> None:
        self.root = root
        self.planner = planner
        self.tools = folder_tools(root / "disk")
        embeddings = OfflineEmbeddings()
        self.memory = HermesMemory(root / "memory", embeddings=embeddings, session_id="monday")
        self.naive = NaiveMemory(embeddings)

    def fill(self, path: str) -> None:
        """Put some files into a folder."""
        folder = self.root / "disk" / path.lstrip("/")
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(3):
            (folder / f"part-{number}.tmp").write_text("x" * 1000, "utf-8")

    def executor(self, request: str, script: Sequence[Any]) -> BaseChatModel:
        """Let an AgentExecutor work on a request; return the model that planned."""
        prompt = ChatPromptTemplate.from_messages(
            [
                ("system", "You tidy up folders.\n\n{memory}"),
                ("human", "{input}"),
                ("placeholder", "{agent_scratchpad}"),
            ]
        )
        model = self.planner(script)
        agent = create_tool_calling_agent(model, self.tools, prompt)
        plain = AgentExecutor(agent=agent, tools=self.tools)
        attached = self.memory.attach(plain, working_key=None)
        answer = attached.invoke({"input": request}, {"callbacks": [self.naive]})
        self._told("AgentExecutor", request, answer["output"])
        return model

    def agent(self, request: str, script: Sequence[Any], *, session_id: str) -> BaseChatModel:
        """Let an agent of `create_agent` work on a request; return the model that planned."""
        from langchain.agents import create_agent

        model = self.planner(script)
        agent: Any = create_agent(
            model,
            self.tools,
            system_prompt="You tidy up folders.",
            middleware=[self.memory.scoped(session_id=session_id).middleware()],
        )
        answer = agent.invoke({"messages": [("user", request)]}, {"callbacks": [self.naive]})
        self._told("create_agent", request, answer["messages"][-1].content)
        return model

    def show_record(self) -> None:
        """Print the newest tool run as it is stored, and why."""
        record = next(each for each in self.memory.recent() if each.tool_name)
        stored = record.model_dump(
            mode="json",
            include={
                "id": True,
                "type": True,
                "tool_name": True,
                "timestamp": True,
                "original_command": True,
                "execution_result": {"status", "category", "error_code", "transient", "suggested_action"},
                "context": {"user_intent", "trigger", "session_id", "environment"},
                "importance_score": True,
                "tags": True,
            },
        )
        text = json.dumps(stored, ensure_ascii=False, indent=1)
        console.print(Panel(Syntax(text, "json", word_wrap=True), title="the record"))

    def explain(self, query: str) -> None:
        """Print why a memory is what it is, or what is recalled and why."""
        console.print(Panel(Text(str(self.memory.explain(query))), title=f"explain({query!r})"))

    def compare(self, request: str, model: BaseChatModel | None, block: Block) -> None:
        """Print the block that the model saw beside that of a naive memory."""
        seen = block.text or "(nothing: an empty block)"
        if isinstance(model, ScriptedChatModel):
            system = str(model.seen[0][0].content)
            seen = system.removeprefix("You tidy up folders.").strip() or "(nothing: an empty block)"
        ours = Panel(Text(seen, overflow="fold"), title="what the model saw", width=70)
        naive = Panel(Text(self.naive.block(request), overflow="fold"), title="a naive memory", width=46)
        console.print(Columns([ours, naive]))

    def _told(self, agent: str, request: str, answer: str) -> None:
        console.print(f"[bold]{agent}[/bold]  user: {request}")
        console.print(f"              agent: {answer}", markup=False, highlight=False)


def play(demo: Demo) -> None:
    """Run all scenes."""
    memory = demo.memory
    console.rule("1  An accident: another process has removed /tmp/cache first")
    demo.fill("/tmp/cache_backup")
    demo.executor("clean up /tmp/cache", _one_call("/tmp/cache", "The folder was gone already."))
    demo.show_record()
    failures = RecallFilter(statuses=(Status.FAILURE,))
    demo.explain(memory.recall("clean up /tmp/cache", filters=failures)[0].memory.handle)

    console.rule("2  A vague request, later in the session")
    request = "please clean up the temporary files in /tmp/cache"
    block = memory.context(request)
    demo.fill("/tmp/cache")
    model = demo.executor(request, _one_call("/tmp/cache", "Cleaned, 3 files removed."))
    demo.explain(request)
    demo.compare(request, model, block)
    left = len(list((demo.root / "disk" / "tmp" / "cache_backup").iterdir()))
    console.print(f"/tmp/cache_backup still holds its {left} files.", highlight=False)

    console.rule("3  Once more: the failure is solved")
    request = "clean up the temporary files in /tmp/cache again"
    block = memory.context(request)
    demo.fill("/tmp/cache")
    model = demo.agent(request, _one_call("/tmp/cache", "Cleaned again."), session_id="monday")
    demo.compare(request, model, block)

    console.rule("4  A limit that somebody set, and the same wish in Chinese")
    demo.agent("empty /srv/reports", _one_call("/srv/reports", "That is not allowed."), session_id="tuesday")
    request = "把 /srv/reports 目录清空"
    block = memory.scoped(session_id="friday").context(request)
    model = demo.agent(request, ["这个目录受策略保护,要不要先问一下管理员?"], session_id="friday")
    demo.compare(request, model, block)

    console.rule("5  Nothing relevant")
    console.print(f"context('Thanks, that is all!') -> {memory.context('Thanks, that is all!').text!r}")
    console.print(f"stats: {memory.stats()}", highlight=False)


def _one_call(path: str, answer: str) -> list[Any]:
    return [{"name": "clean_folder", "args": {"path": path}}, answer]


def main(
    model: Annotated[str, typer.Option(help="A real planner, as `provider:name` of init_chat_model.")] = "",
) -> None:
    """Run the demonstration."""
    logging.basicConfig(level=logging.WARNING)
    if model:
        from langchain.chat_models import init_chat_model

        real = init_chat_model(model)
        console.print(f"The planner is {model}.")
    else:
        console.print("The planner is a scripted chat model (--model provider:name for a real one).")
    root = Path(tempfile.mkdtemp(prefix="hermes-demo-"))
    planner: Planner = (lambda _: real) if model else (lambda script: ScriptedChatModel(script=list(script)))
    demo = Demo(root, planner)
    try:
        play(demo)
    finally:
        demo.memory.close()
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    typer.run(main)
