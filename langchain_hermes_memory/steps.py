"""Reads what an input does, step by step: command lines, SQL, requests, code, arguments and plain orders.

Every reader yields steps: an operation, its targets, and the danger rules that its structure meets. A rule
sees words, options and places that were told apart before, so that text about a deletion (an `echo`,
a comment, a search pattern) is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_hermes_memory.action_rules import (
    CommandRule,
    Interpreter,
    Program,
    action_rules,
    command_rules,
)
from langchain_hermes_memory.record import Target, TargetKind
from langchain_hermes_memory.shell import Command, given_code, lookup, program_of, read_commands
from langchain_hermes_memory.sql import looks_like_sql, read_statements
from langchain_hermes_memory.targets import (
    host_target,
    id_target,
    only_temporary,
    path_target,
    read_targets,
    table_target,
    unique,
    word_target,
)

_MAX_CODE_DEPTH = 3
_LONGEST_CODE = 20_000
_PLAIN_PROGRAM = Program()
_LITERAL = re.compile(
    r"(?P<comment>(?<![\w$&%:'\"])#[^\n]*|(?<![:\w'\"])//[^\n]*)"
    r"|[rbfuRBFU]{0,2}(?P<mark>\"\"\"|'''|\"|'|`)(?P<text>(?:\\.|(?!(?P=mark)).)*?)(?:(?P=mark)|\Z)",
    re.DOTALL,
)
_REQUEST = re.compile(r"\A\s*(GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS)\s+(\S+)", re.IGNORECASE)
_ONE_WORD = re.compile(r"(?=[^.]*[a-z])[A-Za-z][\w/-]{2,59}")
"""An input that is nothing but the name of a method: `message/delete`."""
_ROUTE = re.compile(r"/(?:\d+|[0-9a-f-]{32,36})(?=/|\Z)")


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that an input does."""

    operation: str
    targets: tuple[Target, ...] = ()
    dangers: tuple[str, ...] = ()
    quiet: bool = False
    """Whether it is a mere helper: `cd`, `echo`, a filter at the end of a pipeline."""


# ---------------------------------------------------------------------- command lines


def shell_steps(text: str, *, windows: bool = False, depth: int = 0) -> Iterator[Step]:
    """Yield what a command line does.

    Args:
        text: A command line of any shell.
        windows: Whether it is one of PowerShell or cmd.
        depth: How many programs it is nested in.
    """
    for command in read_commands(text, windows=windows):
        yield from _command_steps(command, depth)


@dataclass(frozen=True, slots=True)
class _Parsed:
    """A command with its words told apart."""

    program: str
    table: Program
    options: frozenset[str]
    bare: tuple[str, ...]
    """The arguments that are no options and no values of known options."""

    @property
    def depth(self) -> int:
        """How many of the bare words belong to the operation."""
        return self.table.depth + (1 if self.bare and self.bare[0] in self.table.groups else 0)


def _parse(command: Command) -> _Parsed:
    rules = action_rules()
    name = program_of(command.words[0]) if command.words else ""
    table = rules.programs.get(name, _PLAIN_PROGRAM)
    slashed = name in rules.shell.windows_programs
    options: set[str] = set()
    bare: list[str] = []
    values = iter(command.words[1:])
    only_bare = False
    for word in values:
        if only_bare or not (
            word.startswith("-") or (slashed and re.fullmatch(r"/[A-Za-z?]{1,6}(?::\S*)?", word))
        ):
            bare.append(word)
        elif word == "--":
            only_bare = True
        elif word != "-":
            option = word.partition("=")[0]
            options |= {option, word}
            if re.fullmatch(r"-[A-Za-z]{2,6}", word):
                options |= {f"-{letter}" for letter in word[1:]}
            if slashed or len(word) > 4:
                options.add(option.casefold())
            if option == word and word in table.values:
                next(values, None)
    return _Parsed(name, table, frozenset(options), tuple(bare))


def _command_steps(command: Command, depth: int) -> Iterator[Step]:
    shell = action_rules().shell
    parsed = _parse(command)
    interpreter = lookup(shell.interpreters, parsed.program)
    if isinstance(interpreter, Interpreter) and interpreter.language != "shell" and depth < _MAX_CODE_DEPTH:
        code = given_code(command, interpreter)
        if code:
            yield from _handed(code, interpreter.language, parsed, command, depth)
            return
    request = _request_of(parsed, command)
    if request is not None:
        yield request
        return
    targets = _command_targets(parsed, command)
    yield Step(
        operation=_operation(parsed),
        targets=targets,
        dangers=tuple(_command_dangers(parsed, command)),
        quiet=not parsed.program or parsed.program in shell.quiet,
    )


