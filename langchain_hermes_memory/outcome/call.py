"""What kind of call it was: a shell command or a function, one that acts, looks up or only passes text on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property

from langchain_hermes_memory.outcome.model import Commands, Inspection, compiled

_MAX_COMMAND = 4_000
_MAX_SEGMENTS = 40
_WORD = re.compile(r"""(?:[^\s'"\\]|\\.|'[^']*+'|"(?:[^"\\]|\\.)*+"|['"])++""", re.DOTALL)
_ASSIGNMENT = re.compile(r"^[A-Za-z_]\w*+=")
_SPEAKER = re.compile(r"(?:\[stderr\] ?)?(?:\S*/)?-?(?P<name>[^\s:/：]{1,60})[:：]", re.IGNORECASE)
_SHELLS = ("bash", "sh", "zsh", "dash")
_COMMAND_KEYS = ("command", "cmd", "script", "commands", "code", "query", "sql", "input")
_FLAG_WITH_VALUE = re.compile(r"^-{1,2}[A-Za-z][\w-]*+$")


@dataclass(frozen=True, slots=True)
class Segment:
    """One simple command of a shell line."""

    words: tuple[str, ...]
    after: str
    """What stands before it: ``, `;`, `&&`, `||` or `|`."""

    @property
    def program(self) -> str:
        """Name of the program, lower case, without folder and `.exe`."""
        return re.split(r"[/\\]", self.words[0])[-1].lower().removesuffix(".exe") if self.words else ""

    @property
    def verb(self) -> str:
        """The first word after the program that is no option."""
        return next(iter(self.operands), "").lower()

    @property
    def operands(self) -> tuple[str, ...]:
        """The words that are no options, up to a redirection."""
        found = []
        for word in self.words[1:]:
            if word.startswith((">", "<", "2>", "1>", "&>")):
                break
            if not word.startswith("-"):
                found.append(word)
        return tuple(found)

    @property
    def is_redirected(self) -> bool:
        """Whether what it prints goes into a file."""
        return any(word.startswith((">", "1>", "&>")) and "/dev/null" not in word for word in self.words[1:])

    @property
    def text(self) -> str:
        """The command as one line."""
        return " ".join((self.program, *self.words[1:]))


@dataclass(frozen=True)
class Call:
    """A tool run, seen from its name and input alone."""

    tool: str
    """Name, lower case."""
    command: str
    """The shell line, the code, the SQL or the arguments as JSON."""
    lists: Commands
    arguments: Mapping[str, object] = field(default_factory=dict)
    named: bool = False
    """Whether the tool is itself a program (git, kubectl, ...)."""

    @cached_property
    def is_shell(self) -> bool:
        """Whether its input is a shell line."""
        return self.named or _named(self.tool, self.lists.shell_tools)

    @cached_property
    def is_code(self) -> bool:
        """Whether its input is code."""
        return _named(self.tool, self.lists.code_tools)

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """The simple commands of a shell line."""
        return tuple(_segments(self.command, self.lists.wrappers)) if self.is_shell else ()

    @cached_property
    def speaking(self) -> tuple[Segment, ...]:
        """The simple commands whose output matters: not `cd`, `echo`, filters behind a pipe, ..."""
        quiet = self.lists.quiet_programs
        loud = [part for part in self.segments if part.program not in quiet and part.after != "|"]
        return tuple(loud) or self.segments[:1]

    @cached_property
    def programs(self) -> tuple[str, ...]:
        """The programs that a shell line names."""
        return tuple(dict.fromkeys(part.program for part in self.segments if part.program))

    @cached_property
    def program(self) -> str:
        """The last program whose output matters; empty where there is none."""
        return self.speaking[-1].program if self.speaking else ""

    @cached_property
    def is_payload(self) -> bool:
        """Whether the output is what was looked at, and so does not tell how the call went."""
        if self.is_shell:
            return any(self._inspects(part) for part in self.speaking)
        if _named(self.tool, self.lists.payload_exceptions):
            return False
        return _named(self.tool, self.lists.payload_tools)

    @cached_property
    def is_document(self) -> bool:
        """Whether it is a function that returns a document."""
        return not self.is_shell and _named(self.tool, self.lists.document_tools)

    def says(self, line: str) -> bool:
        """Return whether a line of a payload command's output is a program's own word: `cp: ...`."""
        named = _SPEAKER.match(line)
        if named is not None and named["name"].lower() in self._speakers:
            return True
        return any(compiled(own).match(line) for own in self._own)

    @cached_property
    def _speakers(self) -> frozenset[str]:
        return frozenset((*self.programs, *_SHELLS))

    @cached_property
    def _own(self) -> tuple[str, ...]:
        looks = (look.own for part in self.speaking for look in self._inspections(part))
        return tuple(dict.fromkeys(filter(None, looks)))

    @cached_property
    def is_lookup(self) -> bool:
        """Whether it asked for something specific, so that nothing found means not found."""
        if self.is_shell:
            return any(
                compiled(p).search(part.text) for part in self.speaking for p in self.lists.lookup_commands
            )
        if _named(self.tool, self.lists.listing_tools):
            return False
        return self.is_key_query or (
            _named(self.tool, self.lists.lookup_tools) and bool(self.arguments or self.command)
        )

    @cached_property
    def is_key_query(self) -> bool:
        """Whether it is a database statement for one key."""
        return compiled(self.lists.key_query).search(self.command) is not None

    @cached_property
    def is_silent(self) -> bool:
        """Whether it prints nothing when all went well."""
        if not self.is_shell:
            return self.is_code or (bool(self.tool) and not self.is_lookup)
        if not self.segments:
            return False
        last = self.speaking[-1].text
        return ">" in self.command or any(compiled(p).search(last) for p in self.lists.silent_commands)

    @cached_property
    def hides_exit(self) -> bool:
        """Whether the exit code says nothing about the command proper: `| tail`, `; echo`, `|| true`."""
        return compiled(self.lists.masks).search(self.command) is not None

    @cached_property
    def parts(self) -> int:
        """Number of independent things that were asked for, as far as the command shows; 0: unknown."""
        if not self.is_shell:
            lists = [value for value in self.arguments.values() if isinstance(value, list)]
            return len(lists[0]) if len(lists) == 1 else 0
        loop = re.search(r"\bfor\s+\w+\s+in\s+([^;\n]++)[;\n]", self.command)
        if loop:
            return len(loop[1].split())
        most = 0
        for part in self.speaking:
            if part.program in self.lists.many_operands and not any(
                c in word for word in part.operands for c in "*?["
            ):
                most = max(most, len(part.operands) - self._fixed_operands(part))
        alike = [part.program for part in self.speaking if part.after != "||"]
        if len(alike) > 1 and len(set(alike)) == 1:
            most = max(most, len(alike))
        return most

    def _fixed_operands(self, part: Segment) -> int:
        """Count the operands that are no parts of the work: a destination, a mode, the value of an option."""
        valued = part.program in ("head", "tail", "sort") and any(
            word in ("-n", "-c", "-k") for word in part.words
        )
        leading = part.program in ("cp", "mv", "install", "ln", "scp", "chmod", "chown", "chgrp")
        return int(valued) + int(leading)

    @cached_property
    def is_recursive(self) -> bool:
        """Whether it works through a tree, going on after what it cannot read."""
        return any(compiled(self.lists.recursive).search(part.text) for part in self.speaking)

    def _inspects(self, part: Segment) -> bool:
        return any(True for _ in self._inspections(part))

    def _inspections(self, part: Segment) -> Iterator[Inspection]:
        for look in () if part.is_redirected else self.lists.inspections:
            if part.program in look.programs and (not look.verbs or self._verb_of(part, look.verbs)):
                yield look

    def _verb_of(self, part: Segment, verbs: tuple[str, ...]) -> bool:
        operands = [word.lower() for word in part.operands[:4]]
        return any(" ".join(operands[: verb.count(" ") + 1]) == verb for verb in verbs) or (
            part.program in ("git", "kubectl", "docker", "gh", "aws")
            and any(verb in operands[:3] for verb in verbs if " " not in verb)
        )


def read_call(tool: str, command: str, lists: Commands) -> Call:
    """Look at a tool run from its name and input.

    Args:
        tool: Name of the tool.
        command: Its input: a shell line, or arguments as JSON.
        lists: The command lists of the rules.
    """
    name = tool.strip().lower()[:200]
    arguments: dict[str, object] = {}
    text = command[:_MAX_COMMAND]
    if text.lstrip().startswith("{"):
        try:
            loaded = json.loads(text)
        except (ValueError, RecursionError):
            loaded = None
        if isinstance(loaded, dict):
            arguments = loaded
            text = _inner(loaded) or text
    first = next(_segments(text[:200], lists.wrappers), None)
    named = first is not None and bool(name) and not arguments and first.program == name
    return Call(name, text, lists, arguments, named=named)


def _inner(arguments: Mapping[str, object]) -> str:
    for key in _COMMAND_KEYS:
        value = arguments.get(key)
        if isinstance(value, str):
            return value
        if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
            return "\n".join(str(item) for item in value)
    return ""


def _named(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _segments(command: str, wrappers: tuple[str, ...]) -> Iterator[Segment]:
    """Split a shell line into simple commands, quotes respected, heredocs cut off."""
    command = re.split(r"<<-?\s*['\"]?\w", command, maxsplit=1)[0][:_MAX_COMMAND]
    words: list[str] = []
    after, made = "", 0
    spaced = _spaced(command)
    for match in _WORD.finditer(spaced):
        word = match.group()
        if word in _OPERATORS:
            if words:
                yield Segment(_unwrap(words, wrappers), after)
                made += 1
            words, after = [], _OPERATORS[word]
            if made >= _MAX_SEGMENTS:
                return
        else:
            words.append(_unquoted(word))
    if words:
        yield Segment(_unwrap(words, wrappers), after)


_OPERATORS = {";": ";", "&&": "&&", "||": "||", "|": "|", "|&": "|", "\x00": ";", "&": ";"}
_SPLIT = re.compile(
    r"""('[^']*+'|"(?:[^"\\]|\\.)*+"|\\.)|(&&|\|\||\|&|(?<![>&0-9])&(?![>&0-9])|[;|\n])""", re.DOTALL
)


