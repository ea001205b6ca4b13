"""What a stage of the reader found, and what the rules' tables say about codes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Literal

from langchain_hermes_memory._text import one_line, shorten
from langchain_hermes_memory.outcome.model import OutcomeRules, Rule
from langchain_hermes_memory.record import Category, Evidence, Status

_QUOTE = 160
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[_\-.:/#]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One reading of a result; what is None is left to later stages or to the usual."""

    status: Status
    category: Category | None = None
    code: str = ""
    detail: str = ""
    transient: bool | Literal["unknown"] | None = None
    advice: str = ""
    evidence: tuple[Evidence, ...] = field(default=())

    def filled(self, other: Finding | None) -> Finding:
        """Return this finding with what it lacks taken from another one that speaks for the same failure."""
        if other is None:
            return self
        take = self.category in (None, Category.UNKNOWN) and other.category is not None
        return replace(
            self,
            category=other.category if take else self.category,
            transient=other.transient if take and self.transient is None else self.transient,
            advice=self.advice or (other.advice if take else ""),
            code=self.code or other.code,
            detail=self.detail or other.detail,
            evidence=(*self.evidence, *other.evidence),
        )


def evidence(source: str, rule: str, quote: str = "") -> tuple[Evidence, ...]:
    """Return one piece of evidence with its quote on one short line."""
    return (Evidence(source=source, rule=rule, quote=shorten(one_line(quote[: 4 * _QUOTE]), _QUOTE)),)


def by_rule(rule: Rule, source: str, line: str, code: str = "") -> Finding:
    """Return what a matched rule says."""
    return Finding(
        status=rule.status,
        category=rule.category,
        code=code or rule.error_code,
        detail=line.strip(),
        transient=rule.transient,
        advice=rule.advice,
        evidence=evidence(source, rule.id, line),
    )


def by_http(rules: OutcomeRules, status: int, source: str, quote: str) -> Finding | None:
    """Return what an HTTP status says; None below 400 or outside of HTTP."""
    if not 400 <= status <= 599:
        return None
    category = rules.http.get(str(status)) or rules.http[f"{status // 100}xx"]
    transient = True if status >= 500 and status not in (501, 505) else None
    found = evidence(source, f"http-{status}", quote)
    return Finding(
        status=Status.FAILURE,
        category=category,
        code=f"HTTP_{status}",
        transient=transient,
        detail=quote,
        evidence=found,
    )


def by_code(rules: OutcomeRules, tool: str, code: str, source: str, quote: str) -> Finding | None:
    """Return what a platform's error code says; None where it is not known."""
    for known in rules.code:
        if code in known.codes and (not known.tool or any(fnmatchcase(tool, name) for name in known.tool)):
            found = evidence(source, f"code-{code}", quote)
            return Finding(
                status=Status.FAILURE,
                category=known.category,
                code=code,
                transient=known.transient,
                evidence=found,
            )
    return None


def by_exit(rules: OutcomeRules, programs: tuple[str, ...], code: int) -> Finding | None:
    """Return what a program's exit code says beyond zero or not; None where it says no more."""
    for known in rules.exit:
        if code in known.codes and (not known.programs or any(name in known.programs for name in programs)):
            found = evidence("envelope", f"exit-{code}", f"exit code {code}")
            return Finding(
                status=known.status, category=known.category, transient=known.transient, evidence=found
            )
    return None


def words_of(code: str) -> str:
    """Return a code name as words: `NoSuchBucket` becomes `No Such Bucket`."""
    return " ".join(_CAMEL.sub(" ", code).split())
