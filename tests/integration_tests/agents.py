"""Shared by the adapter tests: an engine that only takes notes, tools of every kind, scripted agents."""

import asyncio
import threading
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated

from langchain.agents import create_agent
from langchain_classic.agents import AgentExecutor, create_tool_calling_agent
from langchain_core.messages import ToolMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import InjectedToolCallId, ToolException, tool
from langgraph.types import Command, interrupt

from langchain_hermes_memory.record import (
    Action,
    Category,
    ExecutionResult,
    Hit,
    Memory,
    Namespace,
    Occurrences,
    Record,
    RecordType,
    Status,
)
from langchain_hermes_memory.settings import Settings
from langchain_hermes_memory.testing import FrozenClock, ScriptedChatModel

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
ANN = Namespace(user="ann", agent="ops")


@dataclass
class Block:
    text: str


@dataclass
class RecordingEngine:
    """Keeps calls and turns as they come; its context is a text that names the query."""

    settings: Settings = field(default_factory=Settings)
    clock: FrozenClock = field(default_factory=lambda: FrozenClock(NOON))
    calls: list = field(default_factory=list)
    turns: list = field(default_factory=list)
    queries: list = field(default_factory=list)
    counters: Counter = field(default_factory=Counter)
    broken: bool = False
    threads: set = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def _enter(self):
        self.threads.add(threading.current_thread().name)
        if self.broken:
            raise OSError(28, "No space left on device")

    def observe(self, call):
        self._enter()
        with self._lock:
            self.calls.append(call)

    def observe_turn(self, turn):
        self._enter()
        with self._lock:
            self.turns.append(turn)

    def context(self, query, *, namespace, session_id="default", **options):
        self._enter()
        self.queries.append((query, namespace, session_id, options))
        return Block(f"MEMORY[{namespace.user}:{query}]")

    def recall(self, query, *, namespace, session_id="default", k=None, **options):
        self._enter()
        self.queries.append((query, namespace, session_id, {"k": k, **options}))
        return [hit(number) for number in range(1, (k or self.settings.k) + 1)]

    def working_memory(self, namespace, session_id, *, language=None, since=None):
        self._enter()
        turns = [turn for turn in self.turns if turn.session_id == session_id]
        return " | ".join(turn.user for turn in turns if since is None or turn.at >= since)

    def recorded_calls(self, namespace, session_id, tool_call_ids):
        self._enter()
        known = {call.tool_call_id for call in self.calls if call.namespace == namespace}
        return known & set(tool_call_ids)

    def count(self, counter, n=1):
        self.counters[counter] += n


def hit(number):
    """Return a memory of a failed call, as recall would find it."""
    result = ExecutionResult(status=Status.FAILURE, category=Category.PERMISSION, error_code="EACCES")
    record = Record(
        id=f"id-{number}",
        namespace=ANN,
        type=RecordType.TOOL,
        tool_name="delete",
        timestamp=NOON,
        original_command="rm /srv/data",
        execution_result=result,
        action=Action(operation="rm", key="k", family="f"),
        importance_score=60,
        tags=("failure",),
        description="rm /srv/data failed: permission",
    )
    seen = Occurrences(times=2, first_seen=NOON, last_seen=NOON)
    return Hit(memory=Memory(number=number, record=record, occurrences=seen), score=1 / number, relevance=1)


class GateError(ValueError):
    """An exception of the tool's own."""


@tool
def text(x: int) -> str:
    """Return a text."""
    return f"r{x}"


@tool
def mapping(x: int) -> dict:
    """Return a dict."""
    return {"value": x}


@tool(response_format="content_and_artifact")
def artifact(x: int) -> tuple[str, dict]:
    """Return a content and an artifact."""
    return f"c{x}", {"raw": x}


@tool
def error_message(x: int, tool_call_id: Annotated[str, InjectedToolCallId] = "") -> ToolMessage:
    """Return a tool message that says it is an error."""
    return ToolMessage("gone", status="error", tool_call_id=tool_call_id)


@tool
def command(x: int, tool_call_id: Annotated[str, InjectedToolCallId] = "") -> Command:
    """Return a command that updates the state."""
    return Command(update={"messages": [ToolMessage("updated", tool_call_id=tool_call_id)]})


@tool
def handled(x: int) -> str:
    """Raise an exception that the tool turns into its output."""
    raise ToolException("path not found")


handled.handle_tool_error = True


@tool
def unhandled(x: int) -> str:
    """Raise an exception that aborts the agent."""
    raise GateError("gate is shut")


@tool
def asking(x: int) -> str:
    """Ask a human before it goes on."""
    return f"answered {interrupt('sure?')}"


@tool
async def endless(x: int) -> str:
    """Never return."""
    await asyncio.sleep(3600)
    return "never"


lenient = text.model_copy(update={"name": "lenient", "handle_validation_error": True})


def call(name, call_id="c1", **args):
    """Return a tool call for a script."""
    return {"name": name, "args": args or {"x": 1}, "id": call_id}


PROMPT = ChatPromptTemplate.from_messages(
    [("system", "BASE"), ("human", "{input}"), ("placeholder", "{agent_scratchpad}")]
)


def executor(script, tools, prompt=PROMPT, **options):
    """Return an `AgentExecutor` that follows a script, or that uses a model which does."""
    model = script if isinstance(script, ScriptedChatModel) else ScriptedChatModel(script=script)
    return AgentExecutor(agent=create_tool_calling_agent(model, tools, prompt), tools=tools, **options)


def agent(script, tools, **options):
    """Return an agent of `create_agent` that follows a script, and its model."""
    model = ScriptedChatModel(script=script)
    return create_agent(model, tools, **options), model


def start(kind, script, tools):
    """Return an agent of either kind that follows a script, and the input that it takes."""
    return (executor(script, tools), INPUT) if kind == "executor" else (agent(script, tools)[0], ASK)


def drive(runnable, inputs, config=None, mode="invoke"):
    """Run an agent in one of its four modes and return the output, or all chunks."""
    if mode == "invoke":
        return runnable.invoke(inputs, config)
    if mode == "ainvoke":
        return asyncio.run(runnable.ainvoke(inputs, config))
    if mode == "stream":
        return list(runnable.stream(inputs, config))
    return asyncio.run(_drain(runnable, inputs, config))


async def _drain(runnable, inputs, config):
    return [chunk async for chunk in runnable.astream(inputs, config)]


MODES = ("invoke", "ainvoke", "stream", "astream")
ASK = {"messages": [("user", "tidy up /srv/data")]}
INPUT = {"input": "tidy up /srv/data"}
