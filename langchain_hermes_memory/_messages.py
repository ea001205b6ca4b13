"""Reads LangChain's messages: the user's words, the answer, and whether a human refused a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage, convert_to_messages

_REJECTION = "User rejected the tool call"
"""How human-in-the-loop middleware words a rejection; before langchain-core 1.7.2 nothing else marks it."""
ANSWER_KEYS = ("output", "answer", "result", "messages")
"""Keys under which chains and agents return their answer; the first that holds one counts."""
REQUEST_KEYS = ("input", "question", "query", "messages")
"""Keys under which chains and agents are given the user's request; the first that holds one counts."""


def is_rejection(output: Any) -> bool:
    """Return whether a tool message is a human's refusal to let the tool run."""
    if not isinstance(output, ToolMessage) or output.status != "error":
        return False
    decision = output.additional_kwargs.get("lc_data")
    if output.additional_kwargs.get("lc_source") == "hitl_interrupt_decision" and isinstance(
        decision, Mapping
    ):
        return decision.get("decision") == "reject"
    return text_of(output.content).startswith(_REJECTION)


def request_text(value: Any) -> str:
    """Return the user's words in the input of a chain or agent; empty where there are none."""
    if isinstance(value, str):
        return value
    if isinstance(value, HumanMessage):
        return text_of(value.content)
    if isinstance(value, Mapping):
        return next(filter(None, (request_text(value.get(key)) for key in REQUEST_KEYS)), "")
    if isinstance(value, Sequence):
        human = last_human(value)
        return text_of(value) if human is None else text_of(human.content)
    return ""


def answer_text(value: Any) -> str:
    """Return the answer in the output of a chain or agent; empty where it is none, as at an interrupt."""
    if isinstance(value, AIMessage):
        return "" if value.tool_calls else text_of(value.content)
    if isinstance(value, Mapping):
        return next(filter(None, (answer_text(value.get(key)) for key in ANSWER_KEYS)), "")
    if isinstance(value, Sequence) and value and isinstance(value[-1], BaseMessage):
        return answer_text(value[-1])
    return text_of(value)


def text_of(content: Any) -> str:
    """Return the text of a message's content: of a string, or of the text blocks in a list."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return ""
    blocks = (block.get("text") if isinstance(block, Mapping) else block for block in content)
    return "\n".join(block for block in blocks if isinstance(block, str))


def last_human(messages: Sequence[Any]) -> HumanMessage | None:
    """Return the last message that the user typed, in any form that LangChain takes messages in."""
    for item in reversed(messages):
        message = _message(item)
        # Summaries and notices of other middleware come as human messages with a source.
        if isinstance(message, HumanMessage) and "lc_source" not in message.additional_kwargs:
            return message
    return None


@dataclass(frozen=True, slots=True)
class FailedCall:
    """A tool call that a conversation shows as failed."""

    tool: str
    tool_input: Mapping[str, Any]
    tool_call_id: str
    message: ToolMessage


def failed_calls(messages: Sequence[Any]) -> list[FailedCall]:
    """Return the calls since the last message of the user that are answered by an error."""
    human = last_human(messages)
    if human is None:
        return []
    start = max(index for index, each in enumerate(messages) if each is human or _message(each) == human)
    since = messages[start + 1 :]
    calls = {call["id"]: call for each in since if isinstance(each, AIMessage) for call in each.tool_calls}
    failed: list[FailedCall] = []
    for each in since:
        if isinstance(each, ToolMessage) and each.status == "error":
            call = calls.get(each.tool_call_id)
            name = each.name or (call["name"] if call else "")
            failed.append(FailedCall(name, call["args"] if call else {}, each.tool_call_id, each))
    return failed


def _message(item: Any) -> BaseMessage | None:
    if isinstance(item, BaseMessage):
        return item
    pair = isinstance(item, tuple) and len(item) == 2
    if not pair and not (isinstance(item, Mapping) and "content" in item):
        return None
    try:
        return convert_to_messages([item])[0]
    except (ValueError, TypeError, NotImplementedError):
        return None
