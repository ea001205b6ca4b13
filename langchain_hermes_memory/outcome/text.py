"""Reads the text of an output: what the tool says of the call, not what it merely passes on."""

from __future__ import annotations

import re
from dataclasses import replace

from langchain_hermes_memory.outcome.call import Call
from langchain_hermes_memory.outcome.envelope import Body
from langchain_hermes_memory.outcome.exceptions import by_name
from langchain_hermes_memory.outcome.finding import Finding, by_code, by_exit, by_http, evidence
from langchain_hermes_memory.outcome.model import OutcomeRules, compiled, line_at
from langchain_hermes_memory.outcome.zone import Zone, first, matching
from langchain_hermes_memory.record import Category, Status

_TAIL_LINES = 30
_SHORT = 400
_ERRNO = re.compile(r"\bE[A-Z0-9]{3,14}\b")
_INLINE = re.compile(
    r"\b(?:python[\d.]*|node|ruby|perl|php)\b.*\s-(?:c|e|r|p)\b|^\s*(?:python|node)[\d.]*\s+-?\s*<<",
    re.DOTALL,
)


class TextReader:
    """Reads the text that one call returned."""

    def __init__(self, rules: OutcomeRules, call: Call) -> None:
        self._rules = rules
        self._call = call
        self._zones: dict[str, Zone] = {}

    def read(self, body: Body) -> Finding:
        """Return how the call went; always something, `unknown` where the text shows nothing."""
        if body.verdict == "failed" or body.exit_code:
            return self._failed(body)
        nothing = self._call.is_lookup and compiled(self._rules.zones["nothing"]).fullmatch(
            body.text.strip()[:20]
        )
        if not body.text.strip() or nothing:
            return self._empty(body)
        if body.verdict == "worked":
            return Finding(status=Status.SUCCESS, evidence=evidence("envelope", "success", body.quote))
        return self._open(body)

    def _zone(self, text: str) -> Zone:
        if text not in self._zones:
            self._zones[text] = Zone(text, self._rules)
        return self._zones[text]

    def cause(self, text: str) -> Finding | None:
        """Return why something failed, from a text that is known to speak of a failure."""
        zone = self._zone(text)
        by_type = self._exception(text)
        if by_type is not None and _outranks(by_type):
            return by_type
        by_rule = first(zone, self._call, ("reader", "cause", "detail"), "pattern", causes=True)
        if by_rule is not None:
            return by_rule[0]
        return (
            self._http(text) or self._errno(text) or self._platform_code(text) or self._guess(zone) or by_type
        )

    def _errno(self, text: str) -> Finding | None:
        """Read the name that the C library gives a failure, such as `EXDEV`."""
        for match in _ERRNO.finditer(text):
            category = self._rules.errno.get(match.group())
            if category is not None:
                line = line_at(text, match.start())
                seen = evidence("pattern", f"errno-{match.group()}", line)
                return Finding(
                    status=Status.FAILURE,
                    category=category,
                    code=match.group(),
                    detail=line.strip(),
                    evidence=seen,
                )
        return None

    def _platform_code(self, text: str) -> Finding | None:
        for match in compiled(self._rules.zones["platform_code"]).finditer(text):
            found = by_code(
                self._rules, self._call.tool, match["code"], "pattern", line_at(text, match.start())
            )
            if found is not None:
                return found
        return None

    def _guess(self, zone: Zone) -> Finding | None:
        guess = first(zone, self._call, ("guess",), "pattern")
        return guess[0] if guess else None

    # --- known to have failed

    def _failed(self, body: Body) -> Finding:
        """Return the reading of a run that is known to have ended badly; what is open is why, and how far."""
        code = body.exit_code
        known = by_exit(self._rules, self._call.programs, code) if code else None
        if known is not None and known.status is Status.SUCCESS and not self._own(body):
            return known
        quote = body.quote or f"exit code {code}"
        base = Finding(
            status=Status.FAILURE,
            detail=_last_line(body.text) or quote,
            evidence=evidence("envelope", "failed", quote),
        )
        if code and not body.text.strip() and self._call.is_lookup and code == 1:
            return base.filled(_nothing_found("empty"))
        told = self._told(body.text)
        if told is not None and told.status is Status.SUCCESS:
            told = None
        if told is None:
            told = self._why(body.stderr) or self._why(self._own_text(body)) or self._why(body.text)
        if (
            (told is not None and told.status is Status.PARTIAL)
            or (known is not None and known.status is Status.PARTIAL)
            or (code and told is not None and self._is_partial(body, body.text))
        ):
            base = replace(base, status=Status.PARTIAL)
        if told is not None:
            base = replace(base, detail=told.detail or base.detail)
        return base.filled(told).filled(known)

    def _why(self, text: str) -> Finding | None:
        if not text.strip():
            return None
        hard = self._zone(text).firm
        return self.cause(_from_traceback(hard)) or self.cause(text)

    # --- not known

    def _open(self, body: Body) -> Finding:
        """Return the reading of a text that nothing outside of it explains."""
        text = self._own_text(body)
        told = self._told(body.text if not self._call.is_payload else text, payload_of=body.text)
        if told is not None:
            return told
        if body.exit_code == 0 and not self._call.hides_exit:
            return Finding(status=Status.SUCCESS, evidence=evidence("envelope", "exit-0", body.quote))
        if not text.strip():
            return Finding(
                status=Status.SUCCESS, evidence=evidence("reader", "payload", _first_line(body.text))
            )
        return self._stated(body, text)

    def _stated(self, body: Body, text: str) -> Finding:
        """Read failures out of what the tool says in its own words."""
        hard = self._zone(text).firm
        if not hard.strip() and self._call.is_lookup:
            hard = text
        narrow = _from_traceback(hard)
        zone = self._zone(narrow)
        found = first(zone, self._call, ("cause",), "pattern")
        alarm = first(zone, self._call, ("alarm",), "pattern") or self._said_by_program(narrow)
        crash = self._exception(narrow)
        if found is None and alarm is None and crash is None:
            return Finding(
                status=Status.SUCCESS, evidence=evidence("pattern", "no-failure-signs", _last_line(body.text))
            )
        at = max(match[1] for match in (found, alarm) if match) if found or alarm else 0
        last = _last_line(narrow)
        retried = first(self._zone(last), self._call, ("retry",), "verdict")
        if retried is not None and at < narrow.rfind(last):
            return retried[0]
        why = self.cause(narrow) or (found[0] if found else None) or crash
        if why is None or why.category in (None, Category.UNKNOWN, Category.NOT_FOUND):
            why = self._anyway(text) or why
        base = found[0] if found else alarm[0] if alarm else crash
        assert base is not None  # noqa: S101 - one of the three was found
        base = replace(base, category=None, transient=None, advice="", code="").filled(why)
        if why is not None and why.detail:
            base = replace(base, detail=why.detail)
        if self._is_partial(body, hard):
            base = replace(base, status=Status.PARTIAL)
        return base

    def _said_by_program(self, text: str) -> tuple[Finding, int] | None:
        """Find a line in which a program of a shell command complains: `cp: ...`."""
        if not self._call.is_shell:
            return None
        at = 0
        for line in text.split("\n"):
            if self._call.says(line) and not compiled(self._rules.zones["chatter"]).search(line):
                found = evidence("pattern", "said-by-program", line)
                return Finding(status=Status.FAILURE, detail=line.strip(), evidence=found), at
            at += len(line) + 1
        return None

    def _anyway(self, text: str) -> Finding | None:
        """Return a cause that also counts in a warning: what cannot be reached explains what is missing."""
        for rule, match, at in matching(self._zone(text), self._call, ("cause",)):
            if (
                rule.category in (Category.NETWORK, Category.RESOURCE_EXHAUSTED, Category.RATE_LIMIT)
                and match is None
            ):
                line = line_at(text, at)
                return Finding(
                    status=rule.status,
                    category=rule.category,
                    code=rule.error_code,
                    transient=rule.transient,
                    advice=rule.advice,
                    detail=line.strip(),
                    evidence=evidence("pattern", rule.id, line),
                )
        return None

    # --- what tools say in forms of their own

    def _told(self, text: str, payload_of: str = "") -> Finding | None:
        """Return what a reader or a closing statement says, counts included."""
        found = first(self._zone(text), self._call, ("reader",), "reader")
        if found is None and payload_of:
            found = first(self._zone(payload_of), self._call, ("reader",), "reader", payload=True)
        if found is not None:
            return self._explained(found[0], text or payload_of)
        if self._call.is_payload and not text.strip():
            return None
        tail = "\n".join(text.rstrip().split("\n")[-_TAIL_LINES:])
        return self._verdict(self._zone(tail), text)

    def _verdict(self, zone: Zone, text: str) -> Finding | None:
        """Read closing statements, counting parts where they count: the last statement wins."""
        last: tuple[int, Finding] | None = None
        for rule, match, at in matching(zone, self._call, ("verdict",)):
            line = line_at(zone.text, at)
            counts = _counts(match)
            status = _by_counts(counts) if counts else rule.status
            if status is None or (last is not None and last[0] >= at):
                continue
            found = Finding(
                status=status,
                category=None if status is Status.SUCCESS else rule.category,
                code="" if status is Status.SUCCESS else rule.error_code,
                transient=rule.transient,
                detail=line.strip(),
                evidence=evidence("verdict", rule.id, line),
            )
            last = (at, found)
        if last is None:
            return None
        return self._explained(last[1], text)

    def _explained(self, found: Finding, text: str) -> Finding:
        """Add the cause to a failure of which only the fact is known."""
        if found.status is Status.SUCCESS or found.category not in (None, Category.UNKNOWN):
            return found
        if found.code.isdigit() and len(found.code) == 3:
            by_status = by_http(self._rules, int(found.code), "reader", found.detail)
            return (
                found
                if by_status is None
                else replace(by_status, evidence=(*found.evidence, *by_status.evidence))
            )
        return found.filled(self._why(text))

    def _exception(self, text: str) -> Finding | None:
        """Read the last exception that a text names, by its message first, then by its type."""
        last = None
        for seen in compiled(self._rules.zones["exception"]).finditer(text):
            last = seen
        if last is None:
            return None
        message = (last["arg"] or last["msg"] or "").strip()
        line = last.group().strip()
        by_type = by_name(self._rules, [last["type"]], line)
        by_rule = first(
            self._zone(line if message else ""),
            self._call,
            ("reader", "cause", "detail"),
            "exception",
            causes=True,
        )
        found = Finding(
            status=Status.FAILURE, detail=line, evidence=evidence("exception", f"type-{last['type']}", line)
        )
        if by_rule is not None:
            found = found.filled(by_rule[0])
        found = found.filled(by_type)
        inline = self._call.is_code or _INLINE.search(self._call.command) is not None
        if inline and found.category is Category.INTERNAL:
            found = replace(found, category=Category.INVALID_ARGUMENT)
        return found

    def _http(self, text: str) -> Finding | None:
        match = compiled(self._rules.zones["http_status"]).search(text)
        if match is None:
            return None
        status = int(match["code"] or match["code2"])
        return by_http(self._rules, status, "pattern", line_at(text, match.start()))

    # --- nothing

    def _empty(self, body: Body) -> Finding:
        """Read an output without a word: what it means depends on the command."""
        if self._call.is_lookup:
            return _nothing_found("empty")
        if body.exit_code == 0:
            return Finding(status=Status.SUCCESS, evidence=evidence("envelope", "exit-0", body.quote))
        if self._call.is_silent:
            return Finding(status=Status.SUCCESS, evidence=evidence("empty", "silent-on-success"))
        return Finding(status=Status.UNKNOWN, evidence=evidence("empty", "no-output"))

    # --- whose lines

    def _own(self, body: Body) -> bool:
        return bool(self._own_text(body).strip())

    def _own_text(self, body: Body) -> str:
        """Return the lines that the tool says itself; all lines unless it passes something on."""
        if self._call.is_shell:
            if not self._call.is_payload:
                return body.text
            lines = [line for line in body.text.split("\n") if self._call.says(line[:500])]
            return "\n".join([*lines, body.stderr]) if body.stderr else "\n".join(lines)
        if self._call.is_code:
            return body.text
        head = _first_line(body.text)
        if compiled(self._rules.zones["report_head"]).match(head[:_SHORT]):
            return body.text
        short = compiled(self._rules.zones["short_report"]).match(body.text.strip()[:_SHORT])
        if self._call.is_document or (self._call.is_payload and not short):
            return ""
        return (
            body.text if len(body.text.strip()) <= _SHORT else "\n".join(body.text.strip().split("\n")[-3:])
        )

    def _reports(self, text: str) -> list[str]:
        """Return the lines that report a failure of one part."""
        pattern = compiled(self._rules.zones["error_line"])
        return [line for line in text.split("\n") if pattern.match(line)]

    def _names_operand(self, text: str) -> bool:
        """Tell whether a line of failure is about what the command named itself, not what is inside of it."""
        lines = "\n".join(self._reports(text))
        named = {word.rstrip("/") for part in self._call.speaking for word in part.operands if len(word) > 1}
        return any(
            re.search(rf"""(?:^|[\s'"‘“`]){re.escape(word)}/?(?:['"’”`:：]|$)""", lines, re.MULTILINE)
            for word in named
        )

    def _is_partial(self, body: Body, hard: str) -> bool:
        """Tell a failure of some parts from a failure of the whole.

        Args:
            body: The output.
            hard: Its lines that may report a failure.
        """
        call = self._call
        if call.is_recursive:
            return bool(self._reports(hard)) and not self._names_operand(body.text)
        if call.parts > 1 and 0 < len(self._reports(hard)) < call.parts:
            return compiled(self._rules.zones["whole_error"]).search(body.text) is None
        part, report = compiled(self._rules.zones["part_error"]), compiled(self._rules.zones["error_line"])
        lines = [line for line in body.text.split("\n") if line.strip()]
        return any(part.match(line) for line in lines) and any(not report.match(line) for line in lines)