def _spaced(command: str) -> str:
    return _SPLIT.sub(lambda m: m[1] or f" {m[2].replace(chr(10), chr(0))} ", command)


def _unquoted(word: str) -> str:
    return word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "'\"" else word


def _unwrap(words: list[str], wrappers: tuple[str, ...]) -> tuple[str, ...]:
    """Drop what stands before the program proper: assignments, brackets, `sudo`, `timeout 5`, ..."""
    rest = [word.lstrip("({") or "" for word in words[:1]] + words[1:]
    rest = [word for word in rest if word]
    while rest:
        name = rest[0].rsplit("/", 1)[-1].lower()
        if _ASSIGNMENT.match(rest[0]) or name in ("do", "then", "else", "if", "while", "!", "{", "("):
            rest.pop(0)
        elif name in wrappers and len(rest) > 1:
            rest.pop(0)
            while len(rest) > 1 and (
                rest[0].startswith("-") or re.fullmatch(r"\d+[smh]?", rest[0]) or _ASSIGNMENT.match(rest[0])
            ):
                valued = _FLAG_WITH_VALUE.match(rest[0]) and rest[0] in ("-u", "-n", "-I", "-c", "-s", "-k")
                del rest[: 2 if valued and len(rest) > 2 else 1]
        elif re.fullmatch(r"python[\d.]*", name) and len(rest) > 2 and rest[1] == "-m":
            del rest[:2]
        else:
            break
    return tuple(rest)
