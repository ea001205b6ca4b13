"""Tool output is data: finds text that poses as an instruction, and cuts it out before a model reads it."""

from __future__ import annotations

import base64
import binascii
import fnmatch
import functools
import re
import unicodedata
from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict

from langchain_hermes_memory._rules import load_rules
from langchain_hermes_memory._text import without_unseen

MAX_CHARS = 20_000
"""Length to which a text is read; the rest is dropped."""
_LONGEST = 1_000
_OVERLAP = 200
"""A long sentence is read in pieces that overlap: patterns look for words that stand close together."""

_BREAK = re.compile(r"[.!?;]+[\"')\]]*(?=\s)|[\u3002\uff01\uff1f\uff1b]+|\n+")
_SPACED = re.compile(r"\b(?:\w[ \t]){5,}\w\b")
_BASE64 = re.compile(r"[A-Za-z0-9+/]{40,4000}={0,2}")


class UntrustedRule(BaseModel):
    """One kind of planted instruction in `rules/untrusted.toml`."""

    model_config = ConfigDict(extra="forbid")
    id: str
    rest: bool
    """Whether all that follows is cut as well."""
    patterns: list[str]
    yes: list[str]
    no: list[str]


class UntrustedRules(BaseModel):
    """The whole of `rules/untrusted.toml`."""

    model_config = ConfigDict(extra="forbid")
    payload_tools: list[str]
    tags: list[str]
    rule: list[UntrustedRule]


@functools.cache
def untrusted_rules() -> UntrustedRules:
    """Return the packaged rules.

    Raises:
        RuleError: The file is malformed.
    """
    return load_rules("untrusted", UntrustedRules)


@functools.cache
def _patterns() -> list[tuple[UntrustedRule, re.Pattern[str]]]:
    return [
        (rule, re.compile(pattern, re.IGNORECASE | re.MULTILINE))
        for rule in untrusted_rules().rule
        for pattern in rule.patterns
    ]


@functools.cache
def _tagged() -> re.Pattern[str]:
    names = "|".join(map(re.escape, untrusted_rules().tags))
    return re.compile(rf"<({names})>.{{0,4000}}?</\1>", re.IGNORECASE | re.DOTALL)


def planted(text: str) -> str:
    """Return the id of the first rule by which a sentence poses as an instruction, or an empty string."""
    rule = _first_rule(text)
    return "" if rule is None else rule.id


def defuse(text: str, mark: str) -> tuple[str, bool]:
    """Cut what poses as an instruction out of a text.

    Args:
        text: Any text; only its first `MAX_CHARS` characters are kept.
        mark: What stands in the place of what was cut.

    Returns:
        The text without it, and whether anything was cut.
    """
    shown, tagged = _tagged().subn(mark, text[:MAX_CHARS])
    kept: list[str] = []
    cut = bool(tagged)
    for sentence in _sentences(shown):
        rule = _first_rule(sentence)
        if rule is None:
            kept.append(sentence)
            continue
        cut = True
        if not kept or kept[-1] != mark:
            kept.append(mark)
        if rule.rest:
            break
    return "".join(kept), cut


def is_payload_tool(tool: str) -> bool:
    """Whether a tool returns other people's words (a page, a mail, a file) rather than its own report."""
    name = tool.lower()
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in untrusted_rules().payload_tools)


def _first_rule(sentence: str) -> UntrustedRule | None:
    for start in range(0, min(len(sentence), MAX_CHARS), _LONGEST - _OVERLAP):
        plain = _plain(sentence[start : start + _LONGEST])
        for rule, pattern in _patterns():
            if pattern.search(plain):
                return rule
    for coded in _BASE64.findall(sentence[:MAX_CHARS]):
        hidden = _decoded(coded)
        if hidden:
            return next((rule for rule, pattern in _patterns() if pattern.search(hidden)), None)
    return None


def _sentences(text: str) -> Iterator[str]:
    """Yield the sentences and lines of a text; joined, they are the text."""
    start = 0
    for match in _BREAK.finditer(text):
        yield text[start : match.end()]
        start = match.end()
    if start < len(text):
        yield text[start:]


def _plain(sentence: str) -> str:
    """Undo what hides words from patterns: odd forms of letters, invisible marks, spaces between letters."""
    plain = without_unseen(unicodedata.normalize("NFKC", sentence))
    return _SPACED.sub(lambda match: re.sub(r"[ \t](?![ \t])", "", match[0]), plain)


def _decoded(coded: str) -> str:
    """Return what a Base64 text says, if it says something readable."""
    try:
        text = base64.b64decode(coded[: len(coded) // 4 * 4], validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return ""
    return text[:_LONGEST] if text.isprintable() else ""
