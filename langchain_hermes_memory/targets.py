"""What an action is aimed at: finds paths, URLs, hosts, tables and ids, classifies and compares them."""

from __future__ import annotations

import difflib
import functools
import posixpath
import re
from collections.abc import Iterable
from enum import StrEnum

from langchain_hermes_memory.action_rules import action_rules
from langchain_hermes_memory.record import Target, TargetClass, TargetKind

MAX_TARGETS = 20
"""Greatest number of targets of one action."""


class TargetRelation(StrEnum):
    """How one target stands to another."""

    SAME = "same"
    INSIDE = "inside"
    """The first lies within the second."""
    CONTAINS = "contains"
    """The second lies within the first."""
    LOOKALIKE = "lookalike"
    """Easily taken for the other, and another thing."""
    OTHER = "other"


_LONGEST = 400
_LONGEST_TEXT = 8_000
_ABSOLUTE = re.compile(r"/|~|[A-Za-z]:|\$|%\w+%|\\\\|HK[A-Z]{2}:")
_DRIVE = re.compile(r"([A-Za-z]):(?=[\\/]|\Z)[\\/]*")
_URL = re.compile(r"([a-z][a-z0-9+.-]*)://([^\s/?#]*)([^\s]*)", re.IGNORECASE)
_SCP = re.compile(r"(?:[\w.-]+@)?([\w.-]{2,}):([^:\s]*)")
_GLOB = re.compile(r"[*?\[]")
_HOME = re.compile(r"/(?:home|Users)/[^/]+(?=/|\Z)|/root(?=/|\Z)|[A-Z]:/Users/[^/]+(?=/|\Z)|~\w*(?=/|\Z)")
_PUBLIC_SCHEMA = re.compile(r"(?:public|dbo|main)\.", re.IGNORECASE)
_LOOPBACK = re.compile(r"(?:localhost|127\.\d+\.\d+\.\d+|\[?::1\]?|0\.0\.0\.0)(?::\d+)?")


def path_target(text: str, base: str = "") -> Target:
    """Return a path as a target: absolute where `base` allows, with `/`, a glob read as the folder it is in.

    Args:
        text: A path of any system.
        base: Directory that a relative path starts from; empty where it is not known.
    """
    path = _plain(text, base)
    kept = path
    if _GLOB.search(path):
        head = path[: _GLOB.search(path).start()]  # type: ignore[union-attr]
        kept = head.rpartition("/")[0] or ("/" if head.startswith("/") else ".")
    return Target(kind=TargetKind.PATH, value=kept, target_class=_place(path))


@functools.lru_cache(maxsize=4_096)
def _place(path: str) -> TargetClass:
    return next(
        (rule.target_class for rule in action_rules().place if rule.pattern.search(path)), TargetClass.UNKNOWN
    )


def _plain(text: str, base: str) -> str:
    path = text.strip().strip("\"'")[:_LONGEST]
    path = re.sub(r"\A(?:\$HOME|\$\{HOME\}|\$env:USERPROFILE|%USERPROFILE%)(?=[/\\]|\Z)", "~", path)
    if base and not _ABSOLUTE.match(path):
        path = f"{base}/{path}"
    if "\\" in path and (_DRIVE.match(path) or "/" not in path or path.startswith(("\\\\", "~", "%", "$"))):
        path = path.replace("\\", "/")
    path = _DRIVE.sub(lambda match: f"{match[1].upper()}:/", path, count=1)
    if not path:
        return "."
    unc = path.startswith("//")
    path = posixpath.normpath(path)
    return path if unc or not path.startswith("//") else path[1:]


def url_target(text: str) -> Target:
    """Return a URL as a target: lower-case scheme and host, no credentials, no query, no trailing slash."""
    match = _URL.match(text[:_LONGEST])
    if match is None:
        return Target(kind=TargetKind.URL, value=text[:_LONGEST], target_class=TargetClass.REMOTE)
    scheme, host, rest = match[1].casefold(), match[2].rpartition("@")[2].casefold(), match[3]
    if scheme == "file":
        return path_target(host + rest)
    path = re.split(r"[?#]", rest, maxsplit=1)[0].rstrip("/")
    return Target(kind=TargetKind.URL, value=f"{scheme}://{host}{path}", target_class=_host_class(host))


def host_target(text: str) -> Target:
    """Return a host as a target, without user name."""
    host = text.rpartition("@")[2].casefold()[:_LONGEST]
    return Target(kind=TargetKind.HOST, value=host, target_class=_host_class(host))


