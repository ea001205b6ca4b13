"""Capture: pairs what callbacks and middleware see into finished tool calls and conversation turns.

First stage of the write path. It knows LangChain's messages, but not its agents.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import Any, Protocol, TypeVar

from langchain_hermes_memory._messages import answer_text, failed_calls, is_rejection, request_text, text_of
from langchain_hermes_memory.record import Namespace, ToolCall, Turn
from langchain_hermes_memory.settings import Settings

logger = logging.getLogger(__name__)

CHAINS_PER_CALL = 8
"""Open chain runs that are remembered for each open tool run: a tool stands on several nested chains."""
TURNS_REMEMBERED = 64
"""Recorded turns that are remembered, to recognise one that is reported a second time."""

_CONTROL_FLOW = frozenset({"GraphBubbleUp", "CancelledError"})
"""Exceptions that pause or stop a run, by class name along the MRO: langgraph need not be installed."""
_INVALID_TOOL = "invalid_tool"
"""What `AgentExecutor` runs in place of a tool that it does not have."""
_PARSER_TOOL = "_Exception"
"""What `AgentExecutor` runs in place of a tool when it cannot read the model's reply."""

_Key = tuple[Namespace, str]
_KeyT = TypeVar("_KeyT")
_ValueT = TypeVar("_ValueT")


class Observer(Protocol):
    """What capture needs of the engine."""

    @property
    def settings(self) -> Settings:
        """Sizes of the tables."""

    @property
    def clock(self) -> Callable[[], datetime]:
        """The present time, timezone-aware."""

    def observe(self, call: ToolCall) -> None:
        """Encode and store a tool call; never raises."""

    def observe_turn(self, turn: Turn) -> None:
        """Encode and store a turn; never raises."""

    def recorded_calls(
        self, namespace: Namespace, session_id: str, tool_call_ids: Collection[str]
    ) -> set[str]:
        """Return those of the tool calls that the session's records hold; never raises."""

    def count(self, counter: str, n: int = 1) -> None:
        """Add to a counter of the statistics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run as a handler is told of it, and whose memory it goes to."""

    namespace: Namespace
    run_id: str
    parent_run_id: str = ""
    session_id: str = ""
    """The session that the run's own metadata name; empty where they name none."""
    bound_session_id: str = "default"
    """The session of the handler, for runs of which nothing names one."""

    @property
    def key(self) -> _Key:
        """Identity of the run; two handlers of one namespace that see the same run share it."""
        return self.namespace, self.run_id

    @property
    def parent_key(self) -> _Key:
        """Identity of the run that this one is part of."""
        return self.namespace, self.parent_run_id


@dataclass(slots=True, eq=False)
class _Task:
    """All runs under one root: the work on one request."""

    run_id: str
    session_id: str
    request: str
    reported: Turn | None = None
    """The turn as a memory or middleware reported it while the root was still open."""


@dataclass(frozen=True, slots=True)
class _Planned:
    """A call that `AgentExecutor` announced: the one event in which it tells the tool call's id."""

    tool: str
    tool_input: Any
    tool_call_id: str


@dataclass(slots=True, eq=False)
class _Chain:
    task: _Task
    planned: list[_Planned] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _OpenCall:
    run: Run
    tool: str
    tool_input: str | Mapping[str, Any]
    tool_call_id: str
    missing: bool
    """Whether the agent has no such tool, so that the output says just that."""
    started_at: datetime
    task: _Task | None
    watches: Sequence[Watch]


