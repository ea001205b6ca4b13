"""Tool output is data: finds text that poses as an instruction, and cuts it out before a model reads it."""

from __future__ import annotations

import base64
import binascii
import fnmatch
import functools
import html
import re
import unicodedata
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pydantic import BaseModel, ConfigDict

from langchain_hermes_memory._rules import load_rules
from langchain_hermes_memory._text import without_unseen

MAX_CHARS = 20_000
"""Length to which a text is read; the rest is dropped."""
_LONGEST = 1_000
_OVERLAP = 200
"""A long sentence is read in pieces that overlap: patterns look for words that stand close together."""

_BREAK = re.compile(r"(?<![.!?;])[.!?;]+[\"')\]]*(?=\s)|[\u3002\uff01\uff1f\uff1b]+|\n+")
_WRAPPED = re.compile(r"[\w,\uff0c\u3001-][ \t]*\n\Z")
"""End of a line whose sentence may go on in the next one."""
_PART = "\ue000"
_ENDING = re.compile(r"[\s.!?;]*\Z")
_SPACED = re.compile(r"\b(?:\w[ \t]){5,}\w\b")
_CODED = re.compile(r"[A-Za-z0-9+/_-]{40,4000}={0,2}")
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")
_TAG_LETTER = re.compile("[\U000e0020-\U000e007e]")
_UNSEEN = re.compile(
    "[\u0300-\u036f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u2065-\u206f\u3164\ufe00-\ufe0f\uffa0]+"
)
"""Invisible marks besides those of `without_unseen`, and accents put upon letters."""
_ACCENTED = re.compile(r"[\u00c0-\u024f\u1e00-\u1eff]+")
_OTHER = re.compile(r"[\u0370-\u052f]")
_WORD = re.compile(r"[A-Za-z\u0370-\u052f]+")
_DIGIT_IN_WORD = re.compile(r"(?<![0-9A-Za-z])[01345](?=[A-Za-z]{2})|(?<=[A-Za-z])[013457]{1,2}(?=[A-Za-z])")
_DIGITS = str.maketrans("013457", "oieast")


class UntrustedRule(BaseModel):
    """One kind of planted instruction in `rules/untrusted.toml`."""

    model_config = ConfigDict(extra="forbid")
    id: str
    rest: bool
    """Whether all that follows is cut as well."""
    words: list[str]
    """Where none of these stands, the patterns are not tried."""
    patterns: list[str]
    yes: list[str]
    no: list[str]


class Lookalikes(BaseModel):
    """Letters of other alphabets, each at the place of its Latin likeness."""

    model_config = ConfigDict(extra="forbid")
    odd: str
    plain: str


class UntrustedRules(BaseModel):
    """The whole of `rules/untrusted.toml`."""

    model_config = ConfigDict(extra="forbid")
    payload_tools: list[str]
    tags: list[str]
    lookalikes: Lookalikes
    parts: dict[str, str]
    rule: list[UntrustedRule]


@dataclass(frozen=True, slots=True)
class _Ready:
    """A rule with its patterns compiled, and those of its words that stand in a text."""

    rule: UntrustedRule
    words: tuple[str, ...]
    patterns: tuple[re.Pattern[str], ...]

    def matches(self, plain: str, lower: str) -> bool:
        for word in self.words:
            if word in lower:
                return any(pattern.search(plain) for pattern in self.patterns)
        return False


@functools.cache
def untrusted_rules() -> UntrustedRules:
    """Return the packaged rules.

    Raises:
        RuleError: The file is malformed.
    """
    return load_rules("untrusted", UntrustedRules)


@functools.cache
def _ready() -> tuple[_Ready, ...]:
    return tuple(
        _Ready(rule, tuple(rule.words), tuple(map(_compiled, rule.patterns)))
        for rule in untrusted_rules().rule
    )


def _compiled(pattern: str) -> re.Pattern[str]:
    for name, part in untrusted_rules().parts.items():
        pattern = pattern.replace("{{" + name + "}}", part)
    return re.compile(pattern, re.IGNORECASE | re.MULTILINE)


@functools.cache
def _tagged() -> re.Pattern[str]:
    names = "|".join(map(re.escape, untrusted_rules().tags))
    return re.compile(rf"<({names})>.{{0,4000}}?</\1>", re.IGNORECASE | re.DOTALL)


@functools.cache
def _latin() -> dict[int, int]:
    letters = untrusted_rules().lookalikes
    return str.maketrans(letters.odd, letters.plain)


def planted(text: str) -> str:
    """Return the id of the first rule by which a sentence poses as an instruction, or an empty string."""
    rule = _rules_of([text[:MAX_CHARS]])[0]
    return "" if rule is None else rule.id


