"""The middleware for `create_agent`: records tool calls and turns, and shows the model what helps."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from langchain_core.messages import AnyMessage, SystemMessage, ToolMessage
from langchain_core.runnables import run_in_executor
from langchain_core.runnables.config import ensure_config

from langchain_hermes_memory._messages import answer_text, last_human, text_of
from langchain_hermes_memory.adapters import MemoryEngine, session_of, softly
from langchain_hermes_memory.capture import CallLog, Watch
from langchain_hermes_memory.errors import MissingDependencyError
from langchain_hermes_memory.record import Namespace, RecallFilter, Turn

try:
    from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
    from langchain.agents.middleware.types import ModelCallResult, ToolCallRequest
    from langgraph.types import Command
except ImportError as error:
    raise MissingDependencyError("langchain", "agents", "The middleware for create_agent") from error

BLOCKS_REMEMBERED = 256
"""Rendered blocks that are kept, one for each user message being worked on."""

_Owner = tuple[Namespace, str]
"""Whose memory it is, and the session."""
_ToolResult = ToolMessage | Command[Any]


class HermesMemoryMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Gives an agent made by `create_agent` a memory of its tool runs.

    Before each model call it appends the context block to the system message of that call, and only there:
    messages and checkpoints stay as they are. The block is made once per user message, from that message
    alone, so the prompt keeps its prefix while the agent works.

    Every tool call is recorded as it ends, and what never reached a tool (a human's refusal, a call limit)
    when the agent is done; this takes tool call ids that are unique in a session.
    Put it last in the list of middleware: there it sees every attempt and the exception of a failed one.
    Before `ToolRetryMiddleware` it sees one call with its final result.
    Together with the callback handler each call is still recorded once.

    It never raises into the agent.

    Args:
        engine: The memory.
        log: Pairs the events; shared by all adapters of one engine.
        namespace: Whose memory it is, or a function that tells from the runtime (`runtime.context`),
            for one compiled agent that serves many users. Where the function raises, nothing is shown
            or recorded.
        session_id: Session of runs whose metadata hold neither `session_id` nor `thread_id`.
        k: Memories shown; None: as in the settings.
        budget_tokens: Tokens that the block may have; None: as in the settings.
        filters: Which memories may be shown.
        inject: Whether the model is shown the block.
        capture: Whether calls and turns are recorded.
        name: Tells several instances in one agent apart.
    """

    def __init__(
        self,
        engine: MemoryEngine,
        log: CallLog,
        *,
        namespace: Namespace | Callable[[Any], Namespace] | None = None,
        session_id: str = "default",
        k: int | None = None,
        budget_tokens: int | None = None,
        filters: RecallFilter | None = None,
        inject: bool = True,
        capture: bool = True,
        name: str = "HermesMemoryMiddleware",
    ) -> None:
        super().__init__()
        self._engine = engine
        self._log = log
        self._namespace = namespace or Namespace()
        self._session_id = session_id
        self._k = k
        self._budget_tokens = budget_tokens
        self._filters = filters
        self._inject = inject
        self._capture = capture
        self._name = name
        self._blocks: OrderedDict[tuple[_Owner, str], str] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The name under which the agent knows this instance."""
        return self._name

    # ------------------------------------------------------------------ inject

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelCallResult[Any]:
        """Call the model with the block in its system message."""
        return handler(self._with_memory(request))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelCallResult[Any]:
        """Call the model with the block in its system message; recall runs in a thread."""
        return await handler(await run_in_executor(None, self._with_memory, request))

    def _with_memory(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        if not self._inject:
            return request
        block = softly(self._engine, "model_call", lambda: self._block(request), "")
        if not block:
            return request
        return request.override(system_message=_appended(request.system_message, block))

    def _block(self, request: ModelRequest[Any]) -> str:
        human = last_human(request.messages)
        if human is None:
            return ""
        owner = self._owner(request.runtime, ensure_config()["metadata"])
        key = owner, human.id or ""
        with self._lock:
            if human.id and key in self._blocks:
                return self._blocks[key]
        namespace, session_id = owner
        block = self._engine.context(
            text_of(human.content),
            namespace=namespace,
            session_id=session_id,
            k=self._k,
            filters=self._filters,
            budget_tokens=self._budget_tokens,
        ).text
        with self._lock:
            self._blocks[key] = block
            while len(self._blocks) > BLOCKS_REMEMBERED:
                self._blocks.popitem(last=False)
        return block

    # ------------------------------------------------------------------ capture

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], _ToolResult]
    ) -> _ToolResult:
        """Run the tool and record the call."""
        watch = self._watch(request)
        if watch is None:
            return handler(request)
        try:
            with watch:
                watch.output = result = handler(request)
            return result
        finally:
            self._settle(watch)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[_ToolResult]]
    ) -> _ToolResult:
        """Run the tool and record the call, in a thread."""
        watch = self._watch(request)
        if watch is None:
            return await handler(request)
        try:
            with watch:
                watch.output = result = await handler(request)
            return result
        finally:
            if watch.finished:  # Nothing may be awaited while a coroutine is closed.
                await run_in_executor(None, self._settle, watch)

    def after_agent(self, state: AgentState[Any], runtime: Any) -> None:
        """Record the turn, and the calls that never reached a tool."""
        if self._capture:
            softly(self._engine, "after_agent", lambda: self._sweep(state["messages"], runtime), None)

    async def aafter_agent(self, state: AgentState[Any], runtime: Any) -> None:
        """Record the turn, and the calls that never reached a tool, in a thread."""
        await run_in_executor(None, self.after_agent, state, runtime)

    def _watch(self, request: ToolCallRequest) -> Watch | None:
        if not self._capture:
            return None
        return softly(self._engine, "tool_call", lambda: self._new_watch(request), None)

    def _new_watch(self, request: ToolCallRequest) -> Watch:
        config = request.runtime.config
        namespace, session_id = self._owner(request.runtime, config.get("metadata"))
        human = last_human(_messages(request.state))
        return Watch(
            log=self._log,
            namespace=namespace,
            session_id=session_id,
            tool=request.tool_call["name"],
            tool_input=request.tool_call["args"],
            tool_call_id=request.tool_call["id"] or "",
            intent="" if human is None else text_of(human.content),
            task_id="" if human is None else human.id or "",
            run_id=_run_id(config),
        )

    def _settle(self, watch: Watch) -> None:
        softly(self._engine, "tool_call_end", lambda: self._log.settle(watch), None)

    def _sweep(self, messages: Sequence[AnyMessage], runtime: Any) -> None:
        human = last_human(messages)
        if human is None:
            return
        config = ensure_config()
        namespace, session_id = self._owner(runtime, config["metadata"])
        request, answer = text_of(human.content), answer_text(messages)
        self._log.sweep(
            messages, namespace=namespace, session_id=session_id, intent=request, task_id=human.id or ""
        )
        if request and answer:
            turn = Turn(
                user=request,
                assistant=answer,
                at=self._engine.clock(),
                namespace=namespace,
                session_id=session_id,
                run_id=human.id or "",
            )
            self._log.turn_reported(turn, inside=_run_id(config))

    def _owner(self, runtime: Any, metadata: Mapping[str, Any] | None) -> _Owner:
        namespace = self._namespace if isinstance(self._namespace, Namespace) else self._namespace(runtime)
        return namespace, session_of(metadata) or self._session_id


def _appended(system: SystemMessage | None, block: str) -> SystemMessage:
    """Return a system message with the block after what it says already."""
    if system is None:
        return SystemMessage(block)
    if isinstance(system.content, str):
        return system.model_copy(update={"content": f"{system.content}\n\n{block}"})
    return system.model_copy(update={"content": [*system.content, {"type": "text", "text": block}]})


def _messages(state: Any) -> Sequence[AnyMessage]:
    found = state.get("messages") if isinstance(state, Mapping) else getattr(state, "messages", None)
    return found or []


def _run_id(config: Mapping[str, Any]) -> str:
    """Return the id of the graph's step that a hook runs in."""
    return str(getattr(config.get("callbacks"), "parent_run_id", None) or "")