@dataclass(slots=True, eq=False, kw_only=True)
class Watch:
    """A tool call in the hands of middleware; a callback inside it finds it and marks it as recorded.

    ```python
    with Watch(log=log, ...) as watch:
        watch.output = handler(request)
    log.settle(watch)
    ```
    """

    log: CallLog
    namespace: Namespace
    session_id: str
    tool: str
    tool_input: str | Mapping[str, Any]
    tool_call_id: str
    intent: str = ""
    task_id: str = ""
    """What tells one request from the next: attempts are counted within it."""
    run_id: str = ""
    output: Any = None
    """What the tool returned; set by the middleware."""
    recorded: bool = False
    error: BaseException | None = field(default=None, init=False)
    finished: bool = field(default=False, init=False)
    """Whether the call came to an end, rather than being paused or cancelled."""
    outer: Watch | None = field(default=None, init=False)
    started_at: datetime | None = field(default=None, init=False)
    _token: Token[Watch | None] | None = field(default=None, init=False)

    def __enter__(self) -> Watch:
        """Make the watch visible to callbacks in this context."""
        self.outer = _watching.get()
        self.started_at = self.log.engine.clock()
        self._token = _watching.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Note how the call ended; an exception passes through."""
        if self._token is not None:
            _watching.reset(self._token)
        self.error = error
        self.finished = error is None or is_failure(error)


_watching: ContextVar[Watch | None] = ContextVar("hermes_memory_watch", default=None)


class CallLog:
    """Turns the events of agent runs into calls and turns, each recorded once.

    Thread-safe: one log serves all handlers, middlewares and concurrent runs of an engine.

    Args:
        engine: Gets the finished calls and turns, outside the log's lock.
    """

    def __init__(self, engine: Observer) -> None:
        self.engine = engine
        self._lock = threading.Lock()
        self._chains: OrderedDict[_Key, _Chain] = OrderedDict()
        self._calls: OrderedDict[_Key, _OpenCall] = OrderedDict()
        self._attempts: OrderedDict[tuple[Namespace, str, str], int] = OrderedDict()
        self._turns: deque[tuple[Namespace, str, str]] = deque(maxlen=TURNS_REMEMBERED)

    # ------------------------------------------------------------------ chains: whose request is it?

    def chain_started(self, run: Run, inputs: Any) -> None:
        """Note a chain run; the outermost that is given a request names the intent of its whole tree."""
        with self._lock:
            task = self._task_above(run)
            if task is None:
                task = _Task(run.run_id, _session(run, inputs), request_text(inputs))
            elif not task.request and isinstance(inputs, Mapping):
                # A resumed graph and a streamed sequence start without an input of their own.
                task.request = request_text(inputs)
            limit = CHAINS_PER_CALL * self.engine.settings.max_open_runs
            dropped = _put(self._chains, run.key, _Chain(task), limit)
        self._report_dropped(dropped)

    def chain_ended(self, run: Run, outputs: Any, inputs: Any = None) -> None:
        """Forget a chain run; at the end of a root, sweep its messages, and record the turn if it answered.

        Args:
            run: The run.
            outputs: What it returned.
            inputs: Its input, where it is known only now, as in a streamed sequence.
        """
        with self._lock:
            task = self._close_root(run)
            turn = None if task is None else self._turn(run, task, outputs, inputs)
        if task is not None and isinstance(outputs, Mapping) and isinstance(outputs.get("messages"), list):
            self.sweep(
                outputs["messages"],
                namespace=run.namespace,
                session_id=task.session_id,
                intent=task.request,
                task_id=task.run_id,
            )
        if turn is not None:
            self.engine.observe_turn(turn)

    def chain_failed(self, run: Run) -> None:
        """Forget a chain run that ended without an answer of its own."""
        with self._lock:
            task = self._close_root(run)
        if task is not None and task.reported is not None:
            self.engine.observe_turn(task.reported)

    def call_planned(self, run: Run, tool: str, tool_input: Any, tool_call_id: str) -> None:
        """Note a call that an `AgentExecutor` is about to make; `run` is the executor's."""
        with self._lock:
            chain = self._chains.get(run.key)
            if chain is not None and tool_call_id:
                chain.planned.append(_Planned(tool, tool_input, tool_call_id))

    # ------------------------------------------------------------------ calls, as callbacks see them

    def call_started(
        self, run: Run, tool: str, tool_input: str | Mapping[str, Any], tool_call_id: str = ""
    ) -> None:
        """Note that a tool starts; its end is awaited."""
        if tool == _PARSER_TOOL:
            return
        missing = tool == _INVALID_TOOL and isinstance(tool_input, Mapping)
        if missing and isinstance(tool_input, Mapping):
            tool, tool_input = str(tool_input.get("requested_tool_name", "")), {}
        started_at = self.engine.clock()
        with self._lock:
            parent = self._chains.get(run.parent_key)
            planned = _take_planned(parent, tool, None if missing else tool_input)
            if planned is not None:
                tool_call_id = tool_call_id or planned.tool_call_id
                tool_input = planned.tool_input if missing else tool_input
            call = _OpenCall(
                run=run,
                tool=tool,
                tool_input=tool_input,
                tool_call_id=tool_call_id,
                missing=missing,
                started_at=started_at,
                task=self._task_above(run),
                watches=_same_call(_watching.get(), self, run.namespace, tool_call_id),
            )
            dropped = _put(self._calls, run.key, call, self.engine.settings.max_open_runs)
        self._report_dropped(dropped)

    def call_ended(self, run: Run, output: Any) -> None:
        """Record a tool run that returned; an end without a start is ignored."""
        self._finish(run, output=output, error=None)

    def call_failed(self, run: Run, error: BaseException) -> None:
        """Record a tool run that raised, unless it was merely paused or cancelled."""
        self._finish(run, output=None, error=error)

    def _finish(self, run: Run, *, output: Any, error: BaseException | None) -> None:
        finished_at = self.engine.clock()
        with self._lock:
            call = self._calls.pop(run.key, None)
            if call is None or (error is not None and not is_failure(error)):
                return
            for watch in call.watches:
                watch.recorded = True
            task = call.task
            task_id = "" if task is None else task.run_id
            attempt = self._attempt(run.namespace, task_id, call.tool_call_id)
        bound = call.run.bound_session_id if task is None else task.session_id
        self.engine.observe(
            ToolCall(
                tool=call.tool,
                tool_input=call.tool_input,
                output=output,
                error=text_of(output) if call.missing else error,
                namespace=run.namespace,
                session_id=call.run.session_id or bound,
                intent="" if task is None else task.request,
                started_at=call.started_at,
                finished_at=finished_at,
                run_id=run.run_id,
                parent_run_id=task_id or call.run.parent_run_id,
                tool_call_id=call.tool_call_id,
                attempt=attempt,
            )
        )

    # ------------------------------------------------------------------ calls, as middleware sees them

    def settle(self, watch: Watch) -> None:
        """Record a watched call, unless it was paused, or something inside it recorded it already."""
        with self._lock:
            if watch.recorded or not watch.finished:
                return
            for each in _same_call(watch, self, watch.namespace, watch.tool_call_id):
                each.recorded = True
            attempt = self._attempt(watch.namespace, watch.task_id, watch.tool_call_id)
        rejected = is_rejection(watch.output)
        self.engine.observe(
            ToolCall(
                tool=watch.tool,
                tool_input=watch.tool_input,
                output=text_of(watch.output.content) if rejected else watch.output,
                error=watch.error,
                rejected=rejected,
                namespace=watch.namespace,
                session_id=watch.session_id,
                intent=watch.intent,
                started_at=watch.started_at,
                finished_at=self.engine.clock(),
                run_id=watch.run_id,
                parent_run_id=watch.task_id,
                tool_call_id=watch.tool_call_id,
                attempt=attempt,
            )
        )

    # ------------------------------------------------------------------ calls that never reached a tool

    def sweep(
        self, messages: Sequence[Any], *, namespace: Namespace, session_id: str, intent: str, task_id: str
    ) -> None:
        """Record the calls since the last user message that failed without a tool having run.

        A human's refusal, an unknown tool and a call limit make no event: only the conversation shows them.
        """
        failed = failed_calls(messages)
        if not failed:
            return
        known = self.engine.recorded_calls(namespace, session_id, [each.tool_call_id for each in failed])
        for each in failed:
            if each.tool_call_id in known:
                continue
            rejected = is_rejection(each.message)
            self.engine.observe(
                ToolCall(
                    tool=each.tool,
                    tool_input=each.tool_input,
                    output=text_of(each.message.content) if rejected else each.message,
                    rejected=rejected,
                    namespace=namespace,
                    session_id=session_id,
                    intent=intent,
                    finished_at=self.engine.clock(),
                    parent_run_id=task_id,
                    tool_call_id=each.tool_call_id,
                )
            )

    # ------------------------------------------------------------------ turns

    def turn_reported(self, turn: Turn, *, inside: str = "") -> None:
        """Record a turn that a memory or middleware saw, unless a callback records it.

        A callback knows the session from the run's metadata, which a `BaseMemory` cannot see, so the
        callback's turn counts. `AgentExecutor.invoke` saves its memory before the run ends,
        `AgentExecutor.stream` after it.

        Args:
            turn: What was seen.
            inside: Id of the run in which it was seen; empty: runs are told by their request.
        """
        key = turn.namespace, turn.user, turn.assistant
        with self._lock:
            for (namespace, run_id), chain in self._chains.items():
                same = run_id == inside or chain.task.request == turn.user
                if same and namespace == turn.namespace:
                    chain.task.reported = turn
                    return
            if key in self._turns:
                self._turns.remove(key)
                return
        self.engine.observe_turn(turn)

    def _turn(self, run: Run, task: _Task, outputs: Any, inputs: Any) -> Turn | None:
        request = task.request or request_text(inputs) or request_text(outputs)
        answer = answer_text(outputs) or (task.reported.assistant if task.reported else "")
        if not request or not answer:
            return None
        if task.reported is None:
            self._turns.append((run.namespace, request, answer))
        return Turn(
            user=request,
            assistant=answer,
            at=self.engine.clock(),
            namespace=run.namespace,
            session_id=task.session_id,
            run_id=task.run_id,
        )

    # ------------------------------------------------------------------ tables; the lock is held

    def _task_above(self, run: Run) -> _Task | None:
        """Return the task of the run that this one is part of: a chain, or a tool that runs an agent."""
        if not run.parent_run_id:
            return None
        chain = self._chains.get(run.parent_key)
        if chain is not None:
            return chain.task
        call = self._calls.get(run.parent_key)
        return None if call is None else call.task

    def _close_root(self, run: Run) -> _Task | None:
        """Forget a chain run and return its task if it was the root."""
        chain = self._chains.pop(run.key, None)
        return chain.task if chain is not None and chain.task.run_id == run.run_id else None

    def _attempt(self, namespace: Namespace, task_id: str, tool_call_id: str) -> int:
        """Count the runs of one tool call within one task: small models use an id again in the next."""
        if not tool_call_id:
            return 1
        key = namespace, task_id, tool_call_id
        attempt = self._attempts.get(key, 0) + 1
        _put(self._attempts, key, attempt, self.engine.settings.max_open_runs)
        return attempt

    def _report_dropped(self, dropped: int) -> None:
        if dropped:
            self.engine.count("dropped_runs", dropped)
            logger.warning(
                "Runs that never ended were dropped",
                extra={"dropped": dropped, "max_open_runs": self.engine.settings.max_open_runs},
            )


