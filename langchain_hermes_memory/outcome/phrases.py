"""Finds all phrases of all rules in a text in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ahocorasick_rs import AhoCorasick


class Phrases:
    """Texts to look for.

    Args:
        phrases: Lower-case texts.
    """

    def __init__(self, phrases: Iterable[str]) -> None:
        self._phrases = tuple(dict.fromkeys(phrases))
        self._automaton = AhoCorasick(self._phrases)

    def spots(self, lower: str) -> Mapping[str, Sequence[int]]:
        """Return where each phrase that a text holds starts, in order.

        Args:
            lower: Text in lower case.
        """
        found: dict[str, list[int]] = {}
        for phrase, start, _ in self._automaton.find_matches_as_indexes(lower, overlapping=True):
            found.setdefault(self._phrases[phrase], []).append(start)
        return found
