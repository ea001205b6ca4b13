"""The shape of `rules/outcomes.toml`, and how one rule is matched against a text."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from langchain_hermes_memory._rules import load_rules
from langchain_hermes_memory.outcome.phrases import Phrases
from langchain_hermes_memory.record import Category, Status

Kind = Literal["verdict", "reader", "cause", "detail", "guess", "alarm", "retry", "benign"]
"""What a rule's match means.

`verdict`: the tool's own closing statement, at the end of the text; `reader`: how one tool says how it went;
`cause`: why something failed, which also says that it failed; `detail`: why, once it is known that it did;
`guess`: the same, where nothing else explains it; `alarm`: that something failed; `retry`: a success that
makes up for failures before it; `benign`: a line that mentions failures and reports none, matched from its
start.
"""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Rule(_Strict):
    """One piece of knowledge about what tools print.

    A rule matches where one of its `phrases` starts a word of the text (any case) or its `pattern` is found
    (any case, `^` and `$` at lines), in a run of `tool` and `command` if these are given.
    """

    id: str
    kind: Kind = "cause"
    tool: tuple[str, ...] = ()
    """Name patterns (`*` allowed, any case); empty: every tool."""
    command: str = ""
    """Regular expression on the command; empty: every command."""
    phrases: tuple[str, ...] = ()
    """Lower-case texts."""
    pattern: str = ""
    """Regular expression. Its groups `ok`, `bad`, `total` count parts, `code` is the tool's error code."""
    words: tuple[str, ...] = ()
    """Lower-case texts of which the text must hold one before the pattern is tried."""
    end: int = Field(default=0, ge=0)
    """Characters at the end of the text in which the pattern is looked for; 0: everywhere."""
    unless: str = ""
    """Regular expression that must not match the line that was found."""
    status: Status = Status.FAILURE
    category: Category | None = None
    error_code: str = ""
    transient: bool | Literal["unknown"] | None = None
    """Left out: as usual for the category."""
    advice: str = ""
    """Key in section `advice` of the texts; empty: the category's."""
    payload: bool = False
    """Whether the rule also holds for a text that the tool merely passes on."""
    yes: tuple[str, ...] = ()
    """Texts that must match."""
    no: tuple[str, ...] = ()
    """Texts that must not."""

    @field_validator("phrases", "words")
    @classmethod
    def _lower(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(phrase.lower() for phrase in value)

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if not self.phrases and not self.pattern:
            msg = f"rule {self.id} has neither phrases nor a pattern"
            raise ValueError(msg)
        for source in (self.pattern, self.unless, self.command):
            try:
                re.compile(source) if source else None
            except re.error as error:
                msg = f"rule {self.id}: {source!r} is no regular expression: {error}"
                raise ValueError(msg) from error
        return self

    def concerns(self, tool: str, command: str) -> bool:
        """Return whether the rule is about this tool (lower case) and command."""
        if self.tool and not any(fnmatchcase(tool, name) for name in self.tool):
            return False
        return not self.command or compiled(self.command).search(command) is not None

    @cached_property
    def needs(self) -> frozenset[str] | None:
        """Texts of which one must be there for the rule to match; None where its pattern needs none."""
        if self.pattern and not self.words:
            return None
        return frozenset((*self.phrases, *self.words))

    def find(self, text: str, spots: Mapping[str, Sequence[int]]) -> tuple[int, re.Match[str] | None] | None:
        """Return where the rule matches a text first, with the match of its pattern.

        Args:
            text: Text to search.
            spots: Where the phrases of the rules start in it.
        """
        for phrase in self.phrases:
            for at in spots.get(phrase, ()):
                if _starts_word(text, at) and not self._excused(text, at):
                    return at, None
        if self.pattern and (not self.words or any(word in spots for word in self.words)):
            start = max(0, len(text) - self.end) if self.end else 0
            for match in compiled(self.pattern).finditer(text, start):
                if not self._excused(text, match.start()):
                    return match.start(), match
        return None

    def _excused(self, text: str, at: int) -> bool:
        return bool(self.unless) and compiled(self.unless).search(line_at(text, at)) is not None


class CodeRule(_Strict):
    """What error codes of web platforms mean."""

    codes: tuple[str, ...]
    """Values of a code field, as text."""
    tool: tuple[str, ...] = ()
    category: Category
    transient: bool | Literal["unknown"] | None = None


class ExitRule(_Strict):
    """What an exit code means where the text gives no cause."""

    codes: tuple[int, ...]
    programs: tuple[str, ...] = ()
    """Programs that use the code so; empty: all."""
    category: Category | None = None
    status: Status = Status.FAILURE
    transient: bool | Literal["unknown"] | None = None


class Inspection(_Strict):
    """A program whose output is what it was asked about, not its own verdict."""

    programs: tuple[str, ...]
    verbs: tuple[str, ...] = ()
    """Sub-commands that only look; empty: the program only looks."""
    own: str = ""
    """Regular expression of the lines that the program says itself, beside `program: ...`."""


class Commands(_Strict):
    """What kinds of commands and tools there are."""

    shell_tools: tuple[str, ...]
    code_tools: tuple[str, ...]
    payload_tools: tuple[str, ...]
    payload_exceptions: tuple[str, ...]
    document_tools: tuple[str, ...]
    """Those of them that return documents, which may be short and say anything."""
    lookup_tools: tuple[str, ...]
    listing_tools: tuple[str, ...]
    wrappers: tuple[str, ...]
    quiet_programs: tuple[str, ...]
    lookup_commands: tuple[str, ...]
    silent_commands: tuple[str, ...]
    many_operands: tuple[str, ...]
    recursive: str
    masks: str
    key_query: str
    inspections: tuple[Inspection, ...]


class Fields(_Strict):
    """Names and values of fields in structured results, lower case without `_` and `-`."""

    false_flags: tuple[str, ...]
    true_flags: tuple[str, ...]
    errors: tuple[str, ...]
    codes: tuple[str, ...]
    sure_codes: tuple[str, ...]
    http: tuple[str, ...]
    exits: tuple[str, ...]
    states: tuple[str, ...]
    messages: tuple[str, ...]
    envelopes: tuple[str, ...]
    items: tuple[str, ...]
    failed_items: tuple[str, ...]
    done_items: tuple[str, ...]
    bad_counts: tuple[str, ...]
    good_counts: tuple[str, ...]
    bad_states: tuple[str, ...]
    good_states: tuple[str, ...]
    good_codes: tuple[str, ...]
    part_states: tuple[str, ...]


class ExceptionRule(_Strict):
    """What an exception's name means."""

    names: tuple[str, ...]
    """Name patterns (`*` allowed), tried against the class and its bases."""
    category: Category
    error_code: str = ""
    transient: bool | Literal["unknown"] | None = None


class OutcomeRules(_Strict):
    """The whole file."""

    rule: tuple[Rule, ...]
    code: tuple[CodeRule, ...] = ()
    exit: tuple[ExitRule, ...] = ()
    exception: tuple[ExceptionRule, ...] = ()
    commands: Commands
    fields: Fields
    errno: Mapping[str, Category]
    http: Mapping[str, Category]
    transient: Mapping[Category, bool | Literal["unknown"]]
    error_codes: Mapping[Category, str]
    advice: Mapping[Category, str]
    zones: Mapping[str, str] = Field(default_factory=dict)
    """Named regular expressions that say which lines are whose."""

    @cached_property
    def phrases(self) -> Phrases:
        """All texts that rules look for."""
        return Phrases(text for rule in self.rule for text in (*rule.phrases, *rule.words))

    @cached_property
    def _of_kinds(self) -> dict[tuple[Kind, ...], tuple[Rule, ...]]:
        return {}

    def of_kinds(self, kinds: tuple[Kind, ...]) -> tuple[Rule, ...]:
        """Return the rules of some kinds, in the order of the file."""
        if kinds not in self._of_kinds:
            self._of_kinds[kinds] = tuple(rule for rule in self.rule if rule.kind in kinds)
        return self._of_kinds[kinds]


def load(rules_file: Path | None = None) -> OutcomeRules:
    """Return the packaged rules, with a user's own before them.

    Raises:
        RuleError: A file cannot be read or does not fit.
    """
    return _packaged() if rules_file is None else load_rules("outcomes", OutcomeRules, rules_file)


@functools.cache
def _packaged() -> OutcomeRules:
    return load_rules("outcomes", OutcomeRules)


@functools.cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern compiled on first use, any case, `^` and `$` at lines."""
    return re.compile(pattern, re.IGNORECASE | re.MULTILINE)


def _starts_word(text: str, at: int) -> bool:
    """Return whether a word starts at a position, also inside of a name like `HttpTimeout`."""
    if at == 0 or not text[at].isascii() or not text[at].isalnum():
        return True
    before = text[at - 1]
    return not (before.isascii() and before.isalnum()) or (text[at].isupper() and not before.isupper())


def line_at(text: str, at: int) -> str:
    """Return the line of a text that holds a position."""
    start = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    return text[start : end if end >= 0 else len(text)]
