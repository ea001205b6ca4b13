"""Parts for tests without a network: a chat model that follows a script and a clock that stands still."""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.tool import ToolCall, tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from pydantic import Field, PrivateAttr
from typing_extensions import override

Reply = AIMessage | str | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""One line of a script: a message, a text, a tool call (`{"name": ..., "args": ...}`) or several at once."""


class ScriptedChatModel(BaseChatModel):
    """A chat model that gives scripted replies, one per call, and remembers what it was shown.

    It takes any tools, streams, and can be shared by threads.

    Example:
        ```python
        model = ScriptedChatModel(script=[{"name": "list_files", "args": {"path": "/tmp"}}, "Done."])
        ```
    """

    script: list[Any]
    """The replies, in order; see `Reply`."""
    seen: list[list[BaseMessage]] = Field(default_factory=list)
    """The messages of every call."""

    _lock: threading.Lock = PrivateAttr(default_factory=threading.Lock)
    _ids: Iterator[int] = PrivateAttr(default_factory=lambda: itertools.count(1))

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @override
    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Return the model itself: the script decides which tools are called."""
        return self

    @override
    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._next(messages))])

    @override
    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        reply = self._next(messages)
        for chunk in _chunks(reply):
            generation = ChatGenerationChunk(message=chunk)
            if run_manager is not None:
                run_manager.on_llm_new_token(str(chunk.content), chunk=generation)
            yield generation

    def _next(self, messages: list[BaseMessage]) -> AIMessage:
        with self._lock:
            self.seen.append(list(messages))
            if len(self.seen) > len(self.script):
                msg = f"The script has {len(self.script)} replies, and the agent asked for one more."
                raise IndexError(msg)
            return self._message(self.script[len(self.seen) - 1])

    def _message(self, reply: Reply) -> AIMessage:
        if isinstance(reply, AIMessage):
            return reply
        if isinstance(reply, str):
            return AIMessage(reply)
        calls = [reply] if isinstance(reply, Mapping) else reply
        return AIMessage("", tool_calls=[self._call(call) for call in calls])

    def _call(self, call: Mapping[str, Any]) -> ToolCall:
        identity = call.get("id") or f"call_{next(self._ids)}"
        return ToolCall(name=call["name"], args=call.get("args", {}), id=identity, type="tool_call")


class FrozenClock:
    """A clock that moves only when told to.

    Args:
        at: The time that it shows first; timezone-aware.
    """

    def __init__(self, at: datetime) -> None:
        self.now = at

    def __call__(self) -> datetime:
        """Return the time."""
        return self.now

    def advance(self, **span: float) -> datetime:
        """Move the clock and return the new time.

        Args:
            **span: Arguments of `timedelta`, such as `days=1` or `minutes=5`.
        """
        self.now += timedelta(**span)
        return self.now


def _chunks(reply: AIMessage) -> Iterator[AIMessageChunk]:
    """Cut a reply into the chunks in which a provider would stream it: words first, then the tool calls."""
    if isinstance(reply.content, str):
        yield from (AIMessageChunk(content=word) for word in re.split(r"(?<=\s)(?=\S)", reply.content))
    else:
        yield AIMessageChunk(content=reply.content)
    calls = [
        tool_call_chunk(name=call["name"], args=json.dumps(call["args"]), id=call["id"], index=index)
        for index, call in enumerate(reply.tool_calls)
    ]
    yield AIMessageChunk(content="", tool_call_chunks=calls, chunk_position="last")
