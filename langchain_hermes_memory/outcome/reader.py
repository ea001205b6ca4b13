"""The outcome reader: weighs exception, structure, envelope and text of a result, in this order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from langchain_hermes_memory._text import one_line, shorten
from langchain_hermes_memory.outcome.call import Call, read_call
from langchain_hermes_memory.outcome.envelope import Body, unwrap
from langchain_hermes_memory.outcome.exceptions import read_exception
from langchain_hermes_memory.outcome.finding import Finding, evidence
from langchain_hermes_memory.outcome.model import compiled, load
from langchain_hermes_memory.outcome.structure import Structure
from langchain_hermes_memory.outcome.text import TextReader
from langchain_hermes_memory.outcome.values import (
    as_result,
    cut_middle,
    messages_of,
    parse,
    plain,
    squeeze,
    text_of,
)
from langchain_hermes_memory.record import Category, Outcome, Status, Target, TargetClass

logger = logging.getLogger(__name__)

Reader = Callable[[str, str, str], Outcome | None]
"""A user's own reader: called with tool, command and output text; None where it has nothing to say."""

MAX_READ = 24_000
"""Characters of an output that are read: the first third and the last two thirds of a longer one."""

_MAX_DETAIL = 300
_MAX_EVIDENCE = 8


class OutcomeReader:
    """Reads how a tool run ended, why, and whether trying again would help.

    Example:
        ```python
        reader = OutcomeReader()
        output = "cat: a.txt: No such file or directory"
        outcome = reader.read(tool="bash", command="cat a.txt", output=output)
        assert outcome.category == "not_found"
        ```
    """

    def __init__(
        self, *, rules_file: Path | None = None, readers: Mapping[str, Reader] | None = None
    ) -> None:
        """Load the rules.

        Args:
            rules_file: A TOML file of the shape of `rules/outcomes.toml`, tried before the packaged rules.
            readers: Readers of your own by tool name pattern (`*` allowed, any case). The first that returns
                an outcome decides; one that raises is logged and skipped.

        Raises:
            RuleError: The rule file cannot be read or does not fit.
        """
        self._rules = load(rules_file)
        self._readers = {name.lower(): reader for name, reader in (readers or {}).items()}

    def read(
        self,
        *,
        tool: str,
        command: str,
        output: Any,
        error: BaseException | str | None = None,
        rejected: bool = False,
        targets: Sequence[Target] = (),
    ) -> Outcome:
        """Read one result. Never raises, and takes bounded time for any input.

        Args:
            tool: Name of the tool.
            command: What it was given: a shell line, or its arguments as JSON.
            output: What it returned.
            error: The exception that it raised, or its text.
            rejected: Whether a human refused the call before it ran; `output` then holds the reason.
            targets: What the call was aimed at.
        """
        try:
            call = read_call(str(tool), str(command), self._rules.commands)
            finding = self._finding(call, output, error, rejected=rejected)
            return finding if isinstance(finding, Outcome) else self._outcome(finding, call, targets)
        except Exception:
            logger.exception("An outcome could not be read and is kept as unknown.")
            return Outcome(status=Status.UNKNOWN, evidence=evidence("pattern", "reader-failed"))

    def _finding(
        self, call: Call, output: Any, error: BaseException | str | None, *, rejected: bool
    ) -> Finding | Outcome:
        text = TextReader(self._rules, call)
        if rejected:
            reason = text_of(output) or (text_of(error) if error is not None else "")
            return Finding(
                status=Status.FAILURE,
                category=Category.BLOCKED,
                code="REJECTED",
                detail=reason,
                advice="ask_user",
                evidence=evidence("exception", "rejected-by-human", reason),
            )
        if isinstance(error, BaseException):
            return read_exception(self._rules, error, text.cause)
        if isinstance(error, str):
            return self._error_text(error, text)
        output = as_result(output)
        shown = squeeze(cut_middle(text_of(output), MAX_READ))
        own = self._own_reader(call, shown)
        return own or self._output(call, output, shown, text)

    def _error_text(self, error: str, text: TextReader) -> Finding:
        short = squeeze(cut_middle(error, MAX_READ))
        base = Finding(
            status=Status.FAILURE, detail=short, evidence=evidence("exception", "error-text", short)
        )
        return base.filled(text.cause(short))

    def _own_reader(self, call: Call, text: str) -> Outcome | None:
        for pattern, reader in self._readers.items():
            if not fnmatchcase(call.tool, pattern):
                continue
            try:
                outcome = reader(call.tool, call.command, text)
            except Exception:
                logger.exception("The outcome reader for %s failed and is skipped.", pattern)
                continue
            if outcome is not None:
                return outcome
        return None

    def _output(self, call: Call, output: Any, shown: str, text: TextReader) -> Finding:
        body = unwrap(shown, call, self._rules)
        if _marked_as_error(output) and body.exit_code is None:
            body = replace(body, verdict="failed", quote="marked as an error")
        structured = self._structured(call, output, body.text, text)
        if structured is not None and not (body.exit_code and structured.status is Status.SUCCESS):
            return structured if body.verdict != "failed" else text.read(body).filled(structured)
        return text.read(body)

    def _structured(self, call: Call, output: Any, body: str, text: TextReader) -> Finding | None:
        """Read a result that is data: a dict or list, or text that holds one."""
        data = None if isinstance(output, (str, bytes, bytearray)) else _data(output)
        data = data if isinstance(data, (dict, list)) else parse(body)
        reader = Structure(self._rules, call, text.cause)
        if data is None:
            return self._embedded(call, body, reader, text)
        if call.is_shell and call.is_payload:
            return Finding(status=Status.SUCCESS, evidence=evidence("reader", "payload", body))
        found = reader.read(data)
        if found is not None:
            return found
        if call.is_lookup and (not data or _hollow(data)):
            return text.read(Body(""))
        return Finding(status=Status.SUCCESS, evidence=evidence("structure", "data", body))

    def _embedded(self, call: Call, body: str, reader: Structure, text: TextReader) -> Finding | None:
        """Read data that follows a few words, such as `HTTP 429: {...}`."""
        start, end = body.find("{"), body.rfind("}")
        if call.is_payload or not 0 <= start < 300 or end < start or len(body) - end > 300:
            return None
        data = parse(body[start : end + 1])
        found = reader.read(data) if data else None
        lead = body[:start]
        if found is None or found.status is Status.SUCCESS:
            return None
        named = text.cause(lead) if compiled(self._rules.zones["report_head"]).match(lead) else None
        return found.filled(named)

    def _outcome(self, finding: Finding, call: Call, targets: Sequence[Target]) -> Outcome:
        seen = finding.evidence[:_MAX_EVIDENCE]
        if finding.status not in (Status.FAILURE, Status.PARTIAL):
            return Outcome(status=finding.status, evidence=seen)
        category = finding.category or Category.UNKNOWN
        transient = finding.transient if finding.transient is not None else self._rules.transient[category]
        advice = finding.advice or ("retry_later" if transient is True else self._rules.advice[category])
        if category is Category.NOT_FOUND and self._vanished(finding, call, targets):
            transient, advice = True, "already_gone"
        return Outcome(
            status=finding.status,
            category=category,
            error_code=finding.code or self._rules.error_codes[category],
            error_detail=shorten(one_line(finding.detail[: 4 * _MAX_DETAIL]), _MAX_DETAIL),
            transient=None if transient == "unknown" else transient,
            suggested_action=advice,
            evidence=seen,
        )

    def _vanished(self, finding: Finding, call: Call, targets: Sequence[Target]) -> bool:
        """Tell a missing path in a temporary place, during a clean-up: someone else was faster."""
        cleaning = compiled(self._rules.zones["clean_up"]).search(f"{call.tool} {call.command}") is not None
        if not cleaning:
            return False
        if any(target.target_class is TargetClass.TEMPORARY for target in targets):
            return True
        return compiled(self._rules.zones["temporary"]).search(finding.detail) is not None


