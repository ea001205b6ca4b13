"""The classic memory: fills prompt variables of an `AgentExecutor` or chain, and attaches both adapters."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from langchain_classic.base_memory import BaseMemory
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import Runnable
from pydantic import Field, PrivateAttr, SkipValidation

from langchain_hermes_memory._messages import answer_text, request_text
from langchain_hermes_memory.adapters import MemoryEngine, session_of, softly
from langchain_hermes_memory.capture import CallLog
from langchain_hermes_memory.errors import ConfigurationError
from langchain_hermes_memory.record import Namespace, RecallFilter, Turn


class HermesBaseMemory(BaseMemory):
    """A `BaseMemory` that fills two prompt variables: what helps with the request, and the last turns.

    It sees requests and answers, but no tool runs: those come from the callback handler; see `attach`.
    An executor does not show its config to its memory, so a session other than the one given here
    must be named by a key `session_id` in the input, next to the request.
    It never raises into the chain: a failure leaves the variables empty and is logged and counted.
    """

    engine: SkipValidation[MemoryEngine] = Field(exclude=True, repr=False)
    """The memory."""
    log: SkipValidation[CallLog] = Field(exclude=True, repr=False)
    """Takes the turns; shared by all adapters of one engine."""
    namespace: Namespace = Namespace()
    """Whose memory it is."""
    session_id: str = "default"
    """Session of inputs that name none."""
    memory_key: str = "memory"
    """Variable for the context block."""
    working_key: str | None = "history"
    """Variable for the session's last turns; None: no such variable."""
    input_key: str | None = None
    """Key of the request; None: `input`, `question`, `query` or `messages`, else the only key."""
    output_key: str | None = None
    """Key of the answer; None: `output`, `answer`, `result` or `messages`, else the only key."""
    k: int | None = None
    """Memories shown; None: as in the settings."""
    budget_tokens: int | None = None
    """Tokens that the block may have; None: as in the settings."""
    filters: RecallFilter | None = None
    """Which memories may be shown."""

    _cleared_at: datetime | None = PrivateAttr(default=None)

    @property
    def memory_variables(self) -> list[str]:
        """The prompt variables that this memory fills."""
        return [self.memory_key] if self.working_key is None else [self.memory_key, self.working_key]

    def load_memory_variables(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return the context block and the session's last turns; empty strings where there is nothing."""
        variables = {self.memory_key: softly(self.engine, "load_memory", lambda: self._block(inputs), "")}
        if self.working_key is not None:
            variables[self.working_key] = softly(
                self.engine, "load_history", lambda: self._working(inputs), ""
            )
        return variables

    def save_context(self, inputs: dict[str, Any], outputs: dict[str, str]) -> None:
        """Record the turn, unless a callback handler on the same run records it."""
        softly(self.engine, "save_context", lambda: self._save(inputs, outputs), None)

    def clear(self) -> None:
        """Start a new window: the variable for the last turns forgets those before now.

        Nothing is deleted: earlier turns and tool runs stay in the ledger and can be recalled.
        """
        self._cleared_at = self.engine.clock()

    def _block(self, inputs: Mapping[str, Any]) -> str:
        request = self._request(inputs)
        if not request:
            return ""
        return self.engine.context(
            request,
            namespace=self.namespace,
            session_id=self._session(inputs),
            k=self.k,
            filters=self.filters,
            budget_tokens=self.budget_tokens,
        ).text

    def _working(self, inputs: Mapping[str, Any]) -> str:
        session_id = self._session(inputs)
        if self._cleared_at is None:
            return self.engine.working_memory(self.namespace, session_id)
        return self.engine.working_memory(self.namespace, session_id, since=self._cleared_at)

    def _save(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        request = self._request(inputs)
        answer = answer_text(_pick(outputs, self.output_key))
        if not request or not answer:
            return
        turn = Turn(
            user=request,
            assistant=answer,
            at=self.engine.clock(),
            namespace=self.namespace,
            session_id=self._session(inputs),
        )
        self.log.turn_reported(turn)

    def _request(self, inputs: Mapping[str, Any]) -> str:
        own = {*self.memory_variables, "session_id"}
        return request_text(
            _pick({key: value for key, value in inputs.items() if key not in own}, self.input_key)
        )

    def _session(self, inputs: Mapping[str, Any]) -> str:
        return session_of({"session_id": inputs.get("session_id")}) or self.session_id


def attach(
    executor: Runnable[Any, Any], handler: BaseCallbackHandler, memory: BaseMemory | None = None
) -> Runnable[Any, Any]:
    """Put the handler, and optionally the memory, on an `AgentExecutor` so that tool runs are seen.

    Callbacks given to the executor's constructor are not handed down to its tools; those in its config are.
    So the result is a copy of the executor that holds the memory, bound to a config that holds the handler.
    It is invoked, streamed and configured further like the executor itself, in both modes, and passes
    attributes such as `.tools` on to it. The executor that was given is left as it is, so one executor
    can be attached for several users.

    Args:
        executor: An `AgentExecutor`; without `memory`, any runnable.
        handler: The callback handler.
        memory: Fills the prompt variables.

    Raises:
        ConfigurationError: The executor takes no memory, or has one already.
    """
    if memory is None:
        return executor.with_config(callbacks=[handler])
    if "memory" not in getattr(type(executor), "model_fields", {}):
        msg = f"A {type(executor).__name__} takes no memory: attach it to the AgentExecutor inside."
        raise ConfigurationError(msg)
    if executor.memory is not None:  # type: ignore[attr-defined]
        msg = "The executor has a memory already: join the two in a langchain_classic.memory.CombinedMemory."
        raise ConfigurationError(msg)
    held = executor.model_copy(update={"memory": memory})  # type: ignore[attr-defined]
    attached: Runnable[Any, Any] = held.with_config(callbacks=[handler])
    return attached


def _pick(values: Mapping[str, Any], key: str | None) -> Any:
    """Return the value under a key; without a key, the only value, or all of them."""
    if key is not None:
        return values.get(key)
    return next(iter(values.values())) if len(values) == 1 else values
