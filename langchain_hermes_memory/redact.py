"""Cuts secrets out of texts: known formats by a maintained scanner, the rest by `rules/secrets.toml`."""

from __future__ import annotations

import base64
import functools
import importlib
import json
import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote, unquote

from pydantic import BaseModel, ConfigDict

from langchain_hermes_memory._rules import load_rules

logger = logging.getLogger(__name__)

_MASK = re.compile(r"\[REDACTED:\w+\]")
_MASK_START = "[REDACTED:"
_MAX_PASSES = 4
_MAX_DEPTH = 24
_SHORTEST_FINDING = 8
_DETECTOR_WINDOW = 2_000
"""Longest piece that a foreign pattern sees at once: some of them are quadratic in the length of a line."""
_BEFORE_ANCHOR = 120
_LONGEST_KEY = 120
_DENSE_LENGTH = 16
_DENSE_BITS = 3.0
"""Shannon entropy per character; random hexadecimal digits have 3.3 to 4, words of a language about 2.5."""

Plausibility = Literal["any", "word", "mixed", "dense"]


class SecretPattern(BaseModel):
    """One kind of place at which secrets stand."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    kind: str
    """Word in the mask: `[REDACTED:kind]`."""
    anchors: tuple[str, ...]
    """Lower-case strings of which one stands in every match: the pattern is tried around them only."""
    regex: str
    """The secret is the group `secret`, or else the whole match; `<<name>>` is a fragment of `[part]`."""
    value: Plausibility = "any"
    """What the value must look like: `any` but a template, a `word` that is no reference, `mixed` letters and
    digits or marks, or `dense`: long and random."""
    reach: int = 500
    """Characters after an anchor that a match may need."""
    yes: tuple[str, ...] = ()
    """Samples; what stands for a secret is written `{X20}` and the like, and must be gone."""
    no: tuple[str, ...] = ()
    """Samples that must stay as they are."""


class Detector(BaseModel):
    """A plugin of the scanner."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    target: str
    """`module:class` of the plugin."""
    kind: str
    anchors: tuple[str, ...]


