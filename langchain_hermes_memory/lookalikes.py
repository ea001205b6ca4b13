"""Look-alike names: notices that a memory is about another company, host or month than the one asked for.

Similarity puts names that differ by a sign beside each other. A memory is taken to be about another name only
by contrast: it holds a near copy of a name in the request and not the name, and another memory holds that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher

from langchain_hermes_memory._text import HAN

LEAST_LETTERS = 4
"""Length from which a name with a digit or mark in it is compared."""
ALIKE = 0.8
"""Share of common letters from which two names look alike."""
HAN_WINDOW = 4
"""Chinese characters that are compared at once; exactly one of them may differ."""

_NAME = re.compile(r"[A-Za-z0-9][\w.@/-]*[A-Za-z0-9]")
_MARKED = re.compile(r"[\d_.@/-]")
_HAN_RUN = re.compile(f"{HAN.pattern}{{{HAN_WINDOW},}}")


def look_alikes(request: str, texts: Mapping[int, str]) -> dict[int, tuple[str, str]]:
    """Return the memories that are about a look-alike of a name in the request.

    Args:
        request: What the user asked for.
        texts: What each memory is about, by number.

    Returns:
        For each such memory the name that was asked for and the one that it holds.
    """
    asked = _names(request)
    held = {number: _names(text) for number, text in texts.items()}
    found: dict[int, tuple[str, str]] = {}
    for name in asked:
        if not any(name in names for names in held.values()):
            continue
        for number, names in held.items():
            near = None if name in names else next((each for each in names if _alike(name, each)), None)
            if near is not None:
                found.setdefault(number, (name, near))
    return found


def _names(text: str) -> list[str]:
    """Return what may be a name: identifiers with a digit or mark, and every window of Chinese characters."""
    marked = (match.lower() for match in _NAME.findall(text) if len(match) >= LEAST_LETTERS)
    return [*dict.fromkeys([*(name for name in marked if _MARKED.search(name)), *_windows(text)])]


def _windows(text: str) -> Iterable[str]:
    for run in _HAN_RUN.findall(text):
        yield from (run[start : start + HAN_WINDOW] for start in range(len(run) - HAN_WINDOW + 1))


def _alike(one: str, other: str) -> bool:
    if HAN.match(one) or HAN.match(other):
        return len(one) == len(other) and sum(a != b for a, b in zip(one, other, strict=True)) == 1
    if abs(len(one) - len(other)) > 2:
        return False
    matcher = SequenceMatcher(None, one, other)
    return matcher.quick_ratio() >= ALIKE and matcher.ratio() >= ALIKE
