"""Cuts texts into the terms of full-text search: stemmed words, pairs of CJK characters, whole identifiers.

Look-alike identifiers are told apart by their whole (`/tmp/cache` is another term than `/tmp/cache_backup`)
and found by their parts. Both sides of a search, the stored text and the query, go through `terms`.
"""

from __future__ import annotations

import functools
import hashlib
import re
import threading
import unicodedata
from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict

from langchain_hermes_memory._rules import load_rules

MAX_CHARS = 100_000
"""Characters of a text that are read; the rest adds no new subject."""
MAX_TERMS = 20_000
"""Terms that one text yields at most."""
MAX_TERM_CHARS = 80
"""Length up to which a term is kept as it is; a longer one ends in a digest of its whole."""

_CJK = r"\u3005\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_RUN = re.compile(
    rf"(?P<cjk>[{_CJK}]+)"
    rf"|(?P<url>[A-Za-z][A-Za-z0-9+.-]{{0,30}}://[^\s\"'<>`|()\[\]{{}}，。；、！？…{_CJK}]+)"
    rf"|(?P<other>(?:(?![{_CJK}])[\w./\\:@~-])+)"
)
_INNER = re.compile(r"[/\\:@._~-]+")
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_URL_PARTS = re.compile(r"[/?#&=,;+%!*$]+")
_COLON = re.compile(r":(?![0-9/\\])")
_PLACE = re.compile(r":[0-9:]+$")
_ENDS = "._:-@\\"


class _WordLists(BaseModel):
    """The file `rules/words.toml`."""

    model_config = ConfigDict(extra="forbid")

    english: frozenset[str]
    chinese: tuple[str, ...]
    chinese_particles: str


def terms(text: str) -> list[str]:
    """Cut a text into search terms, in the order of the text; a term that occurs twice is given twice.

    Words come in lower case, English ones stemmed; Chinese, Japanese and Korean runs as overlapping pairs
    of characters, a lone character as itself. Paths, URLs, hosts, error codes, dotted and snake_case names,
    versions and numbers of two digits or more come as whole terms, followed by their parts.

    Args:
        text: Any text; at most its first `MAX_CHARS` characters are read.
    """
    found: list[str] = []
    for match in _RUN.finditer(unicodedata.normalize("NFKC", text[:MAX_CHARS])[:MAX_CHARS]):
        run = match[0]
        if match["cjk"]:
            found.extend(_pairs(run))
        elif match["url"]:
            found.extend(_url(run))
        else:
            found.extend(_identifiers(run))
        if len(found) >= MAX_TERMS:
            break
    return [_bounded(term) for term in found[:MAX_TERMS]]


def _pairs(run: str) -> Iterator[str]:
    for piece in _chinese_stops().split(run):
        if len(piece) == 1:
            yield piece
        for start in range(len(piece) - 1):
            yield piece[start : start + 2]


def _url(url: str) -> Iterator[str]:
    url = url.rstrip("/.,;:!?&=#-")
    yield url.lower()
    scheme, _, rest = url.partition("://")
    yield scheme.lower()
    host, *_ = re.split(r"[/?#]", rest, maxsplit=1)
    yield from _identifiers(host)
    path, *query = re.split(r"[?#]", rest[len(host) :], maxsplit=1)
    yield from _identifiers(path)
    for part in query:
        for piece in _URL_PARTS.split(part):
            yield from _identifiers(piece)


def _identifiers(run: str) -> Iterator[str]:
    """Read a run of word characters and connectors: one identifier, or several joined by colons."""
    for piece in _COLON.split(run):
        if piece:
            yield from _identifier(piece)


def _identifier(run: str) -> Iterator[str]:
    whole = run.rstrip(_ENDS + "/").lstrip("-:@_\\" if not run.startswith("\\\\") else "-:@_")
    whole = whole.removeprefix("./")
    if not _INNER.search(whole):
        yield from _word(whole)
        return
    if not re.search(r"\w", whole):
        return
    yield whole.lower()
    without_place = _PLACE.sub("", whole)
    if without_place != whole and re.search(r"[/\\.]", without_place):
        yield without_place.lower()
    segments = [segment for segment in re.split(r"[/\\:@~]+", whole) if segment]
    for segment in segments:
        parts = [part for part in _INNER.split(segment) if part]
        if len(parts) > 1 and segment not in (whole, without_place):
            yield segment.lower()
        for part in parts:
            yield from _word(part)


def _word(word: str) -> Iterator[str]:
    """Read a run of word characters without connectors."""
    lower = word.lower()
    if len(word) < 2 or lower in _lists().english:
        return
    if not word.isascii():
        yield lower
        return
    if word.isalpha() and word[1:].islower():
        yield _stem(lower)
        return
    yield lower
    if word.isalpha() and _stem(lower) != lower:
        yield _stem(lower)
    parts = _CAMEL.findall(word)
    if len(parts) > 1:
        for part in parts:
            yield from _word(part if part.isdigit() else part.lower())


@functools.lru_cache(maxsize=50_000)
def _stem(word: str) -> str:
    # The stemmer keeps its state in the object: one for each thread.
    stemmer = getattr(_local, "stemmer", None)
    if stemmer is None:
        # Named rather than looked up by language: the look-up would take a compiled stemmer of another
        # version.
        from snowballstemmer.english_stemmer import EnglishStemmer  # noqa: PLC0415

        stemmer = _local.stemmer = EnglishStemmer()
    return str(stemmer.stemWord(word)) if len(word) <= MAX_TERM_CHARS else word


_local = threading.local()


def _bounded(term: str) -> str:
    if len(term) <= MAX_TERM_CHARS:
        return term
    digest = hashlib.sha256(term.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{term[: MAX_TERM_CHARS - 17]}~{digest}"


@functools.cache
def _lists() -> _WordLists:
    return load_rules("words", _WordLists)


@functools.cache
def _chinese_stops() -> re.Pattern[str]:
    lists = _lists()
    return re.compile("|".join([*map(re.escape, lists.chinese), *map(re.escape, lists.chinese_particles)]))
