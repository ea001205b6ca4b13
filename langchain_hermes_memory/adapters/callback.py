"""The callback handler: sees tool runs and turns in any agent or chain, and gives them to the call log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from langchain_core.agents import AgentAction
from langchain_core.callbacks import BaseCallbackHandler
from typing_extensions import override

from langchain_hermes_memory.adapters import session_of, softly
from langchain_hermes_memory.capture import CallLog, Run
from langchain_hermes_memory.record import Namespace


class HermesCallbackHandler(BaseCallbackHandler):
    """Records every tool run and turn of the agents and chains that it is attached to.

    Attach it per call or with `with_config`; callbacks given to a constructor see no tool runs:

    ```python
    executor.invoke({"input": "..."}, {"callbacks": [handler]})
    agent = agent.with_config(callbacks=[handler])
    ```

    One handler serves sync and async agents, threads and concurrent runs. It never raises into the agent.

    Args:
        log: Pairs the events; shared by all adapters of one engine.
        namespace: Whose memory it is. Bound here, never read from a run: a namespace is a security boundary.
        session_id: Session of runs whose metadata hold neither `session_id` nor `thread_id`
            and whose input holds no `session_id`.
    """

    raise_error = False
    run_inline = False

    def __init__(
        self, log: CallLog, *, namespace: Namespace | None = None, session_id: str = "default"
    ) -> None:
        super().__init__()
        self._log = log
        self.namespace = namespace or Namespace()
        self.session_id = session_id

    @override
    def on_chain_start(
        self,
        serialized: dict[str, Any] | None,
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Note the request."""
        run = self._run(run_id, parent_run_id, metadata)
        self._softly("chain_start", lambda: self._log.chain_started(run, inputs))

    @override
    def on_chain_end(
        self, outputs: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        """Record the turn, and calls that never reached a tool, if it was the outermost chain."""
        run = self._run(run_id, parent_run_id)
        self._softly("chain_end", lambda: self._log.chain_ended(run, outputs, kwargs.get("inputs")))

    @override
    def on_chain_error(
        self, error: BaseException, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        """Forget the chain."""
        run = self._run(run_id, parent_run_id)
        self._softly("chain_error", lambda: self._log.chain_failed(run))

    @override
    def on_agent_action(
        self, action: AgentAction, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        """Note the id of the tool call, which an `AgentExecutor` tells nowhere else."""
        run = self._run(run_id, parent_run_id)
        call_id = getattr(action, "tool_call_id", None) or ""
        self._softly(
            "agent_action", lambda: self._log.call_planned(run, action.tool, action.tool_input, call_id)
        )

    @override
    def on_tool_start(
        self,
        serialized: dict[str, Any] | None,
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        inputs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Note the start of a tool."""
        run = self._run(run_id, parent_run_id, metadata)
        name = (serialized or {}).get("name") or kwargs.get("name") or ""
        tool_input = input_str if inputs is None else inputs
        call_id = kwargs.get("tool_call_id") or ""
        self._softly("tool_start", lambda: self._log.call_started(run, name, tool_input, call_id))

    @override
    def on_tool_end(
        self, output: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        """Record the run of a tool that returned."""
        run = self._run(run_id, parent_run_id)
        self._softly("tool_end", lambda: self._log.call_ended(run, output))

    @override
    def on_tool_error(
        self, error: BaseException, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        """Record the run of a tool that raised, unless it was paused or cancelled."""
        run = self._run(run_id, parent_run_id)
        self._softly("tool_error", lambda: self._log.call_failed(run, error))

    def _run(
        self, run_id: UUID, parent_run_id: UUID | None, metadata: Mapping[str, Any] | None = None
    ) -> Run:
        return Run(
            namespace=self.namespace,
            run_id=str(run_id),
            parent_run_id="" if parent_run_id is None else str(parent_run_id),
            session_id=session_of(metadata),
            bound_session_id=self.session_id,
        )

    def _softly(self, where: str, step: Any) -> None:
        softly(self._log.engine, where, step, None)
