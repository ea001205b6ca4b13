"""Takes off the wrapping that agent tools put round an output, and keeps what the wrapping says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from langchain_hermes_memory.outcome.call import Call
from langchain_hermes_memory.outcome.model import OutcomeRules, compiled

Verdict = Literal["failed", "worked", ""]


@dataclass(frozen=True, slots=True)
class Body:
    """An output without its wrapping."""

    text: str
    exit_code: int | None = None
    verdict: Verdict = ""
    """What the wrapping says where it names no exit code."""
    quote: str = ""
    """The wrapping."""
    stderr: str = ""
    """The lines that are known to come from standard error; they are in `text` as well."""


_EDGE = 600


def unwrap(text: str, call: Call, rules: OutcomeRules) -> Body:
    """Split an output into its wrapping and the rest.

    Args:
        text: Bounded text of the output.
        call: What was called.
        rules: The rules, whose `zones` hold the patterns of wrappings.
    """
    zones = rules.zones
    body, exit_code, quote = _exit_code(text, zones["exit"])
    failed = compiled(zones["wrapped_failure"]).match(body.lstrip()[:_EDGE])
    if failed is None and exit_code is None and "$" in call.command:
        body, exit_code, quote = _exit_code(body, zones["exit_echo"])
    verdict: Verdict = ""
    if failed:
        verdict, quote = "failed", failed.group()
    elif (
        exit_code is None
        and not call.is_shell
        and compiled(zones["wrapped_success"]).match(body.lstrip()[:_EDGE])
    ):
        verdict, quote = "worked", body.lstrip()[:80]
    stripped, stderr = _stderr(body)
    if compiled(zones["no_output"]).fullmatch(stripped.strip()):
        stripped = ""
    return Body(stripped, exit_code, verdict, quote, stderr)


def _exit_code(text: str, pattern: str) -> tuple[str, int | None, str]:
    """Cut the lines that name the exit code off the edges of a text."""
    head, tail = text[:_EDGE], text[-_EDGE:] if len(text) > _EDGE else ""
    code, quote = None, ""
    parts = []
    for edge in (head, tail):
        found = None
        for found in compiled(pattern).finditer(edge):
            code, quote = int(found["code"]), found.group()
        parts.append(compiled(pattern).sub("", edge) if found else edge)
    if code is None:
        return text, None, ""
    return parts[0] + text[_EDGE : max(_EDGE, len(text) - _EDGE)] + parts[1], code, quote.strip()


_STDERR = re.compile(r"^\[stderr\] ?", re.MULTILINE | re.IGNORECASE)


def _stderr(text: str) -> tuple[str, str]:
    if "[stderr]" not in text.lower():
        return text, ""
    lines = [line for line in text.split("\n") if _STDERR.match(line)]
    return _STDERR.sub("", text), _STDERR.sub("", "\n".join(lines))