def _outranks(found: Finding) -> bool:
    return found.category not in (None, Category.UNKNOWN)


def _nothing_found(rule: str) -> Finding:
    return Finding(
        status=Status.FAILURE,
        category=Category.NOT_FOUND,
        code="NO_RESULT",
        evidence=evidence("empty", f"nothing-found-{rule}"),
    )


def _from_traceback(text: str) -> str:
    """Return a text from the last line of its last traceback's frames on."""
    at = text.rfind("Traceback (most recent call last)")
    if at < 0:
        return text
    last = None
    for last in re.finditer(r"^\S.*$", text[at:], re.MULTILINE):
        if not last.group().startswith("Traceback"):
            break
    return text[at + last.start() :] if last else text


def _counts(match: re.Match[str] | None) -> dict[str, int]:
    if match is None:
        return {}
    found = {name.rstrip("23"): value for name, value in match.groupdict().items() if value}
    return {name: int(value) for name, value in found.items() if name in ("ok", "bad", "total")}


def _by_counts(counts: dict[str, int]) -> Status | None:
    """Return what the numbers of good and bad parts mean; None where they do not say."""
    total = counts.get("total")
    ok = counts.get("ok")
    bad = counts.get("bad")
    if bad is None and total is not None and ok is not None:
        bad = total - ok
    if ok is None and total is not None and bad is not None:
        ok = total - bad
    if bad is None:
        return None
    if bad <= 0:
        return Status.SUCCESS
    return Status.PARTIAL if ok else Status.FAILURE


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]


def _last_line(text: str) -> str:
    return text.strip().rsplit("\n", 1)[-1]