def is_failure(error: BaseException) -> bool:
    """Return whether an exception is a tool's failure, rather than an interrupt or a cancellation."""
    return isinstance(error, Exception) and _CONTROL_FLOW.isdisjoint(
        kind.__name__ for kind in type(error).__mro__
    )


def _session(run: Run, inputs: Any) -> str:
    named = inputs.get("session_id") if isinstance(inputs, Mapping) else None
    return run.session_id or (named if isinstance(named, str) else "") or run.bound_session_id


def _same_call(watch: Watch | None, log: CallLog, namespace: Namespace, tool_call_id: str) -> list[Watch]:
    """Return a watch and those around it that watch the same call for the same memory."""
    found: list[Watch] = []
    while watch is not None and tool_call_id:
        if watch.log is log and watch.namespace == namespace and watch.tool_call_id == tool_call_id:
            found.append(watch)
        watch = watch.outer
    return found


def _take_planned(chain: _Chain | None, tool: str, tool_input: Any) -> _Planned | None:
    """Take the first announced call of a tool with this input; None as input: whatever the input was."""
    if chain is None:
        return None
    of_tool = [planned for planned in chain.planned if planned.tool == tool]
    same = [planned for planned in of_tool if tool_input is None or planned.tool_input == tool_input]
    if not same and len(of_tool) == 1:
        same = of_tool  # The tool's schema may have dropped or renamed an argument on the way.
    if not same:
        return None
    chain.planned.remove(same[0])
    return same[0]


def _put(table: OrderedDict[_KeyT, _ValueT], key: _KeyT, value: _ValueT, limit: int) -> int:
    """Put an entry last and return how many of the oldest had to go for it."""
    table[key] = value
    table.move_to_end(key)
    dropped = max(0, len(table) - limit)
    for _ in range(dropped):
        table.popitem(last=False)
    return dropped
