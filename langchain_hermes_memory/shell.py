"""Reads a command line into the simple commands that it runs: prefixes peeled off, nested lines opened.

The scanner is our own: `shlex` drops newlines, cannot tell `"$(x)"` from text, knows no heredoc and refuses
what is cut short, and all of that decides what a command does. It reads bash, PowerShell and cmd alike, never
fails and takes linear time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from langchain_hermes_memory.action_rules import Interpreter, Wrapper, action_rules

MAX_COMMANDS = 120
"""Greatest number of simple commands that are read from one input."""

_MAX_DEPTH = 5
_DRIVE = re.compile(r"(?:^|[\s\"'=(])[A-Za-z]:\\")
_ASSIGNMENT = re.compile(r"\$?(?:env:)?([A-Za-z_]\w*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
_TOKEN = re.compile(
    r"""(?P<skip>\\\r?\n|[ \t\r\f\v]+)
    |(?P<line>\n)
    |(?P<redirect>[0-9]?(?:<<<|<<-?|<>|>>|>\||>&|>)|&>>?|<)
    |(?P<operator>&&|\|\||;;|\|&|[|&;()])
    |(?P<single>\$'(?:[^'\\]|\\.)*(?:'|\Z)|'[^']*(?:'|\Z))
    |(?P<double>")
    |(?P<sub>\$\(|`)
    |(?P<escape>\\.)
    |(?P<comment>\#)
    |(?P<plain>[^\s'"\\$`|&;<>()\#]+|.)""",
    re.VERBOSE | re.DOTALL,
)
_QUOTED = re.compile(r'(?P<end>")|(?P<sub>\$\(|`)|(?P<escape>\\.)|(?P<plain>[^"\\$`]+|.)', re.DOTALL)
_PAREN = re.compile(r"""'[^']*'|\\.|[()]""", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Token:
    """A word or an operator of a command line."""

    text: str
    operator: bool = False
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """A program with its arguments, as it would be started."""

    words: tuple[str, ...]
    base: str = ""
    """Directory that an earlier `cd` went to; empty where it is not known."""
    writes: tuple[str, ...] = ()
    """Files that a `>` empties before the program runs."""
    reads: tuple[str, ...] = ()
    """Files that a `<` hands to it."""
    feed: str = ""
    """Text that the program reads from its standard input, where the line holds it."""
    sources: tuple[str, ...] = ()
    """Words of the commands before it in its pipeline: what may reach it through `xargs`."""
    host: str = ""
    """The machine that it runs on, for a command line handed to `ssh`."""


@dataclass(slots=True)
class _State:
    """What earlier commands of the line leave to later ones."""

    windows: bool
    base: str = ""
    host: str = ""
    depth: int = 0
    variables: dict[str, str] = field(default_factory=dict)


def tokens(text: str, *, windows: bool = False) -> tuple[list[Token], list[str]]:
    """Return the words and operators of a command line, and the command lines inside `$(...)` and backticks.

    Heredoc bodies come as one quoted word after the operator `<<`; comments are left out; a newline reads
    as `;`.

    Args:
        text: A command line of any shell.
        windows: Whether a backslash stands for itself, as in PowerShell and cmd.
    """
    scanner = _Scanner(text, windows=windows or bool(_DRIVE.search(text)))
    scanner.run()
    return scanner.tokens, scanner.nested


class _Scanner:
    def __init__(self, text: str, *, windows: bool) -> None:
        self.text = text
        self.windows = windows
        self.tokens: list[Token] = []
        self.nested: list[str] = []
        self._word: list[str] = []
        self._open = False
        self._quoted = False
        self._heredocs: list[tuple[int, str]] = []

    def run(self) -> None:
        position = 0
        while position < len(self.text):
            match = _TOKEN.match(self.text, position)
            if match is None:  # the last alternative matches any character
                break
            position = self._take(match)
        self._close()

    def _take(self, match: re.Match[str]) -> int:
        kind = match.lastgroup
        if kind == "double":
            return self._double(match.end())
        if kind == "sub":
            return self._substitution(match)
        if kind in ("skip", "line", "operator", "redirect"):
            return self._mark(match)
        return self._text_of(match)

    def _mark(self, match: re.Match[str]) -> int:
        """Take what ends a word."""
        self._close()
        if match.lastgroup == "line":
            self.tokens.append(Token(";", operator=True))
            return self._read_heredocs(match.end())
        if match.lastgroup != "skip":
            self.tokens.append(Token(match.group(), operator=True))
        return match.end()

    def _text_of(self, match: re.Match[str]) -> int:
        """Take what is part of a word, or a comment."""
        kind, piece, end = match.lastgroup, match.group(), match.end()
        if kind == "comment" and not self._open:
            stop = self.text.find("\n", end)
            return len(self.text) if stop < 0 else stop
        if kind == "escape" and self.windows:
            self._add(piece[:1])
            return match.start() + 1
        if kind == "single":
            self._add(piece.removeprefix("$")[1:].removesuffix("'"), quoted=True)
        else:
            self._add(piece[1:] if kind == "escape" else piece)
        return end

    def _add(self, piece: str, *, quoted: bool = False) -> None:
        self._word.append(piece)
        self._open = True
        self._quoted = self._quoted or quoted

    def _close(self) -> None:
        if not self._open:
            return
        word = "".join(self._word)
        if self.tokens and self.tokens[-1].operator and self.tokens[-1].text in ("<<", "<<-"):
            self._heredocs.append((len(self.tokens), word))
        self.tokens.append(Token(word, quoted=self._quoted))
        self._word, self._open, self._quoted = [], False, False

    def _double(self, position: int) -> int:
        self._add("", quoted=True)
        while position < len(self.text):
            match = _QUOTED.match(self.text, position)
            if match is None:
                break
            if match.lastgroup == "end":
                return match.end()
            position = match.end()
            if match.lastgroup == "sub":
                position = self._substitution(match)
            elif match.lastgroup == "escape" and (not self.windows or match.group()[1] in '"$`'):
                self._add(match.group()[1:] if match.group()[1] in '"$`\\\n' else match.group())
            else:
                self._add(match.group())
        return position

    def _substitution(self, match: re.Match[str]) -> int:
        """Take a `$(...)` or backticks into the word as they stand, and note the command line inside."""
        start = match.end()
        if match.group() == "`":
            if self.windows:  # PowerShell's escape
                self._add(self.text[start : start + 1])
                return start + 1
            end = self.text.find("`", start)
            end = len(self.text) if end < 0 else end
        else:
            end = _closing(self.text, start)
        inner = self.text[start:end]
        if not inner.startswith("("):  # `$((` is arithmetic
            self.nested.append(inner)
        self._add(self.text[match.start() : end + 1])
        return end + 1

    def _read_heredocs(self, position: int) -> int:
        for index, mark in self._heredocs:
            match = re.compile(rf"^[ \t]*{re.escape(mark)}[ \t]*\r?$", re.MULTILINE).search(
                self.text, position
            )
            end = match.start() if match else len(self.text)
            self.tokens[index] = Token(self.text[position:end], quoted=True)
            position = min(len(self.text), match.end() + 1) if match else len(self.text)
        self._heredocs = []
        return position


def _closing(text: str, position: int) -> int:
    """Return where the bracket opened before `position` closes; the end of the text if it never does."""
    depth = 1
    for match in _PAREN.finditer(text, position):
        if match.group() == "(":
            depth += 1
        elif match.group() == ")":
            depth -= 1
            if not depth:
                return match.start()
    return len(text)


def read_commands(text: str, *, windows: bool = False) -> list[Command]:
    """Return the simple commands that a command line runs, in order.

    Prefixes (`sudo`, `env`, `timeout 5`, assignments) are peeled off; what `bash -c`, `ssh host`, `xargs`,
    `find -exec`, `docker exec` and `$(...)` run is read in turn.

    Args:
        text: A command line of any shell; may be malformed or cut short.
        windows: Whether a backslash stands for itself.
    """
    found: list[Command] = []
    for command in _lines(text, _State(windows=windows)):
        found.append(command)
        if len(found) >= MAX_COMMANDS:
            break
    return found


def _lines(text: str, state: _State) -> Iterator[Command]:
    if state.depth > _MAX_DEPTH:
        return
    flat, nested = tokens(text, windows=state.windows)
    for inner in nested[:MAX_COMMANDS]:
        yield from _lines(inner, replace(state, depth=state.depth + 1, variables=dict(state.variables)))
    pipeline: list[str] = []
    fed = ""
    for command, joiner in _simple(flat, state):
        piped = joiner in ("|", "|&")
        if not piped:
            pipeline, fed = [], ""
        sources = tuple(word for word in pipeline if not word.startswith("-"))[:20]
        seen = replace(command, sources=sources, feed=command.feed or fed)
        fed = _printed(seen) or fed
        pipeline += command.words[1:]
        yield from _open_up(seen, state)


def _simple(flat: list[Token], state: _State) -> Iterator[tuple[Command, str]]:
    """Cut tokens at operators into simple commands, each with the operator before it."""
    words: list[str] = []
    writes: list[str] = []
    reads: list[str] = []
    feed = joiner = ""
    items = iter(flat)
    for token in items:
        if token.operator and token.text.lstrip("0123456789&")[:1] in ("<", ">"):
            file = next(items, None)
            if file is None or file.operator:
                continue
            if token.text in (">", "1>", ">|", "&>") and not file.text.isdigit():
                writes.append(_fill(file.text, state))
            elif token.text in ("<<", "<<-", "<<<"):
                feed = file.text
            elif token.text == "<":
                reads.append(_fill(file.text, state))
        elif token.operator or (not token.quoted and token.text in ("{", "}")):
            if words or writes:
                yield (
                    Command(tuple(words), state.base, tuple(writes), tuple(reads), feed, host=state.host),
                    joiner,
                )
            words, writes, reads, feed, joiner = [], [], [], "", token.text
        else:
            words.append(_fill(token.text, state))
            if len(words) == 1 and not token.quoted:
                _assign(words[0], state)
    if words or writes:
        yield Command(tuple(words), state.base, tuple(writes), tuple(reads), feed, host=state.host), joiner


def _assign(word: str, state: _State) -> None:
    match = _ASSIGNMENT.fullmatch(word)
    if match:
        state.variables[match[1]] = match[2]


def _fill(word: str, state: _State) -> str:
    if "$" not in word:
        return word
    return _VARIABLE.sub(lambda m: state.variables.get(m[1] or m[2], m[0])[:400], word[:4_000])[:4_000]


def _printed(command: Command) -> str:
    """Return the text that a command such as `echo` hands on through a pipe."""
    words = command.words
    if words and words[0].casefold() in action_rules().shell.printers:
        return " ".join(word for word in words[1:] if not word.startswith("-"))
    return ""


def program_of(word: str) -> str:
    """Return the bare name of a program: no folder, no `.exe`, lower case."""
    name = re.split(r"[/\\]", word.rstrip("/\\"))[-1].casefold()
    return re.sub(r"\.(?:exe|cmd|bat|com|ps1)$", "", name)


def lookup(table: dict[str, Wrapper] | dict[str, Interpreter], program: str) -> Wrapper | Interpreter | None:
    """Return the entry of a program, with or without its version (`python3.11`)."""
    return table.get(program) or table.get(program.rstrip("0123456789.-"))


def _open_up(command: Command, state: _State) -> Iterator[Command]:
    """Peel prefixes off a command and follow it into what it starts."""
    rules = action_rules().shell
    words = list(command.words)
    for _ in range(12):
        while words and (words[0] in rules.reserved or _ASSIGNMENT.fullmatch(words[0])):
            _assign(words.pop(0), state)
        if len(words) > 3 and words[0] in ("for", "foreach") and words[2] == "in":
            state.variables[words[1]] = words[3]
            return
        if len(words) > 2 and words[1] == "=" and words[0].startswith("$"):
            state.variables[words[0][1:]] = words[2]
            words = words[2:]
        if not words:
            break
        wrapper = rules.wrappers.get(program_of(words[0]))
        if wrapper is None:
            break
        rest = _after_options(words[1:], wrapper)
        if wrapper.piped:
            rest = [*rest, *command.sources] if rest else []
        if not rest:
            break
        words = rest
    opened = replace(command, words=tuple(words))
    if words:
        program = program_of(words[0])
        if program in rules.changers and len(words) > 1:
            state.base = _join(
                state.base, next((w for w in words[1:] if not re.fullmatch(r"-\w+|/d", w)), "")
            )
            state.variables["PWD"] = state.base
        yield from _nested(opened, program, state)
    elif command.writes:
        yield opened


def _after_options(words: list[str], wrapper: Wrapper) -> list[str]:
    """Leave out a prefix's own options, their values, its assignments and its own arguments."""
    index, own = 0, wrapper.arguments
    while index < len(words):
        word = words[index]
        if word == "--":
            index += 1
            break
        if word.startswith("-") and len(word) > 1:
            index += 2 if word in wrapper.values else 1
        elif own:
            own -= 1
            index += 1
        elif _ASSIGNMENT.fullmatch(word):
            index += 1
        else:
            break
    return words[index:]


def _nested(command: Command, program: str, state: _State) -> Iterator[Command]:
    """Yield a command, or what it runs where it only starts something else."""
    words = command.words
    deeper = replace(state, depth=state.depth + 1, variables=dict(state.variables))
    if program == "find":
        yield from _find(command, deeper)
        return
    remote = action_rules().shell.remotes.get(program)
    if remote is not None:
        head = [word for word in words[1:3] if not word.startswith("-")]
        if not remote.verbs or any(verb in head for verb in remote.verbs):
            rest = _after_options(list(words[1:]), Wrapper(values=remote.values, arguments=remote.arguments))
            if rest:
                deeper.host = words[len(words) - len(rest) - 1] if remote.host else state.host
                deeper.base = ""
                yield from _lines(" ".join(rest) if remote.joined else _quote(rest), deeper)
                return
    interpreter = lookup(action_rules().shell.interpreters, program)
    if isinstance(interpreter, Interpreter) and interpreter.language == "shell" and state.depth < _MAX_DEPTH:
        code = given_code(command, interpreter)
        if code:
            deeper.windows = state.windows or interpreter.windows
            yield from _lines(code, deeper)
            return
    yield command


def _quote(words: list[str]) -> str:
    return " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)


def given_code(command: Command, interpreter: Interpreter) -> str:
    """Return the code that a command hands to an interpreter: by option, argument or standard input."""
    words = command.words
    rest = interpreter.options and interpreter.rest
    codes = []
    for index, word in enumerate(words[1:], start=1):
        name, _, value = word.partition("=")
        plain = word.casefold() if interpreter.windows else word
        if plain in interpreter.options or (
            interpreter.clustered and re.fullmatch(interpreter.clustered, word)
        ):
            codes.append(" ".join(words[index + 1 :]) if rest else " ".join(words[index + 1 : index + 2]))
            if rest:
                break
        elif value and name.startswith("--") and name in interpreter.options:
            codes.append(value)
    if codes:
        return "\n;\n".join(codes) if interpreter.language == "sql" else "\n".join(codes)
    if interpreter.argument:
        bare = [word for word in words[1:] if not word.startswith("-")]
        if len(bare) >= interpreter.argument:
            return " ".join(bare[interpreter.argument - 1 :])
    script = any(not word.startswith("-") for word in words[1:])
    return command.feed if interpreter.stdin and (not script or interpreter.language == "sql") else ""


def _find(command: Command, state: _State) -> Iterator[Command]:
    """Read `find` as what it does to its places: `-delete` and `-exec rm {}` are an `rm` of them."""
    words = command.words
    places = []
    for word in words[1:]:
        if word.startswith(("-", "(", "!")):
            break
        places.append(word)
    names = [
        words[i + 1]
        for i, word in enumerate(words[:-1])
        if word in ("-name", "-iname", "-path", "-wholename")
    ]
    aimed = [f"{place.rstrip('/')}/{name}" for place in places or ["."] for name in names or [""]][:20]
    yielded = False
    if "-delete" in words:
        yield replace(command, words=("rm", *aimed))
        yielded = True
    for index, word in enumerate(words):
        if word in ("-exec", "-execdir", "-ok", "-okdir"):
            inner: list[str] = []
            for part in words[index + 1 :]:
                if part in (";", "+", "\\;"):
                    break
                inner += aimed if part == "{}" else [part.replace("{}", aimed[0])]
            yield from _open_up(replace(command, words=tuple(inner)), state)
            yielded = True
    if not yielded:
        yield command


def _join(base: str, directory: str) -> str:
    if not directory or directory == "-":
        return ""
    if not base or re.match(r"[/~$\\]|[A-Za-z]:", directory):
        return directory
    return f"{base.rstrip('/')}/{directory}"