def _handed(code: str, language: str, parsed: _Parsed, command: Command, depth: int) -> Iterator[Step]:
    """Read code that a program was handed, at the place (a file, a host) that the program was pointed to."""
    places = _command_targets(parsed, command)
    files = [target for target in places if target.kind is TargetKind.PATH]
    if language == "sql" and code.lstrip().startswith("\\"):  # a client's own command: `\\dt`
        yield Step(f"{parsed.program} {code.split(maxsplit=1)[0][:20]}", places)
        return
    steps = sql_steps(code) if language == "sql" else code_steps(code, depth + 1)
    for step in steps:
        harmless = language == "sql" and only_temporary(files)
        yield Step(
            operation=f"{parsed.program} {step.operation}".strip(),
            targets=unique((*step.targets, *(places if language == "sql" else ()))),
            dangers=() if harmless else step.dangers,
        )


def _operation(parsed: _Parsed) -> str:
    words = [parsed.program, *parsed.bare[: parsed.depth]]
    for flag in parsed.table.flags:
        same = flag.split("|")
        if parsed.options & set(same):
            words.append(same[0])
    return " ".join(word[:40] for word in words if word)


def _command_targets(parsed: _Parsed, command: Command) -> tuple[Target, ...]:
    shell = action_rules().shell
    is_path = parsed.program in shell.path_programs
    words = [
        word
        for word in _target_words(parsed, is_path=is_path)[:60]
        if "$(" not in word and "`" not in word and not word.startswith("%")
    ]
    found = [_word_target(word, parsed, command, is_path=is_path) for word in words]
    found += [
        path_target(word, command.base) for word in (*command.writes, *command.reads) if word != "/dev/null"
    ]
    found += _option_targets(command, parsed)
    if (
        command.base
        and parsed.program not in shell.quiet
        and not any(t and t.kind is TargetKind.PATH for t in found)
    ):
        found.append(path_target(command.base))
    if command.host:
        found.append(host_target(command.host))
    return unique(target for target in found if target is not None)


def _target_words(parsed: _Parsed, *, is_path: bool) -> list[str]:
    runs_scripts = lookup(action_rules().shell.interpreters, parsed.program) is not None
    return [*parsed.bare[0 if is_path or runs_scripts else parsed.depth :]]


def _word_target(word: str, parsed: _Parsed, command: Command, *, is_path: bool) -> Target | None:
    table = parsed.table
    if table.names and (table.names == ["*"] or (parsed.bare and parsed.bare[0] in table.names)):
        if re.match(r"[a-z]+://|[/~]|\.{1,2}(?:/|\Z)|[A-Za-z]:\\", word):
            return word_target(word, command.base)
        plain = re.fullmatch(r"[\w][\w./:@+-]{1,120}", word)
        if not plain or word in action_rules().shell.common_names or word.isdigit():
            return None
        return table_target(word) if table.kind == "table" else id_target(word)
    return word_target(re.sub(r"\A[a-z]+=(?=.)", "", word), command.base, is_path=is_path)


def _option_targets(command: Command, parsed: _Parsed) -> Iterator[Target]:
    """Yield what the values of options name, but for those that may be secret."""
    shell = action_rules().shell
    words = command.words
    for index, word in enumerate(words[1:60], start=1):
        option, given, value = word.partition("=")
        if not word.startswith("-") or shell.secret_options.match(option):
            continue
        if not given:
            value = words[index + 1] if option in parsed.table.values and index + 1 < len(words) else ""
        if value and option in shell.host_options:
            yield host_target(value)
        elif value and "$(" not in value and (target := word_target(value, command.base)):
            yield target


def _command_dangers(parsed: _Parsed, command: Command) -> Iterator[str]:
    shell = action_rules().shell
    if parsed.options & set(shell.harmless_flags):
        return
    line = " ".join(parsed.bare)[:2_000]
    program = parsed.program
    rules = command_rules()
    for rule in rules.get(program) or rules.get(program.partition(".")[0]) or ():
        if rule.flags and not parsed.options & set(rule.flags):
            continue
        if parsed.options & set(rule.unless) or (rule.line and not rule.line.search(line)):
            continue
        if (rule.needs_args and not (parsed.bare or command.sources)) or only_temporary(
            _places(rule, parsed, command)
        ):
            continue
        yield rule.id
    written = [path_target(word, command.base) for word in command.writes]
    if written and not only_temporary(written):
        for rule in rules.get(">", ()):
            if rule.line and rule.line.search(f"{_operation(parsed)} > {written[0].value}"):
                yield rule.id