def _host_class(host: str) -> TargetClass:
    return TargetClass.UNKNOWN if _LOOPBACK.fullmatch(host) else TargetClass.REMOTE


def table_target(text: str) -> Target:
    """Return a database table (or another object of a database) as a target; its schema stays in front."""
    name = text.strip("\"'`[]; ").casefold()[:_LONGEST]
    rules = action_rules().table_place
    found = next((rule.target_class for rule in rules if rule.pattern.search(name)), TargetClass.UNKNOWN)
    return Target(kind=TargetKind.TABLE, value=name, target_class=found)


def id_target(text: str) -> Target:
    """Return a name or number as a target."""
    value = text.strip()[:_LONGEST]
    kept = TargetClass.USER_DATA if action_rules().production.search(value) else TargetClass.UNKNOWN
    return Target(kind=TargetKind.ID, value=value, target_class=kept)


def word_target(word: str, base: str = "", *, is_path: bool = False) -> Target | None:
    """Return what a word of a command line names, or None where it names nothing.

    Args:
        word: A word without quotes.
        base: Directory that a relative path starts from.
        is_path: Whether the program takes nothing but paths.
    """
    if (
        not word
        or len(word) > _LONGEST
        or "\n" in word
        or word in ("/dev/null", "-", "--", "NUL", "/dev/stdout", "/dev/stderr")
    ):
        return None
    if _URL.match(word):
        return url_target(word)
    if not _DRIVE.match(word) and not word.startswith(("/", ".", "~")):
        remote = _SCP.fullmatch(word)
        if remote and ("@" in word.partition(":")[0] or remote[2].startswith(("/", "~"))):
            return (
                host_target(word.partition(":")[0])
                if not remote[2]
                else url_target(f"ssh://{remote[1]}/{remote[2].lstrip('/')}")
            )
    if not is_path and _host_pattern().fullmatch(word):
        return host_target(word)
    if is_path or _looks_like_path(word):
        return path_target(word, base)
    return None


@functools.cache
def _host_pattern() -> re.Pattern[str]:
    return re.compile(
        "|".join(
            f"(?:{rule.pattern.pattern.removeprefix('(?i)')})"
            for rule in action_rules().named
            if rule.id in ("address", "domain")
        ),
        re.IGNORECASE,
    )


def _looks_like_path(word: str) -> bool:
    if re.search(r"[\s<>|{}()=,;!^]", word) and not word.startswith(("/", "~", "./", "$(")):
        return False
    if _ABSOLUTE.match(word) or word.startswith(("./", "../", ".\\", "..\\")) or word in (".", ".."):
        return not re.fullmatch(r"/[A-Za-z?]|/.*/[gimsu]*", word) or word.count("/") > 2
    if re.search(r"://|^[\d./:-]+$|^@|^[a-z]+/[\w.-]+:[\w.-]+$", word):
        return False
    return bool(
        re.search(r"[\w)*]/[\w.*-]|[\w*][/\\]$", word) or re.search(r"\w\.[A-Za-z][A-Za-z0-9]{0,4}$", word)
    )


def unique(targets: Iterable[Target]) -> tuple[Target, ...]:
    """Return at most 20 targets, each once, in order."""
    return tuple({(target.kind, target.value): target for target in targets}.values())[:MAX_TARGETS]


def only_temporary(targets: Iterable[Target]) -> bool:
    """Whether there are targets and every one of them is a temporary place."""
    classes = {target.target_class for target in targets}
    return classes == {TargetClass.TEMPORARY}


def read_targets(text: str) -> tuple[Target, ...]:
    """Return what a text names: paths, URLs, hosts, tables and ids, in order of appearance; at most 20.

    Args:
        text: A request or any other prose, English or Chinese; only its first 8,000 characters are read.
    """
    text = text[:_LONGEST_TEXT]
    taken = [False] * (len(text) + 1)
    found: list[tuple[int, Target]] = []
    for rule in action_rules().named:
        for match in rule.pattern.finditer(text):
            group = "name" if "name" in rule.pattern.groupindex and match["name"] else 0
            start, end = match.span(group)
            if any(taken[start:end]):
                continue
            target = _named(rule.kind, match[group])
            if target is None:
                continue
            taken[start:end] = [True] * (end - start)
            found.append((start, target))
            if len(found) >= 4 * MAX_TARGETS:
                break
    found.sort(key=lambda item: item[0])
    return unique(target for _, target in found)


