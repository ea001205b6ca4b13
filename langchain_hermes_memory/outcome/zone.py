"""A text and the rules that match it: which lines count, and which rule comes first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

from langchain_hermes_memory._text import HAN
from langchain_hermes_memory.outcome.call import Call
from langchain_hermes_memory.outcome.finding import Finding, by_rule
from langchain_hermes_memory.outcome.model import Kind, OutcomeRules, Rule, compiled, line_at
from langchain_hermes_memory.record import Status

_WORD = re.compile(r"[a-z]{2,}+")


class Zone:
    """A piece of text to match rules against, lower-cased and indexed once."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def lower(self) -> str:
        """The text in lower case."""
        lower = self.text.lower()
        return (
            lower
            if len(lower) == len(self.text)
            else "".join(c.lower() if len(c.lower()) == 1 else c for c in self.text)
        )

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(_WORD.findall(self.lower))

    @cached_property
    def _han(self) -> bool:
        return HAN.search(self.text) is not None

    def find(self, rule: Rule) -> tuple[int, re.Match[str] | None] | None:
        """Return where a rule matches first, with the match of its pattern."""
        if not self._possible(rule):
            return None
        return rule.find(self.text, self.lower)

    def _possible(self, rule: Rule) -> bool:
        """Tell cheaply whether a rule can match at all."""
        if rule.pattern:
            return True
        keys = _keys(rule)
        return None in keys or (self._han and "" in keys) or not self._words.isdisjoint(k for k in keys if k)


def first(
    rules: OutcomeRules,
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
        rules: The rules.
        zone: The text.
        call: What was called.
        kinds: Kinds of rules to try.
        source: Name of the stage, for the evidence.
        payload: Whether only rules count that hold for text which is merely passed on.
        causes: Whether only rules count that say why something failed.
    """
    for rule in _concerning(rules, call, kinds):
        if (payload and not rule.payload) or (
            causes and (rule.category is None or rule.status is Status.SUCCESS)
        ):
            continue
        found = zone.find(rule)
        if found is not None:
            at, match = found
            groups = match.groupdict() if match else {}
            return by_rule(rule, source, line_at(zone.text, at), (groups.get("code") or "").strip()), at, rule
    return None


def matching(
    rules: OutcomeRules, zone: Zone, call: Call, kinds: tuple[Kind, ...]
) -> Iterator[tuple[Rule, re.Match[str] | None, int]]:
    """Yield every rule of some kinds that matches, in order."""
    for rule in _concerning(rules, call, kinds):
        found = zone.find(rule)
        if found is not None:
            yield rule, found[1], found[0]


def firm(text: str, benign: str) -> str:
    """Return a text with the lines blanked that mention errors without reporting one, such as `0 errors`."""
    pattern = compiled(benign)
    return "\n".join("" if pattern.search(line[:400]) else line for line in text.split("\n"))


def _concerning(rules: OutcomeRules, call: Call, kinds: tuple[Kind, ...]) -> Iterator[Rule]:
    for rule in rules.rule:
        if rule.kind in kinds and rule.concerns(call.tool, call.command):
            yield rule


_KEYS: dict[int, tuple[Rule, tuple[str | None, ...]]] = {}


def _keys(rule: Rule) -> tuple[str | None, ...]:
    """Return for each phrase a word that a text with it must hold; "" for Chinese, None for no such word."""
    known = _KEYS.get(id(rule))
    if known is None or known[0] is not rule:
        known = (rule, tuple(_key(phrase) for phrase in rule.phrases))
        _KEYS[id(rule)] = known
    return known[1]


def _key(phrase: str) -> str | None:
    if HAN.search(phrase):
        return ""
    inner = re.findall(r"(?<=[^a-z])[a-z]{2,}(?=[^a-z])|^[a-z]{2,}(?=[^a-z])", phrase)
    return max(inner, key=len, default=None)
