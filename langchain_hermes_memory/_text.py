"""Words shown to people and models, in English and Chinese: data in `text/*.toml`, picked here."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Literal

from langchain_hermes_memory.errors import RuleError

Lang = Literal["en", "zh"]

HAN = re.compile(r"[㐀-䶿一-鿿]")
"""A Chinese character."""


def detect_lang(text: str) -> Lang:
    """Return the language of a text: Chinese as soon as Han characters carry a fair share of it.

    A Han character weighs about as much as one English word, so the two are counted against each other.
    """
    han = len(HAN.findall(text))
    if not han:
        return "en"
    words = len(re.findall(r"[A-Za-z]{2,}", text))
    return "zh" if han >= words else "en"


@functools.cache
def texts(lang: Lang) -> Mapping[str, str]:
    """Return all texts of a language by dotted key, such as `caveat.transient`.

    Raises:
        RuleError: The packaged file is malformed.
    """
    name = f"text/{lang}.toml"
    source = (resources.files("langchain_hermes_memory") / "text" / f"{lang}.toml").read_text("utf-8")
    try:
        tables = tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        msg = f"{name} is not valid TOML: {error}"
        raise RuleError(msg) from error
    return {
        f"{section}.{key}": value for section, entries in tables.items() for key, value in entries.items()
    }


def say(lang: Lang, key: str, **values: object) -> str:
    """Return the text `key` in a language with its fields filled in."""
    return texts(lang)[key].format_map(values)


def without_unseen(text: str) -> str:
    """Return a text without invisible marks; line breaks, tabs and control characters become spaces."""
    return _UNSEEN.sub(lambda match: " " if match[0][0] < "\xa0" else "", text)


def one_line(text: str) -> str:
    """Return a text on one line, without control characters or invisible marks."""
    return " ".join(_UNSEEN.sub(" ", text).split())


def shorten(text: str, limit: int) -> str:
    """Cut a text to at most `limit` characters, never inside a path, name or number.

    Args:
        text: Any text.
        limit: Greatest length of the result, including the mark `…` that shows the cut.
    """
    if len(text) <= limit:
        return text
    end = limit - 1
    start = _token_start(text, end)
    return text[:start].rstrip() + "…" if start > 0 else "…"


def shorten_middle(text: str, limit: int) -> str:
    """Cut a text to at most `limit` characters from its middle: verdicts stand at the head or the tail.

    Args:
        text: Any text.
        limit: Greatest length of the result.
    """
    if len(text) <= limit:
        return text
    mark = " […] "
    room = limit - len(mark)
    if room < 2:
        return text[:limit]
    head = room // 3
    tail_start = _token_end(text, len(text) - (room - head))
    return text[: _token_start(text, head)].rstrip() + mark + text[tail_start:].lstrip()


_UNSEEN = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]+"
)
_JOINED = re.compile(r"[A-Za-z0-9_./\\:@~%#?&=+$*\-]")
_LONGEST_TOKEN = 400


def _token_start(text: str, position: int) -> int:
    """Return the start of the token that `position` falls into, or `position` between tokens.

    A run of characters longer than any sensible path is cut where it stands.
    """
    start = position
    while 0 < start < len(text) and _JOINED.match(text[start - 1]) and _JOINED.match(text[start]):
        start -= 1
        if position - start > _LONGEST_TOKEN:
            return position
    return start


def _token_end(text: str, position: int) -> int:
    """Return the end of the token that `position` falls into, or `position` between tokens."""
    end = position
    while 0 < end < len(text) and _JOINED.match(text[end - 1]) and _JOINED.match(text[end]):
        end += 1
        if end - position > _LONGEST_TOKEN:
            return position
    return end
