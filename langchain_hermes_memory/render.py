"""Render: turns what was recalled into the block that a model reads, within a budget of tokens.

The block is data about the past. Text of tools and users stands in it as CommonMark code spans on one line:
it can neither end its quotation nor pose as a heading. Sentences that pose as instructions are cut out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import NamedTuple

from langchain_hermes_memory._text import Lang, one_line, say, shorten_middle, texts
from langchain_hermes_memory._tokens import TokenCounter
from langchain_hermes_memory.caveats import Caveat, Value, Weekdays, caveats, is_about_others
from langchain_hermes_memory.record import (
    LOOK_ALIKE,
    Hit,
    Lifecycle,
    Record,
    RecordType,
    Status,
    Target,
)
from langchain_hermes_memory.settings import Settings
from langchain_hermes_memory.untrusted import defuse, is_payload_tool

SAID, LESSONS, WORKED, OTHERS = "said", "lessons", "worked", "others"
"""Groups of the block; also keys of their headings in section `block`."""

_ORDER = (SAID, LESSONS, WORKED, OTHERS)
_SAFE_ORDER = (SAID, WORKED, LESSONS, OTHERS)
_SHOWN_TARGETS = 2
_ACTS_OF_THEIR_OWN = frozenset({"preference", "correction", "warning"})
"""What a user says in these acts needs no answer beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The context that a model is shown."""

    text: str = ""
    """The block; empty where nothing relevant is known."""
    hits: tuple[Hit, ...] = ()
    """The memories that it shows, in its order."""
    tokens: int = 0
    """Length of the text; never above the budget."""
    left_out: tuple[Hit, ...] = ()
    """Memories that were relevant and found no room."""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What the block is for."""

    lang: Lang
    at: datetime
    """The present; times are shown in its zone."""
    budget: int
    """Greatest number of tokens."""
    asked: tuple[Target, ...] = ()
    """What the request or the planned call names."""
    safety_critical: bool = False


class _Detail(NamedTuple):
    """How much of a memory is told."""

    chars: int
    intent: bool
    advice: bool