def _named(kind: str, text: str) -> Target | None:
    if kind == "path":
        path = action_rules().suffixes.sub("", text[:_LONGEST]).rstrip(".,:;!?")
        return path_target(path) if path.strip("./~ ") or path == "/" else None
    if kind == "url":
        return url_target(text.rstrip(".,:;!?)"))
    if kind == "host":
        return host_target(text)
    return table_target(text) if kind == "table" else id_target(text)


# ---------------------------------------------------------------------- relation


def target_relation(a: Target, b: Target) -> TargetRelation:
    """Return how `a` stands to `b`: the same thing, inside or around it, a look-alike, or something else.

    Two temporary places are look-alikes whatever their names: one stands in too easily for the other.
    """
    if {a.kind, b.kind} == {TargetKind.URL, TargetKind.HOST}:
        return _url_and_host(a, b)
    if a.kind is not b.kind:
        return TargetRelation.SAME if a.value == b.value else TargetRelation.OTHER
    return _path_relation(a, b) if a.kind is TargetKind.PATH else _named_relation(a, b)


def _named_relation(a: Target, b: Target) -> TargetRelation:
    one, other = _comparable(a), _comparable(b)
    if one == other:
        return TargetRelation.SAME
    if a.kind is TargetKind.URL and one.startswith(other + "/"):
        return TargetRelation.INSIDE
    if a.kind is TargetKind.URL and other.startswith(one + "/"):
        return TargetRelation.CONTAINS
    if a.kind is TargetKind.HOST:
        one, other = one.split(".")[0], other.split(".")[0]
    return TargetRelation.LOOKALIKE if _alike(one, other) else TargetRelation.OTHER


def _comparable(target: Target) -> str:
    value = target.value.casefold()
    if target.kind is TargetKind.URL:
        return value.partition("://")[2] or value
    if target.kind is TargetKind.TABLE:
        return _PUBLIC_SCHEMA.sub("", value, count=1)
    return value.removeprefix("#") if target.kind is TargetKind.ID else value


def _url_and_host(a: Target, b: Target) -> TargetRelation:
    url, host = (a, b) if a.kind is TargetKind.URL else (b, a)
    within = _comparable(url).partition("/")[0]
    if host.value not in (within, within.partition(":")[0]):
        return TargetRelation.OTHER
    return TargetRelation.INSIDE if a is url else TargetRelation.CONTAINS


def _path_relation(a: Target, b: Target) -> TargetRelation:
    one, other = a.value, b.value
    if one.startswith("~") or other.startswith("~"):
        one, other = _HOME.sub("~", one, count=1), _HOME.sub("~", other, count=1)
    if one[1:2] == ":" or other[1:2] == ":":
        one, other = one.casefold(), other.casefold()
    if one == other:
        return TargetRelation.SAME
    if one.startswith(other.rstrip("/") + "/") and other not in ("~", "."):
        return TargetRelation.INSIDE
    if other.startswith(one.rstrip("/") + "/") and one not in ("~", "."):
        return TargetRelation.CONTAINS
    if _less_qualified(one, other) or _less_qualified(other, one):
        return TargetRelation.SAME
    both_temporary = a.target_class is b.target_class is TargetClass.TEMPORARY
    last, other_last = one.rpartition("/")[2], other.rpartition("/")[2]
    if both_temporary or _alike(last, other_last):
        return TargetRelation.LOOKALIKE
    return TargetRelation.OTHER


def _less_qualified(short: str, full: str) -> bool:
    """Whether a file named without its folder may well be the file that is named in full."""
    if _ABSOLUTE.match(short) or not full.endswith("/" + short):
        return False
    return "/" in short or bool(re.search(r"\w\.\w{1,6}$", short))


def _alike(one: str, other: str) -> bool:
    """Whether two names are easily mixed up: they share a telling word, or few letters differ."""
    one, other = one.casefold(), other.casefold()
    if not one or not other:
        return False
    if one == other:
        return True
    parts, other_parts = set(_parts(one)), set(_parts(other))
    if parts & other_parts:
        return True
    return difflib.SequenceMatcher(None, one[:80], other[:80]).ratio() >= 0.75


def _parts(name: str) -> list[str]:
    """Return the telling words of a name; a file's ending and short words tell nothing."""
    stem = re.sub(r"\.\w{1,5}$", "", name)
    return [part for part in re.split(r"[\W_\d]+", stem) if len(part) >= 3 or re.search(r"[㐀-鿿]", part)]