def _places(rule: CommandRule, parsed: _Parsed, command: Command) -> list[Target]:
    """Return the places that a rule looks at, to see whether all of them are temporary."""
    base = [path_target(command.base)] if command.base else []
    words: Iterable[str] = parsed.bare or command.sources
    if rule.places == "none":
        return []
    if rule.places == "base":
        return base
    if rule.places == "last":
        words = parsed.bare[-1:]
    values = (word.partition("=")[2] if re.match(r"[a-z]+=", word) else word for word in words)
    return [target for word in values if (target := word_target(word, command.base, is_path=True))]


# ---------------------------------------------------------------------- requests


def _request_of(parsed: _Parsed, command: Command) -> Step | None:
    """Read curl and its like as the request that they send."""
    rules = action_rules()
    methods = rules.shell.requesters.get(parsed.program)
    if methods is None:
        return None
    words = command.words
    method = next(
        (
            words[i + 1]
            for i, word in enumerate(words[:-1])
            if word in ("-X", "--request", "--method", "-Method", "-method")
        ),
        "",
    )
    method = method or next(
        (m[1] for word in words if (m := re.fullmatch(r"(?:-X|--request=|--method=)([A-Za-z]+)", word))), ""
    )
    if not method:
        verbs = [word for word in parsed.bare[:1] if re.fullmatch(r"GET|POST|PUT|PATCH|DELETE|HEAD", word)]
        method = verbs[0] if verbs else "POST" if parsed.options & set(methods) else "GET"
    url = next((word for word in parsed.bare if "://" in word), "") or next(
        (w for w in words[1:] if "://" in w), ""
    )
    step = request_step(method, url)
    targets = unique((*step.targets, *_command_targets(parsed, command)))
    return Step(operation=f"{parsed.program} {method.upper()}", targets=targets, dangers=step.dangers)


def request_step(method: str, url: str) -> Step:
    """Return what a request does.

    Args:
        method: HTTP method, in any case.
        url: URL or path of the resource.
    """
    method = method.upper()[:10]
    path = re.sub(r"\A[a-z]+://[^/?#]*", "", url[:2_000], flags=re.IGNORECASE).partition("?")[0]
    dangers = [
        rule.id for rule in action_rules().http if method in rule.methods and rule.resource.search(path)
    ]
    target = word_target(url) if "://" in url else id_target(url) if url else None
    route = _ROUTE.sub("/{}", path) if "://" not in url else ""
    return Step(f"{method} {route}".strip()[:120], (target,) if target else (), tuple(dangers))


def read_request(text: str) -> Step | None:
    """Return what a text such as `POST /v1/orders` does; None where it is no request."""
    match = _REQUEST.match(text[:4_000])
    return request_step(match[1], match[2]) if match and re.match(r"/|https?:", match[2]) else None


# ---------------------------------------------------------------------- SQL and code


def sql_steps(text: str) -> Iterator[Step]:
    """Yield what a SQL text does, statement by statement."""
    rules = action_rules().sql
    for statement in read_statements(text):
        targets = unique(table_target(name) for name in statement.tables)
        dangers = tuple(rule.id for rule in rules if set(rule.kinds) & set(statement.kinds))
        yield Step(
            statement.operation,
            targets,
            () if only_temporary(targets) else dangers,
            quiet=statement.operation in ("SET", "USE", "BEGIN", "START", "COMMIT"),
        )


def code_steps(text: str, depth: int = 0) -> Iterator[Step]:
    """Yield what a piece of Python, JavaScript, Ruby, Perl or PHP does, as far as single calls tell.

    Args:
        text: Source text; only its first 20,000 characters are read.
        depth: How many programs it is nested in.
    """
    literals: list[str] = []

    def note(match: re.Match[str]) -> str:
        if match["comment"]:
            return ""
        literals.append(match["text"])
        return f'"{len(literals) - 1}"'

    bare = _LITERAL.sub(note, text[:_LONGEST_CODE])
    targets = unique(t for literal in literals[:60] if (t := word_target(literal)))
    dangers: list[str] = []
    inner: list[Step] = []
    for rule in action_rules().code:
        for match in list(rule.pattern.finditer(bare))[:20]:
            argument = re.match(r"[^;\n]*", bare[match.end() :])
            given = [
                literals[int(number)] for number in re.findall(r'"(\d+)"', argument[0] if argument else "")
            ]
            if rule.opens and depth < _MAX_CODE_DEPTH and given:
                code = " ".join(given) if rule.opens == "shell" else given[0]
                inner += shell_steps(code, depth=depth + 1) if rule.opens == "shell" else sql_steps(code)
            elif not rule.opens:
                aimed = [t for literal in given if (t := word_target(literal, is_path=True))] or list(targets)
                if not only_temporary(aimed):
                    dangers.append(rule.id)
    yield from inner
    yield Step("", targets, tuple(dict.fromkeys(dangers)), quiet=bool(inner) and not dangers)


