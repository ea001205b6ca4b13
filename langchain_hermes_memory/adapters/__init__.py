"""Adapters: put the engine into LangChain's agents and chains; each module is loaded on first use."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal, Protocol, TypeVar

from langchain_hermes_memory.capture import Observer
from langchain_hermes_memory.record import Hit, Namespace, RecallFilter

logger = logging.getLogger(__name__)

_T = TypeVar("_T")


class Rendered(Protocol):
    """The context that a model is shown."""

    @property
    def text(self) -> str:
        """The block; empty where nothing relevant is known."""


class MemoryEngine(Observer, Protocol):
    """What adapters need of the engine. Only `recall` may raise."""

    def context(
        self,
        query: str,
        *,
        namespace: Namespace,
        session_id: str = "default",
        tool: str = "",
        command: str | Mapping[str, Any] = "",
        k: int | None = None,
        filters: RecallFilter | None = None,
        budget_tokens: int | None = None,
        language: Literal["en", "zh"] | None = None,
    ) -> Rendered:
        """Recall and render what helps with a request."""

    def recall(
        self,
        query: str,
        *,
        namespace: Namespace,
        session_id: str = "default",
        tool: str = "",
        command: str | Mapping[str, Any] = "",
        k: int | None = None,
        filters: RecallFilter | None = None,
    ) -> list[Hit]:
        """Recall what helps with a request, best first."""

    def working_memory(
        self,
        namespace: Namespace,
        session_id: str,
        *,
        language: Literal["en", "zh"] | None = None,
        since: datetime | None = None,
    ) -> str:
        """Return the session's last turns, rendered; with `since`, only those from then on."""


def session_of(*sources: Mapping[str, Any] | None) -> str:
    """Return the session that the first of several mappings names, as `session_id` or else `thread_id`.

    User and agent are never read from what a request carries: a namespace is a security boundary.

    Returns:
        The session, or an empty string.
    """
    for key in ("session_id", "thread_id"):
        for source in sources:
            if source and source.get(key):
                return str(source[key])
    return ""


def softly(engine: Observer, where: str, step: Callable[[], _T], otherwise: _T) -> _T:
    """Run a step of an adapter so that its failure never reaches the agent: it is logged and counted.

    Args:
        engine: Counts the failure as `capture_errors`.
        where: Name of the step, for the log.
        step: What to do.
        otherwise: What to return if the step fails.
    """
    try:
        return step()
    except Exception:
        logger.exception("The memory failed; the agent goes on without it", extra={"step": where})
        engine.count("capture_errors")
        return otherwise
