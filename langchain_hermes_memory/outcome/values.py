"""Turns whatever a tool returned into plain data and into readable text, in bounded time and space."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

MAX_TEXT = 200_000
"""Characters of an output that `text_of` returns at most: a third from the head, the rest from the tail."""

_MAX_NODES = 4_000
_MAX_DEPTH = 12
_MAX_STRING = 24_000
_CUT = "\n[…]\n"


def text_of(value: Any) -> str:
    """Return the readable text of any tool output.

    Text is returned as it is, messages and content blocks by their text, a `Command` by its tool messages,
    other data as JSON. Never raises, also for cyclic or hostile objects.

    Args:
        value: What a tool returned.

    Returns:
        At most `MAX_TEXT` characters; the middle of a longer text is left out.
    """
    return cut_middle(_text(value), MAX_TEXT)


def cut_middle(text: str, limit: int) -> str:
    """Keep the first third and the last two thirds of `limit` characters, where tools put their verdict."""
    if len(text) <= limit:
        return text
    head = limit // 3
    return text[:head] + _CUT + text[len(text) - (limit - head - len(_CUT)) :]


def squeeze(text: str) -> str:
    """Shorten runs of blanks and empty lines: they say nothing, and patterns search them in vain."""
    if " " * 17 in text or "\t" in text or not text.isascii():  # the pattern is slow where it finds nothing
        text = _BLANKS.sub(" " * 16, text)
    return _LINES.sub("\n\n", text)


def as_result(output: Any) -> Any:
    """Return the object that a text holds if it is the result of a tool server; else the output as it is."""
    if not isinstance(output, str) or '"content"' not in output[:MAX_TEXT]:
        return output
    data = parse(output)
    return data if isinstance(data, dict) and "content" in data and data.keys() <= _RESULT_KEYS else output


def messages_of(value: Any) -> list[Any]:
    """Return the tool messages that a LangGraph `Command` carries; empty for anything else."""
    update = getattr(value, "update", None)
    if not isinstance(update, Mapping) or isinstance(value, Mapping):
        return []
    messages = update.get("messages")
    if not isinstance(messages, Iterable) or isinstance(messages, (str, bytes)):
        return []
    return [message for message in messages if hasattr(message, "content")]


def plain(value: Any) -> Any:
    """Return a value as nested dicts, lists and scalars, cut to a bounded size."""
    return _Plain().convert(value, 0)


def parse(text: str) -> Any:
    """Return the data that a text is written in (JSON, JSON lines' last line excepted, or a Python literal).

    Returns:
        A dict or list, or None where the text is something else.
    """
    stripped = text.strip()
    if len(stripped) > MAX_TEXT or stripped[:1] not in ("{", "[") or stripped[-1:] not in ("}", "]"):
        return None
    try:
        data = json.loads(stripped)
    except (ValueError, RecursionError):
        data = _literal(stripped)
    return data if isinstance(data, (dict, list)) else None


def _literal(text: str) -> Any:
    if len(text) > _MAX_STRING or text.count("[") + text.count("{") > _MAX_NODES // 10:
        return None
    if not any(sign in text for sign in ("'", "(", "None", "True", "False")):  # it is broken JSON
        return None
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value[: 4 * MAX_TEXT]).decode("utf-8", "replace")
    try:
        return _text_of_object(value)
    except Exception:  # noqa: BLE001 - objects of tools may raise anything from their own methods
        return f"<{type(value).__name__}>"


def _text_of_object(value: Any) -> str:
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}".removesuffix(": ")
    messages = messages_of(value)
    if messages:
        return "\n".join(_text(message.content) for message in messages[:50])
    content = _content(value)
    if content is not None:
        return _text(content)
    data = plain(value)
    blocks = _blocks(data)
    if blocks is not None:
        return blocks
    if isinstance(data, (dict, list, bool)):
        return json.dumps(data, ensure_ascii=False)
    return str(data)


def _content(value: Any) -> Any:
    """Return what a message, MCP result or document carries as its text."""
    if isinstance(value, (Mapping, list, tuple)):
        return None
    page = getattr(value, "page_content", None)
    if isinstance(page, str):
        return page
    content = getattr(value, "content", None)
    if isinstance(content, list) and not content:
        return getattr(value, "structuredContent", None)
    return content if isinstance(content, (str, list)) else None


def _blocks(data: Any) -> str | None:
    """Return the text of a list of content blocks, or None where the data is something else."""
    if isinstance(data, dict) and isinstance(data.get("content"), list) and set(data) <= _RESULT_KEYS:
        data = data["content"]
    if not isinstance(data, list) or not data:
        return None
    parts = []
    for block in data:
        if isinstance(block, str):
            parts.append(block)
        elif isinstance(block, dict) and isinstance(block.get("type"), str) and set(block) <= _BLOCK_KEYS:
            parts.append(str(block["text"]) if "text" in block else f"[{block['type']}]")
        elif isinstance(block, dict) and isinstance(block.get("page_content"), str):
            parts.append(block["page_content"])
        else:
            return None
    return "\n".join(parts)


_BLANKS = re.compile(r"[^\S\n]{17,}")
_LINES = re.compile(r"\n(?:[^\S\n]{0,16}\n){2,}")
_RESULT_KEYS = {"content", "isError", "is_error", "structuredContent", "meta", "_meta"}
_BLOCK_KEYS = {
    "type", "text", "id", "index", "annotations", "data", "mimeType", "mime_type", "base64", "url", "source",
    "image_url", "resource", "source_type", "extras", "meta", "_meta", "cache_control", "name", "uri",
    "title",
}  # fmt: skip


class _Plain:
    """One conversion: counts the nodes that it made and knows the containers that it is inside of."""

    def __init__(self) -> None:
        self._left = _MAX_NODES
        self._inside: set[int] = set()

    def convert(self, value: Any, depth: int) -> Any:
        self._left -= 1
        if isinstance(value, (bool, int, float)) or value is None:
            return value
        if isinstance(value, str):
            return cut_middle(value, _MAX_STRING)
        if self._left <= 0 or depth > _MAX_DEPTH or id(value) in self._inside:
            return "…"
        self._inside.add(id(value))
        try:
            return self._container(value, depth)
        finally:
            self._inside.discard(id(value))

    def _container(self, value: Any, depth: int) -> Any:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
        elif isinstance(value, BaseModel):
            value = {name: getattr(value, name, None) for name in type(value).model_fields}
        if isinstance(value, Mapping):
            return {str(key)[:200]: self.convert(value[key], depth + 1) for key in self._some(value)}
        if isinstance(value, (list, tuple, set, frozenset)):
            return [self.convert(item, depth + 1) for item in self._some(value)]
        if isinstance(value, (bytes, bytearray)):
            return bytes(value[:_MAX_STRING]).decode("utf-8", "replace")
        return cut_middle(str(value), _MAX_STRING)

    def _some(self, items: Iterable[Any]) -> Iterable[Any]:
        for item in items:
            if self._left <= 0:
                return
            yield item