def defuse(text: str, mark: str) -> tuple[str, bool]:
    """Cut what poses as an instruction out of a text.

    Args:
        text: Any text; only its first `MAX_CHARS` characters are kept.
        mark: What stands in the place of what was cut.

    Returns:
        The text without it, and whether anything was cut.
    """
    shown, tagged = _tagged().subn(mark, text[:MAX_CHARS])
    sentences = list(_sentences(shown))
    rules = _rules_of(sentences)
    if not any(rules):
        return shown, bool(tagged)
    kept: list[str] = []
    for sentence, rule in zip(sentences, rules, strict=True):
        if rule is None:
            kept.append(sentence)
            continue
        # What ends the sentence stays, so that a second reading finds the same sentences.
        if not kept or not kept[-1].startswith(mark):
            kept.append(mark if rule.rest else mark + _ending(sentence))
        if rule.rest:
            break
    return "".join(kept), True


def is_payload_tool(tool: str) -> bool:
    """Whether a tool returns other people's words (a page, a mail, a file) rather than its own report."""
    name = tool.lower()
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in untrusted_rules().payload_tools)


def _rules_of(sentences: Sequence[str]) -> list[UntrustedRule | None]:
    """Return for each sentence the rule that it breaks, alone or with the line that a wrap parted from it."""
    plains = _plain(_PART.join(sentences)).split(_PART)
    if len(plains) != len(sentences):  # somebody wrote the mark himself
        plains = [_plain(sentence) for sentence in sentences]
    live = _live("".join(plains))
    rules = [
        _first_rule(plain, live) or _coded_rule(raw) for raw, plain in zip(sentences, plains, strict=True)
    ]
    for at in range(len(sentences) - 1) if live else ():
        if rules[at] is None and rules[at + 1] is None and _WRAPPED.search(sentences[at][-_OVERLAP:]):
            both = f"{plains[at].rstrip()[-_OVERLAP:]} {plains[at + 1].lstrip()[:_OVERLAP]}"
            rules[at] = rules[at + 1] = _first_rule(both, live)
    return rules


def _live(plain: str) -> list[_Ready]:
    """Return the rules whose words stand in a text, with these words."""
    lower = f"{plain.lower()} "
    found = ((ready, tuple(word for word in ready.words if word in lower)) for ready in _ready())
    return [replace(ready, words=words) for ready, words in found if words]


def _first_rule(plain: str, live: Sequence[_Ready]) -> UntrustedRule | None:
    for start in range(0, len(plain), _LONGEST - _OVERLAP):
        piece = plain[start : start + _LONGEST]
        lower = f"{piece.lower()} "
        for ready in live:
            if ready.matches(piece, lower):
                return ready.rule
    return None


def _coded_rule(sentence: str) -> UntrustedRule | None:
    for coded in _CODED.findall(sentence):
        hidden = _plain(_decoded(coded))
        rule = _first_rule(hidden, _ready()) if hidden else None
        if rule:
            return rule
    return None


def _sentences(text: str) -> Iterator[str]:
    """Yield the sentences and lines of a text; joined, they are the text."""
    start = 0
    for match in _BREAK.finditer(text):
        yield text[start : match.end()]
        start = match.end()
    if start < len(text):
        yield text[start:]


def _ending(sentence: str) -> str:
    found = _ENDING.search(sentence[-_OVERLAP:])
    return found[0] if found else ""


def _plain(text: str) -> str:
    """Undo what hides words from patterns: escapes, odd forms of letters, invisible marks, spaces, digits."""
    if "&" in text:
        text = html.unescape(text)
    if "%" in text:
        text = urllib.parse.unquote(text)
    if "\\u" in text:
        text = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)
    if not text.isascii():
        text = _TAG_LETTER.sub(lambda match: chr(ord(match[0]) - 0xE0000), text)
        text = unicodedata.normalize("NFKC", text)
        text = _ACCENTED.sub(lambda match: unicodedata.normalize("NFKD", match[0]), text)
        text = _UNSEEN.sub("", text)
        if _OTHER.search(text):
            text = _WORD.sub(lambda match: _of_one_alphabet(match[0]), text)
    text = _SPACED.sub(lambda match: re.sub(r"[ \t](?![ \t])", "", match[0]), without_unseen(text))
    return _DIGIT_IN_WORD.sub(lambda match: match[0].translate(_DIGITS), text)


def _of_one_alphabet(word: str) -> str:
    return word.translate(_latin()) if re.search("[A-Za-z]", word) else word


def _decoded(coded: str) -> str:
    """Return what a Base64 or hexadecimal text says, if it says something readable."""
    try:
        if re.fullmatch(r"[0-9a-fA-F]+", coded):
            raw = bytes.fromhex(coded[: len(coded) // 2 * 2])
        else:
            raw = base64.b64decode(
                coded[: len(coded) // 4 * 4], altchars=b"-_" if "-" in coded or "_" in coded else None
            )
    except (binascii.Error, ValueError):
        return ""
    text = raw.decode("utf-8", "replace")[:_LONGEST]
    return (
        text
        if all(letter.isprintable() or letter.isspace() for letter in text[:-1]) and "\ufffd" not in text[:-1]
        else ""
    )