# ---------------------------------------------------------------------- arguments and words


def name_words(name: str) -> str:
    """Return the words of a name, lower case, joined by `_`: `deleteUser` reads `delete_user`."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name[:200])
    return re.sub(r"[^\w]+|_+", "_", name).strip("_").casefold()


def last_name(tool: str) -> str:
    """Return the words of the last part of a tool's name: `mcp:git.git_push` reads `git_push`."""
    return name_words(re.split(r"[.:/]|__", tool[:200].rstrip(".:/_"))[-1])


def call_step(tool: str, arguments: Mapping[str, Any], text: str) -> Step:
    """Return what a call with arguments does, by the tool's name, its verb argument and its targets.

    Args:
        tool: Name of the tool.
        arguments: Its arguments; empty where the input is text.
        text: The input as text.
    """
    rules = action_rules()
    verb = next(
        (
            value
            for key in rules.tools.verbs
            if isinstance(value := arguments.get(key), str) and len(value) < 60
        ),
        "",
    )
    if not arguments and _ONE_WORD.fullmatch(text):
        verb = text
    targets = unique((*_argument_targets(arguments), *(() if arguments else read_targets(text))))
    names = [last_name(tool), name_words(tool)]
    if verb:
        names = [f"{name_words(verb)}_{names[0]}", name_words(verb), *names]
    operation = f"{tool} {verb}".strip()[:120]
    if rules.tools.readers.search(name_words(verb)) or (not verb and rules.tools.readers.search(names[0])):
        return Step(operation, targets)
    paths = [target for target in targets if target.kind is TargetKind.PATH]
    harmless = _is_dry(arguments) or only_temporary(paths)
    dangers = []
    for rule in rules.tool:
        if harmless or (rule.places and not paths) or (rule.text and not rule.text.search(text[:4_000])):
            continue
        if any(rule.name.search(name) and not (rule.unless and rule.unless.search(name)) for name in names):
            dangers.append(rule.id)
    return Step(operation, targets, tuple(dangers))


def _is_dry(arguments: Mapping[str, Any]) -> bool:
    return any(arguments.get(key) is True for key in ("dry_run", "dryRun", "dryrun", "simulate", "preview"))


def _argument_targets(arguments: Mapping[str, Any]) -> Iterator[Target]:
    """Yield the targets that arguments name: by the argument's name first, then by the look of its value."""
    tools = action_rules().tools
    pending: list[tuple[str, Any]] = list(arguments.items())
    for _ in range(200):
        if not pending:
            return
        key, value = pending.pop(0)
        if isinstance(value, Mapping):
            pending = [*((str(k), v) for k, v in list(value.items())[:40]), *pending]
        elif isinstance(value, (list, tuple)):
            pending = [*((key, item) for item in value[:20]), *pending]
        elif isinstance(value, (str, int)) and not isinstance(value, bool) and value not in ("", 0):
            yield from _argument_target(
                name_words(str(key)), str(value), prose=bool(tools.text_keys.search(name_words(str(key))))
            )


def _argument_target(key: str, value: str, *, prose: bool) -> Iterator[Target]:
    if prose or len(value) > 300 or "\n" in value:
        return
    if looks_like_sql(value):
        yield from (target for step in sql_steps(value) for target in step.targets)
        return
    match = action_rules().tools.target_keys.search(key)
    kind = match.lastgroup if match else None
    if kind == "path":
        target = word_target(value, is_path=True)
    elif kind == "table":
        target = table_target(value)
    else:
        target = word_target(value) or (id_target(value) if kind == "id" else None)
    if target is not None:
        yield target


def words_step(tool: str, text: str) -> Step | None:
    """Return what an order in plain words does; None where the text is no order that a rule knows.

    Args:
        tool: Name of the tool; one that only looks or speaks takes no orders.
        text: The input.
    """
    rules = action_rules()
    if rules.tools.readers.search(last_name(tool)):
        return None
    line = " ".join(text[:400].split())
    targets = read_targets(text)
    paths = [target for target in targets if target.kind is TargetKind.PATH]
    for rule in rules.words:
        match = rule.pattern.search(line)
        if match is None or (rule.unless and rule.unless.search(line)):
            continue
        dangerous = not only_temporary(paths) and (bool(paths) or not rule.places)
        return Step(f"{tool} {match[rule.verb]}"[:120].casefold(), targets, (rule.id,) if dangerous else ())
    return None
