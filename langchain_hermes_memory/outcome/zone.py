"""A text and the rules that match it: which lines count, and which rule comes first."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from langchain_hermes_memory.outcome.call import Call
from langchain_hermes_memory.outcome.finding import Finding, by_rule
from langchain_hermes_memory.outcome.model import Kind, OutcomeRules, Rule, compiled, line_at
from langchain_hermes_memory.record import Status

_LINE = 400
"""Characters of a line that tell whether it reports an error."""


class Zone:
    """A piece of text to match rules against, searched once for what all of them look for."""

    def __init__(self, text: str, rules: OutcomeRules) -> None:
        self.text = text
        self._rules = rules

    @cached_property
    def _spots(self) -> Mapping[str, Sequence[int]]:
        lower = self.text.lower()
        if len(lower) != len(self.text):  # such as of a Turkish capital I: places must stay the same
            lower = "".join(c.lower() if len(c.lower()) == 1 else c for c in self.text)
        return self._rules.phrases.spots(lower)

    def candidates(self, kinds: tuple[Kind, ...]) -> Iterator[Rule]:
        """Yield the rules of some kinds that can match at all, in the order of the file."""
        present = self._spots.keys()
        for rule in self._rules.of_kinds(kinds):
            if rule.needs is None or not rule.needs.isdisjoint(present):
                yield rule

    @cached_property
    def firm(self) -> str:
        """The text with the lines blanked that mention errors without reporting one, such as `0 errors`."""
        lines = self.text.split("\n")
        starts = list(itertools.accumulate((len(line) + 1 for line in lines), initial=0))
        for rule in self.candidates(("benign",)):
            pattern = compiled(rule.pattern)
            spots = itertools.chain.from_iterable(self._spots.get(word, ()) for word in rule.words)
            for number in {bisect_right(starts, spot) - 1 for spot in spots}:
                if pattern.match(lines[number][:_LINE]):
                    lines[number] = ""
        return "\n".join(lines)

    def find(self, rule: Rule) -> tuple[int, re.Match[str] | None] | None:
        """Return where a rule matches first, with the match of its pattern."""
        return rule.find(self.text, self._spots)


def first(
    zone: Zone,
    call: Call,
    kinds: tuple[Kind, ...],
    source: str,
    *,
    payload: bool = False,
    causes: bool = False,
) -> tuple[Finding, int, Rule] | None:
    """Return what the first matching rule of some kinds says, with where it matched.

    Args:
        zone: The text.
        call: What was called.
        kinds: Kinds of rules to try.
        source: Name of the stage, for the evidence.
        payload: Whether only rules count that hold for text which is merely passed on.
        causes: Whether only rules count that say why something failed.
    """
    for rule in zone.candidates(kinds):
        if (payload and not rule.payload) or (
            causes and (rule.category is None or rule.status is Status.SUCCESS)
        ):
            continue
        if not rule.concerns(call.tool, call.command):
            continue
        found = zone.find(rule)
        if found is not None:
            at, match = found
            groups = match.groupdict() if match else {}
            return by_rule(rule, source, line_at(zone.text, at), (groups.get("code") or "").strip()), at, rule
    return None


def matching(
    zone: Zone, call: Call, kinds: tuple[Kind, ...]
) -> Iterator[tuple[Rule, re.Match[str] | None, int]]:
    """Yield every rule of some kinds that matches, in order."""
    for rule in zone.candidates(kinds):
        found = zone.find(rule) if rule.concerns(call.tool, call.command) else None
        if found is not None:
            yield rule, found[1], found[0]
