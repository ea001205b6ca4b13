"""Encode, importance: how much a record matters, 0-100, with the reasons, by rules that are data."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from langchain_hermes_memory._rules import load_rules
from langchain_hermes_memory.record import Reason, Record, RecordType


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """How the same action went before; the counts leave out the record that is being scored."""

    failures: int = 0
    """Failures and partial successes within the frequency window."""
    failures_ever: int = 0
    """The same, however long ago."""
    successes: int = 0
    """Successes, ever."""
    successes_since_failure: int = 0
    """Successes after the last failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreInput:
    """What a scorer may look at."""

    record: Record
    """The record as encoded so far; its own importance is not yet set."""
    history: History = History()
    act: str = ""
    """What the user's words do (`preference`, `correction`, ...); empty for a tool run."""
    rejected: bool = False
    """Whether a person refused the call."""


@dataclass(frozen=True, slots=True)
class Importance:
    """A score from 0 to 100 and what made it."""

    score: int
    reasons: tuple[Reason, ...]


class Scorer(Protocol):
    """Anything that can tell how important a record is."""

    def score(self, given: ScoreInput) -> Importance:
        """Return the importance of a record. May raise: the engine then falls back to the rules."""
        ...


class Range(BaseModel):
    """Inclusive bounds of a number."""

    model_config = ConfigDict(extra="forbid")
    min: int = 0
    max: int = 1_000_000_000


class When(BaseModel):
    """Conditions of a rule; all that are given must hold."""

    model_config = ConfigDict(extra="forbid")
    type: list[str] | None = None
    status: list[str] | None = None
    category: list[str] | None = None
    transient: list[Literal["yes", "no", "unknown"]] | None = None
    target_class: list[str] | None = None
    tags: list[str] | None = None
    tool: list[str] | None = None
    act: list[str] | None = None
    dangerous: bool | None = None
    critical: bool | None = None
    rejected: bool | None = None
    failures: Range | None = None
    failures_ever: Range | None = None
    successes: Range | None = None


class Why(BaseModel):
    """The reason in words."""

    model_config = ConfigDict(extra="forbid")
    en: str
    zh: str


class ImportanceRule(BaseModel):
    """One rule of `rules/importance.toml`."""

    model_config = ConfigDict(extra="forbid")
    id: str
    why: Why
    when: When
    points: int = 0
    at_least: int | None = Field(None, ge=0, le=100)
    at_most: int | None = Field(None, ge=0, le=100)


class ImportanceRules(BaseModel):
    """The whole of `rules/importance.toml`."""

    model_config = ConfigDict(extra="forbid")
    base: dict[RecordType, int]
    rule: list[ImportanceRule]


class Act(BaseModel):
    """One kind of utterance in `rules/turns.toml`."""

    model_config = ConfigDict(extra="forbid")
    id: str
    patterns: list[str]
    whole: bool = False
    yes: list[str]
    no: list[str]

    def matches(self, words: str) -> bool:
        """Whether the words are (or contain) this kind of utterance."""
        look = re.fullmatch if self.whole else re.search
        return any(look(pattern, words, re.IGNORECASE) for pattern in self.patterns)


class Acts(BaseModel):
    """The whole of `rules/turns.toml`."""

    model_config = ConfigDict(extra="forbid")
    act: list[Act]


class SpeechActs:
    """Tells what a user's words do: greet, correct, warn, prefer, ask."""

    LONGEST = 400
    """Characters that are looked at: a wish or correction stands at the start."""

    def __init__(self) -> None:
        self._acts = load_rules("turns", Acts).act

    def read(self, words: str) -> str:
        """Return the id of the first act that matches, or an empty string."""
        text = " ".join(words[: self.LONGEST].split())
        return next((act.id for act in self._acts if act.matches(text)), "")


class RuleScorer:
    """Importance by the rules of `rules/importance.toml`.

    Args:
        critical_tools: Name patterns (`fnmatch`, case-insensitive) of tools whose every run matters.
    """

    def __init__(self, critical_tools: Sequence[str] = ()) -> None:
        self._rules = load_rules("importance", ImportanceRules)
        self._critical = [name.lower() for name in critical_tools]

    def score(self, given: ScoreInput) -> Importance:
        """Apply the rules from top to bottom."""
        features = self._features(given)
        score = self._rules.base[given.record.type]
        reasons = [Reason(rule="base", points=score)]
        for rule in self._rules.rule:
            if not _holds(rule.when, features):
                continue
            before = score
            score += rule.points
            if rule.at_least is not None:
                score = max(score, rule.at_least)
            if rule.at_most is not None:
                score = min(score, rule.at_most)
            if score != before:
                reasons.append(Reason(rule=rule.id, points=score - before))
        bounded = max(0, min(100, score))
        if bounded != score:
            reasons.append(Reason(rule="bounds", points=bounded - score))
        return Importance(bounded, tuple(reasons))

    def why(self, reason: Reason, lang: Literal["en", "zh"]) -> str:
        """Return a reason in words; an unknown rule (of another scorer) explains itself by its detail."""
        known = {rule.id: rule.why for rule in self._rules.rule}
        if reason.rule in known:
            return known[reason.rule].zh if lang == "zh" else known[reason.rule].en
        return reason.detail or reason.rule

    def _features(self, given: ScoreInput) -> Mapping[str, object]:
        record, result = given.record, given.record.execution_result
        tool = record.tool_name.lower()
        transient = {True: "yes", False: "no", None: "unknown"}[result.transient]
        return {
            "type": record.type.value,
            "status": result.status.value,
            "category": result.category.value if result.category else "",
            "transient": transient,
            "target_class": {target.target_class.value for target in record.action.targets},
            "tags": set(record.tags),
            "tool": tool,
            "act": given.act,
            "dangerous": record.action.dangerous,
            "critical": any(fnmatch.fnmatchcase(tool, pattern) for pattern in self._critical),
            "rejected": given.rejected,
            "failures": given.history.failures + record.failed,
            "failures_ever": given.history.failures_ever + record.failed,
            "successes": given.history.successes,
        }


def _holds(when: When, features: Mapping[str, object]) -> bool:
    for name in when.model_fields_set:
        wanted, found = getattr(when, name), features[name]
        if isinstance(wanted, Range):
            if not (isinstance(found, int) and wanted.min <= found <= wanted.max):
                return False
        elif isinstance(wanted, bool):
            if found is not wanted:
                return False
        elif not set(wanted) & (found if isinstance(found, set) else {found}):
            return False
    return True


def rule_ids(reasons: Iterable[Reason]) -> list[str]:
    """Return the ids of the rules behind a score, in the order in which they were applied."""
    return [reason.rule for reason in reasons]