class SecretRules(BaseModel):
    """The file `rules/secrets.toml`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    part: dict[str, str]
    sensitive_key: str
    sensitive_plain: str
    template: str
    ordinary: str
    reference: str
    pattern: tuple[SecretPattern, ...]
    detector: tuple[Detector, ...]


@dataclass(frozen=True, slots=True)
class _Finding:
    start: int
    end: int
    kind: str


class Redactor:
    """Replaces secrets by `[REDACTED:kind]`. Thread-safe; reads no file and no network.

    Args:
        extra: Masks what only you know to be secret; gets each text after the built-in masking and returns it
            masked. Where it fails, the built-in masking stands, and the failure is logged once.
    """

    def __init__(self, *, extra: Callable[[str], str] | None = None) -> None:
        self._extra = extra
        self._patterns = _Patterns.load()
        self._failed: set[str] = set()

    def redact(self, text: str) -> str:
        """Return a text without its secrets; idempotent."""
        return self.redact_all(text)[0]

    def redact_all(self, *texts: str) -> tuple[str, ...]:
        """Return texts that belong together without their secrets: found in one, masked in all."""
        return self.redact_values(*texts)

    def redact_value(self, value: Any) -> Any:
        """Return a nested value of dicts, lists and strings without its secrets.

        A value under a key such as `password` or `密码` is masked whatever it looks like.
        """
        return self.redact_values(value)[0]

    def redact_values(self, *values: Any) -> tuple[Any, ...]:
        """Return values that belong together (a call's input and output): masked in one, masked in all."""
        known: dict[str, str] = {}
        masked = tuple(self._walk(value, lambda text: self._mask(text, known), known) for value in values)
        spread = _spread(known)
        if spread:
            masked = tuple(self._walk(value, spread, {}) for value in masked)
        if self._extra is not None:
            masked = tuple(self._walk(value, self._mask_extra, {}) for value in masked)
        return masked

    def _walk(self, value: Any, mask: Callable[[str], str], known: dict[str, str], depth: int = 0) -> Any:
        if isinstance(value, str):
            return mask(value)
        if depth > _MAX_DEPTH and isinstance(value, Mapping | list | tuple):
            return mask(str(value))
        if isinstance(value, Mapping):
            return self._walk_mapping(value, mask, known, depth)
        if isinstance(value, list):
            return [self._walk(item, mask, known, depth + 1) for item in value]
        if isinstance(value, tuple):
            return tuple(self._walk(item, mask, known, depth + 1) for item in value)
        return value

    def _walk_mapping(
        self, value: Mapping[Any, Any], mask: Callable[[str], str], known: dict[str, str], depth: int
    ) -> dict[Any, Any]:
        kind_of = self._patterns.sensitive_kind
        entry_kind = kind_of(value.get("name") or value.get("key"))  # {"name": "DB_PASSWORD", "value": "..."}
        masked = {}
        for key, item in value.items():
            kind = kind_of(key) or (entry_kind if key == "value" else "")
            name = mask(key) if isinstance(key, str) else key
            masked[name] = _hide(item, kind, known) if kind else self._walk(item, mask, known, depth + 1)
        return masked

    def _mask(self, text: str, known: dict[str, str]) -> str:
        """Mask what is found in one text; a mask may uncover a further finding, hence the passes."""
        for _ in range(_MAX_PASSES):
            findings = _merged(self._findings(text))
            if not findings:
                return text
            pieces, end = [], 0
            for finding in findings:
                known.setdefault(text[finding.start : finding.end], finding.kind)
                pieces += [text[end : finding.start], f"{_MASK_START}{finding.kind}]"]
                end = finding.end
            text = "".join([*pieces, text[end:]])
        return text

    def _findings(self, text: str) -> Iterator[_Finding]:
        lower = text.lower()
        if len(lower) != len(text):  # a few capital letters grow in lower case, and the places would shift
            lower = text
        yield from self._patterns.find(text, lower)
        for detector in self._patterns.rules.detector:
            windows = _windows(lower, detector.anchors, _DETECTOR_WINDOW // 2)
            if not windows:
                continue
            try:
                yield from _detect(detector, text, windows)
            except Exception:  # foreign code; the patterns above have found what they know
                if self._first(detector.target):
                    logger.warning(
                        "Secret scanner %s failed; patterns alone serve", detector.target, exc_info=True
                    )

    def _mask_extra(self, text: str) -> str:
        if self._extra is None:
            return text
        try:
            return self._extra(text)
        except Exception:  # a user's function
            if self._first("extra"):
                logger.warning(
                    "The redactor's `extra` failed; the built-in masking alone serves", exc_info=True
                )
            return text

    def _first(self, failure: str) -> bool:
        """Whether a part fails for the first time: later failures of it are not logged."""
        known = failure in self._failed
        self._failed.add(failure)
        return not known


class _Patterns:
    """The packaged patterns, compiled."""

    def __init__(self, rules: SecretRules) -> None:
        self.rules = rules
        self._compiled = [
            (pattern, re.compile(_expanded(pattern.regex, rules.part))) for pattern in rules.pattern
        ]
        self._key = re.compile(rules.sensitive_key)
        self._plain_key = re.compile(rules.sensitive_plain)
        self._template = re.compile(rules.template)
        self._ordinary = re.compile(rules.ordinary)
        self._reference = re.compile(rules.reference)

    @staticmethod
    @functools.cache
    def load() -> _Patterns:
        return _Patterns(load_rules("secrets", SecretRules))

    def find(self, text: str, lower: str) -> Iterator[_Finding]:
        for pattern, regex in self._compiled:
            for start, end in _windows(lower, pattern.anchors, pattern.reach):
                for match in regex.finditer(text, start, end):
                    group = "secret" if "secret" in regex.groupindex else 0
                    if self._plausible(match[group], pattern.value):
                        yield _Finding(*match.span(group), pattern.kind)

    def sensitive_kind(self, key: object) -> str:
        """Return the kind of secret that a dict's key announces; empty where it announces none."""
        if not isinstance(key, str) or len(key) > _LONGEST_KEY or self._plain_key.search(key):
            return ""
        match = self._key.search(key)
        return next((name for name, found in match.groupdict().items() if found), "") if match else ""

    def _plausible(self, value: str, demand: Plausibility) -> bool:
        if not value or value.startswith(_MASK_START) or self._template.search(value):
            return False
        if demand == "any":
            return True
        prose = " " in value.strip() and not re.search(r"\d", value)
        if prose or self._ordinary.search(value) or self._reference.search(value):
            return False
        return _LOOKS[demand](value)


def _expanded(regex: str, parts: Mapping[str, str]) -> str:
    return re.sub(r"<<(\w+)>>", lambda match: _expanded(parts[match[1]], parts), regex)


def _windows(lower: str, anchors: Iterable[str], reach: int) -> list[tuple[int, int]]:
    """Return the stretches around the anchors, merged, in order."""
    places = []
    for anchor in anchors:
        place = lower.find(anchor)
        while place >= 0:
            places.append(place)
            place = lower.find(anchor, place + len(anchor))
    windows: list[tuple[int, int]] = []
    for place in sorted(places):
        start, end = max(place - _BEFORE_ANCHOR, 0), min(place + reach, len(lower))
        if windows and start <= windows[-1][1]:
            windows[-1] = (windows[-1][0], max(end, windows[-1][1]))
        else:
            windows.append((start, end))
    return windows


def _mixed(value: str) -> bool:
    """Whether a value has letters and besides them digits or marks, as no plain word has."""
    return len(value) >= 6 and all(re.search(kind, value) for kind in (r"[A-Za-z]", r"[\d!@#$%^&*+=~?]"))


def _dense(value: str) -> bool:
    """Whether a value is long and random: entropy after Shannon over its characters."""
    if len(value) < _DENSE_LENGTH or not (re.search(r"[A-Za-z]", value) and re.search(r"\d", value)):
        return False
    counts = Counter(value).values()
    return -sum(n / len(value) * math.log2(n / len(value)) for n in counts) >= _DENSE_BITS


_LOOKS: Mapping[str, Callable[[str], bool]] = {"word": bool, "mixed": _mixed, "dense": _dense}


@functools.cache
def _plugin(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)()


def _detect(detector: Detector, text: str, windows: Iterable[tuple[int, int]]) -> Iterator[_Finding]:
    """Run one plugin over the stretches around its anchors.

    Only `analyze_string` and the plugin's own patterns are used: they look at the string alone, while the
    scanner's line and file functions read process-wide settings, files and, for verification, the network.
    """
    plugin = _plugin(detector.target)
    for start, end in windows:
        for piece_start in range(start, end, _DETECTOR_WINDOW // 2):
            piece = text[piece_start : min(piece_start + _DETECTOR_WINDOW, end)]
            if not any(plugin.analyze_string(piece)):
                continue
            for match in (match for regex in plugin.denylist for match in regex.finditer(piece)):
                start_of, end_of = _longest_group(match)
                value = piece[start_of:end_of]
                if _MASK_START not in value and len(set(value)) >= _SHORTEST_FINDING:
                    yield _Finding(piece_start + start_of, piece_start + end_of, detector.kind)


def _longest_group(match: re.Match[str]) -> tuple[int, int]:
    """Return the place of a match's longest group: the secret, unless it is too short for one."""
    spans = [match.span(number) for number in range(1, match.re.groups + 1)]
    longest = max(spans, key=lambda span: span[1] - span[0], default=match.span())
    return longest if longest[1] - longest[0] >= _SHORTEST_FINDING else match.span()


def _merged(findings: Iterable[_Finding]) -> list[_Finding]:
    """Return findings in order without overlaps; what overlaps is masked as a whole, named by its first."""
    merged: list[_Finding] = []
    for finding in sorted(findings, key=lambda found: (found.start, -found.end)):
        if merged and finding.start < merged[-1].end:
            last = merged[-1]
            merged[-1] = _Finding(last.start, max(last.end, finding.end), last.kind)
        else:
            merged.append(finding)
    return merged


def _hide(value: Any, kind: str, known: dict[str, str]) -> Any:
    """Mask every leaf of a value that stands under a sensitive key."""
    if isinstance(value, Mapping):
        return {key: _hide(item, kind, known) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_hide(item, kind, known) for item in value]
    if value is None or isinstance(value, bool) or value == "":
        return value
    text = str(value)
    if _MASK.fullmatch(text):
        return text
    known.setdefault(text, kind)
    return f"{_MASK_START}{kind}]"


def _spread(known: Mapping[str, str]) -> Callable[[str], str] | None:
    """Return a function that masks known secrets wherever they stand, plain or encoded; None without any.

    A secret that could as well be a word (`admin`) is masked only where it was found.
    """
    forms: dict[str, str] = {}
    for secret, kind in known.items():
        if _MASK_START in secret or not _distinct(secret):
            continue
        plain = unquote(secret)
        for form in (secret, plain, quote(plain, safe="", errors="replace"), json.dumps(plain)[1:-1]):
            forms.setdefault(form, kind)
        forms.setdefault(base64.b64encode(plain.encode("utf-8", "surrogatepass")).decode(), kind)
    if not forms:
        return None
    longest_first = sorted(forms, key=len, reverse=True)
    regex = re.compile("|".join([_MASK.pattern, *map(re.escape, longest_first)]))
    return lambda text: regex.sub(
        lambda match: match[0] if match[0] not in forms else f"{_MASK_START}{forms[match[0]]}]", text
    )


def _distinct(secret: str) -> bool:
    """Whether a secret is unlike any word, so that masking it everywhere hits nothing else."""
    kinds = sum(bool(re.search(kind, secret)) for kind in (r"[a-z]", r"[A-Z]", r"\d", r"[^\w\s]"))
    return len(secret) >= 12 or (len(secret) >= 6 and kinds >= 2)
