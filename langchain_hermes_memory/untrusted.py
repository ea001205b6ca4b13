"""Tool output is data: finds text that poses as an instruction, and cuts it out before a model reads it."""

from __future__ import annotations

import fnmatch
import functools
import re

from pydantic import BaseModel, ConfigDict

from langchain_hermes_memory._rules import load_rules


class UntrustedRule(BaseModel):
    """One kind of planted instruction in `rules/untrusted.toml`."""

    model_config = ConfigDict(extra="forbid")
    id: str
    patterns: list[str]
    yes: list[str]
    no: list[str]


class UntrustedRules(BaseModel):
    """The whole of `rules/untrusted.toml`."""

    model_config = ConfigDict(extra="forbid")
    payload_tools: list[str]
    rule: list[UntrustedRule]


_SENTENCE = re.compile(r"[^\n.!?。!?;;]*(?:[.!?。!?;;]+(?=\s|$|[㐀-鿿])|\n|$)")
_LONGEST = 2_000


@functools.cache
def _rules() -> UntrustedRules:
    return load_rules("untrusted", UntrustedRules)


@functools.cache
def _patterns() -> list[tuple[str, re.Pattern[str]]]:
    return [
        (rule.id, re.compile(pattern, re.IGNORECASE | re.MULTILINE))
        for rule in _rules().rule
        for pattern in rule.patterns
    ]


def planted(text: str) -> str:
    """Return the id of the first rule by which a text poses as an instruction, or an empty string."""
    piece = text[:_LONGEST]
    return next((rule for rule, pattern in _patterns() if pattern.search(piece)), "")


def defuse(text: str, mark: str) -> tuple[str, bool]:
    """Cut sentences that pose as instructions out of a text.

    Args:
        text: Any text; only its first 20,000 characters are kept.
        mark: What stands in the place of what was cut.

    Returns:
        The text without them, and whether anything was cut.
    """
    out: list[str] = []
    cut = False
    for match in _SENTENCE.finditer(text[:20_000]):
        sentence = match.group()
        if sentence.strip() and planted(sentence):
            cut = True
            if not out or out[-1] != mark:
                out.append(mark)
        elif sentence:
            out.append(sentence)
    return "".join(out), cut


def is_payload_tool(tool: str) -> bool:
    """Whether what a tool returns is somebody else's text (a page, a mail, a file) rather than its own report."""
    name = tool.lower()
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in _rules().payload_tools)