class Renderer:
    """Renders blocks.

    Args:
        settings: Tone and lengths.
        counter: Counts tokens as the user's model does.
    """

    def __init__(self, settings: Settings, counter: TokenCounter) -> None:
        self._settings = settings
        self._counter = counter
        chars = settings.memory_chars
        self._details = (
            _Detail(max(40, chars // 4), intent=False, advice=False),
            _Detail(max(60, chars // 2), intent=False, advice=True),
            _Detail(chars, intent=True, advice=True),
        )

    def render(self, hits: Sequence[Hit], frame: Frame) -> Block:
        """Return the block for memories given best first.

        Where the budget is too small for all of them, details are cut first, those of the least relevant
        memory before others, then whole memories are left out in the same order.
        """
        if not hits:
            return Block()
        plan = _Plan(self._entries(hits, frame), self._counter.count)
        kept = plan.fit(frame.budget - self._counter.count(self._compose([], frame)))
        while kept:
            text = self._compose([(hits[number], plan.text(number)) for number in kept], frame)
            tokens = self._counter.count(text)
            if tokens <= frame.budget:
                shown = [hit for _, hit, _ in _grouped([(hits[n], "") for n in kept], frame)]
                left_out = tuple(hit for number, hit in enumerate(hits) if number not in kept)
                return Block(text=text, hits=tuple(shown), tokens=tokens, left_out=left_out)
            kept = plan.shrink(kept)
        return Block(left_out=tuple(hits))

    def turns(self, records: Iterable[Record], lang: Lang) -> str:
        """Render the turns of a conversation, given oldest first, one line for each side."""
        lines: list[str] = []
        for record in records:
            lines.append(f"{say(lang, 'block.user')}: {self._line(record.original_command)}")
            if record.execution_result.output:
                lines.append(f"{say(lang, 'block.assistant')}: {self._line(record.execution_result.output)}")
        return "\n".join(lines)

    def _line(self, text: str) -> str:
        return shorten_middle(one_line(text), self._settings.memory_chars)

    # ------------------------------------------------------------------ the whole

    def _compose(self, entries: Sequence[tuple[Hit, str]], frame: Frame) -> str:
        lines = [say(frame.lang, "block.head")]
        if self._settings.tone == "cautious":
            lines.append(say(frame.lang, "block.cautious"))
        current = ""
        for group, _, text in _grouped(entries, frame):
            if group != current:
                lines.append(f"## {say(frame.lang, f'block.{group}')}")
                current = group
            lines.append(text)
        return "\n".join(lines)

    def _entries(self, hits: Sequence[Hit], frame: Frame) -> list[list[str]]:
        """Return for each memory its texts, from the shortest to the fullest."""
        found: list[list[str]] = []
        for hit in hits:
            entry = _Entry(hit, frame)
            found.append([entry.text(detail) for detail in self._details])
        return found


class _Plan:
    """Chooses how much of each memory is told, so that all fit."""

    def __init__(self, entries: list[list[str]], count: Callable[[str], int]) -> None:
        self._entries = entries
        self._costs = [[count(text) + 2 for text in versions] for versions in entries]
        self._level = [0] * len(entries)

    def text(self, number: int) -> str:
        """Return the chosen text of a memory."""
        return self._entries[number][self._level[number]]

    def fit(self, room: int) -> list[int]:
        """Choose memories and their details for about `room` tokens; return the numbers of those kept."""
        kept = list(range(len(self._entries)))
        while kept and self._cost(kept) > room:
            kept.pop()
        for level in range(1, len(self._entries[0])):
            for number in kept:
                more = self._costs[number][level] - self._costs[number][self._level[number]]
                if self._level[number] == level - 1 and self._cost(kept) + more <= room:
                    self._level[number] = level
        return kept

    def shrink(self, kept: list[int]) -> list[int]:
        """Give up a detail of the least relevant memory that has one, else the least relevant memory."""
        for number in reversed(kept):
            if self._level[number]:
                self._level[number] -= 1
                return kept
        return kept[:-1]

    def _cost(self, kept: Iterable[int]) -> int:
        return sum(self._costs[number][self._level[number]] for number in kept)


class _Entry:
    """One memory, in the words of one language."""

    def __init__(self, hit: Hit, frame: Frame) -> None:
        self._memory = hit.memory
        self._other_name = _other_name(hit)
        self._lang = frame.lang
        self._zone = frame.at.tzinfo
        self._caveats = caveats(hit.memory, frame.asked)

    def text(self, detail: _Detail) -> str:
        """Return the entry with its caveats."""
        head = self._run(detail) if self._memory.record.type is RecordType.TOOL else self._words(detail)
        limits = [self._caveat(caveat) for caveat in self._caveats]
        if self._other_name:
            asked, found = (code_span(name) for name in self._other_name)
            limits.append(say(self._lang, "caveat.other_name", asked=asked, found=found))
        advice = self._advice() if detail.advice else ""
        return " ".join([head, *limits, *([advice] if advice else [])])

    def _run(self, detail: _Detail) -> str:
        record, result = self._memory.record, self._memory.record.execution_result
        kind = "failure" if record.failed else "success"
        intent = ""
        if detail.intent and record.context.user_intent:
            intent = say(self._lang, "entry.intent", intent=self._quote(record.context.user_intent, 100))
        told = self._told(record, detail)
        return say(
            self._lang,
            f"entry.{kind}",
            handle=self._memory.handle,
            when=self._when(),
            tool=one_line(record.tool_name),
            command=self._quote(record.original_command, detail.chars),
            status=say(self._lang, f"status.{result.status}"),
            code=" ".join(filter(None, (self._category(), result.error_code))),
            detail=told if record.failed or not told else f": {told}",
            intent=intent,
        )

    def _told(self, record: Record, detail: _Detail) -> str:
        """What the tool reported; what a page, mail or file said is nobody's report."""
        result = record.execution_result
        if result.status is Status.FAILURE:
            text = result.error_detail or result.output
        elif result.status is Status.SUCCESS and is_payload_tool(record.tool_name):
            return ""
        else:
            text = result.output
        return self._quote(self._defused(text), detail.chars) if text.strip() else ""

    def _words(self, detail: _Detail) -> str:
        record = self._memory.record
        words = self._quote(record.original_command, detail.chars)
        if record.type is RecordType.NOTE:
            return say(self._lang, "entry.note", handle=self._memory.handle, when=self._when(), words=words)
        answer = record.execution_result.output
        told = ""
        if answer and detail.intent and _ACTS_OF_THEIR_OWN.isdisjoint(record.tags):
            told = say(
                self._lang, "entry.answer", answer=self._quote(self._defused(answer), detail.chars // 2)
            )
        said = say(self._lang, "entry.said", handle=self._memory.handle, when=self._when(), words=words)
        return said + told

    def _category(self) -> str:
        category = self._memory.record.execution_result.category
        return "" if category is None else say(self._lang, f"category.{category}")

    def _when(self) -> str:
        seen = self._memory.occurrences
        last = _minute(seen.last_seen, self._zone)
        if seen.times == 1:
            when = say(self._lang, "entry.once", last=last)
        else:
            first = _day(seen.first_seen, self._zone)
            when = say(self._lang, "entry.times", last=last, times=seen.times, first=first)
        if self._memory.record.failed and seen.action_times > seen.times:
            when += say(self._lang, "entry.rate", total=seen.action_times)
        return when

    def _caveat(self, caveat: Caveat) -> str:
        fields = {name: self._value(value) for name, value in caveat.fields.items()}
        if "solution" in caveat.fields:
            fields["solution"] = self._quote(str(caveat.fields["solution"]), 160)
        return say(self._lang, f"caveat.{caveat.kind}", **fields)

    def _value(self, value: Value) -> str:
        if isinstance(value, datetime):
            return _day(value, self._zone)
        if isinstance(value, Weekdays):
            return ", ".join(say(self._lang, f"weekday.{day}") for day in value.days)
        if isinstance(value, tuple):
            shown = ", ".join(self._quote(name, 120) for name in value[:_SHOWN_TARGETS])
            return shown if len(value) <= _SHOWN_TARGETS else f"{shown}, …"
        return str(value)

    def _advice(self) -> str:
        key = f"advice.{self._memory.record.execution_result.suggested_action}"
        useful = self._memory.record.failed and self._memory.lifecycle is not Lifecycle.RESOLVED
        return texts(self._lang).get(key, "") if useful else ""

    def _defused(self, text: str) -> str:
        """Cut what poses as an instruction out of a text that a tool, or an agent on its word, gave."""
        return defuse(text, say(self._lang, "caveat.untrusted"))[0]

    def _quote(self, text: str, limit: int) -> str:
        """Quote a text as data: on one line, shortened, as a code span."""
        return code_span(shorten_middle(one_line(text), limit))


def code_span(text: str) -> str:
    """Return a text as a CommonMark code span, whose fence is longer than any run of backticks in it."""
    text = re.sub(r"`{4,}", "```", text)
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    edge = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{edge}{text}{edge}{fence}"


def _grouped(entries: Sequence[tuple[Hit, str]], frame: Frame) -> list[tuple[str, Hit, str]]:
    """Put entries, given best first, into the order of the groups."""
    order = _SAFE_ORDER if frame.safety_critical else _ORDER
    shown = {hit.memory.number for hit, _ in entries}
    found = [(_group(hit, frame, shown), hit, text) for hit, text in entries]
    return sorted(found, key=lambda entry: (order.index(entry[0]), _newest_word_first(entry[0], entry[1])))


def _group(hit: Hit, frame: Frame, shown: set[int]) -> str:
    memory, record = hit.memory, hit.memory.record
    if record.type is not RecordType.TOOL:
        return SAID
    if is_about_others(record.action, frame.asked) or _other_name(hit):
        return OTHERS
    if record.execution_result.status is Status.SUCCESS:
        return WORKED
    # A failure that was solved stands behind the success that solved it.
    return WORKED if memory.lifecycle is Lifecycle.RESOLVED and memory.resolved_by in shown else LESSONS


def _other_name(hit: Hit) -> tuple[str, str] | None:
    """Return the name that was asked for and the look-alike that a memory is about."""
    detail = next((factor.detail for factor in hit.factors if factor.name == LOOK_ALIKE), "")
    asked, _, found = detail.partition(" / ")
    return (asked, found) if found else None


def _newest_word_first(group: str, hit: Hit) -> float:
    """What a user said last counts, so it comes first; elsewhere the order of relevance stays."""
    return -hit.memory.occurrences.last_seen.timestamp() if group == SAID else 0.0


def _minute(at: datetime, zone: tzinfo | None) -> str:
    return f"{at.astimezone(zone):%Y-%m-%d %H:%M}"


def _day(at: datetime, zone: tzinfo | None) -> str:
    return f"{at.astimezone(zone):%Y-%m-%d}"