def _data(output: Any) -> Any:
    """Return the data of a structured result; None for messages, whose text is read."""
    if messages_of(output) or hasattr(output, "content") or hasattr(output, "page_content"):
        return None
    data = plain(output)
    if isinstance(data, dict) and isinstance(data.get("content"), list) and data["content"]:
        return None
    if (
        isinstance(data, list)
        and data
        and all(isinstance(item, dict) and "type" in item and "text" in item for item in data)
    ):
        return None
    return data


def _marked_as_error(output: Any) -> bool:
    """Tell whether a message or MCP result is flagged as an error."""
    messages = messages_of(output)
    holders = messages[-1:] or [output]
    for holder in holders:
        if isinstance(holder, Mapping):
            flags = [holder.get("isError"), holder.get("is_error")]
        else:
            flags = [getattr(holder, "isError", None), getattr(holder, "is_error", None)]
            flags.append(getattr(holder, "status", None) == "error" and hasattr(holder, "content"))
        if any(flag is True for flag in flags):
            return True
    return False


def _hollow(data: Any) -> bool:
    """Tell a result that holds no result: `{"results": []}`."""
    if isinstance(data, dict):
        lists = [value for value in data.values() if isinstance(value, (list, dict))]
        return bool(lists) and not any(lists) and len(data) <= 4
    return isinstance(data, list) and not any(data)
