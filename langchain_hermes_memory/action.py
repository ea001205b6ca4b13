"""What a call tried to do: its operation and targets, its dangers, and a key under which equal actions meet.

The key covers the tool and everything in its input, in a normal form: whitespace, quoting, the order of
arguments and parts that differ from run to run (timestamps, ids, temporary names) do not count; every other
word, number and option does.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from langchain_hermes_memory.action_rules import action_rules, command_rules
from langchain_hermes_memory.record import Action
from langchain_hermes_memory.shell import lookup, program_of, tokens
from langchain_hermes_memory.sql import looks_like_sql
from langchain_hermes_memory.steps import (
    Step,
    call_step,
    code_steps,
    last_name,
    name_words,
    read_request,
    request_step,
    shell_steps,
    sql_steps,
    words_step,
)
from langchain_hermes_memory.targets import TargetRelation, read_targets, target_relation, unique

__all__ = ["TargetRelation", "command_text", "read_action", "read_targets", "target_relation"]

_LONGEST_READ = 8_000
"""Greatest number of characters of an input that are parsed; its head says what it does."""
_LONGEST_KEY = 50_000
"""Greatest number of characters that are normalised for the key; what follows counts as it is."""
_DEEPEST = 30
_GAP = "\x1f"
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def command_text(tool_input: str | Mapping[str, Any]) -> str:
    """Return an input as one text: the command, statement or code in it, else the arguments as JSON.

    Args:
        tool_input: What a tool was called with.
    """
    given = _unpack(tool_input)
    return given.text if given.carrier or not given.arguments else _json(given.arguments)


def purpose_text(tool_input: str | Mapping[str, Any]) -> str:
    """Return what an agent says a call is for, where the tool asks it to; else an empty string."""
    if not isinstance(tool_input, Mapping) or not _unpack(tool_input).carrier:
        return ""
    told = (tool_input.get(key) for key in action_rules().tools.purposes)
    return next((text for text in told if isinstance(text, str) and text.strip()), "")


def read_action(tool: str, tool_input: str | Mapping[str, Any]) -> Action:
    """Return what a call tried to do. Never raises; equal inputs give equal actions.

    Args:
        tool: Name of the tool, or of a program whose arguments the input holds.
        tool_input: A command line, SQL, JSON, a dict of arguments, code or plain words.
    """
    given = _unpack(tool_input)
    form, text = _form(tool, given)
    try:
        steps = list(_steps(tool, form, text, given))
    except RecursionError:
        steps = []
    main = next((step for step in steps if step.dangers), None) or next(
        (step for step in steps if not step.quiet), None
    )
    main = main or (steps[0] if steps else Step(""))
    operation = main.operation or tool
    dangers = tuple(dict.fromkeys(rule for step in steps for rule in step.dangers))
    return Action(
        operation=operation,
        targets=unique(target for step in (main, *steps) for target in step.targets),
        key=_digest(tool, *_normal(form, text, given, precious=bool(dangers))),
        family=_digest(tool, operation),
        dangerous=bool(dangers),
        dangers=dangers,
    )


# ---------------------------------------------------------------------- what was given


@dataclass(frozen=True, slots=True)
class _Given:
    """An input, unpacked."""

    text: str
    """What the carrier holds; the input itself where it is text."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """The arguments beside the carrier."""
    carrier: str = ""
    """The argument that holds the text, such as `command`; empty where there is none."""


def _unpack(tool_input: str | Mapping[str, Any]) -> _Given:
    if isinstance(tool_input, Mapping):
        return _carried({_readable(key): _tidy(value, 0) for key, value in tool_input.items()})
    text = _readable(tool_input)
    if text[:200].lstrip()[:1] == "{" and len(text) <= _LONGEST_KEY:
        try:
            loaded = json.loads(text)
        except (ValueError, RecursionError):
            return _Given(text)
        if isinstance(loaded, dict):
            return _carried({key: _tidy(value, 0) for key, value in loaded.items()})
    return _Given(text)


def _readable(value: object) -> str:
    """Return a value as text that can be stored, the same in every process."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else re.sub(r" at 0x[0-9a-fA-F]+", "", str(value))
    return _SURROGATE.sub("\ufffd", text)


def _tidy(value: Any, depth: int) -> Any:
    """Return a value with nothing in it but JSON's types, cut at a depth that no real argument reaches."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if depth >= _DEEPEST:
        return (
            f"<{type(value).__name__}>"
            if isinstance(value, (Mapping, list, tuple, set))
            else _readable(value)
        )
    if isinstance(value, Mapping):
        return {_readable(key): _tidy(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_tidy(item, depth + 1) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(_readable(item) for item in value)
    return _readable(value)


def _carried(arguments: dict[str, Any]) -> _Given:
    tools = action_rules().tools
    for key in tools.carriers:
        value = arguments.get(key)
        if isinstance(value, (list, tuple)) and value and all(isinstance(item, str) for item in value):
            value = shlex.join(value)
        if isinstance(value, str):
            rest = {k: v for k, v in arguments.items() if k != key and k not in tools.noise}
            return _Given(value, rest, key)
    return _Given(_json(arguments), arguments)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _form(tool: str, given: _Given) -> tuple[str, str]:
    """Return how an input is to be read, and the text of it.

    The forms: shell, windows, sql, code, request, arguments, words.
    """
    text = given.text.strip()
    if given.arguments and not given.carrier:
        return "arguments", text
    tools = action_rules().tools
    names = name_words(tool)
    if looks_like_sql(text, surely=not (tools.sql.search(names) or given.carrier == "sql")):
        return "sql", text
    if read_request(text) or (tools.http.search(names) and "://" in text[:12]):
        return "request", text
    program = tools.programs.get(names) or program_of(tool)
    if _is_program(program) and not tools.shell.search(program):
        first = text.partition(" ")[0]
        complete = _is_program(program_of(first)) and not _is_verb(program, first)
        return (
            "windows" if tools.windows.search(names) else "shell"
        ), text if complete else f"{program} {text}"
    return _form_by_name(tool, given, text), text


def _form_by_name(tool: str, given: _Given, text: str) -> str:
    tools = action_rules().tools
    names = name_words(tool)
    if given.carrier in ("code", "python_code", "script_code") or tools.code.search(names):
        return "code"
    if tools.windows.search(names):
        return "windows"
    if given.carrier in ("command", "cmd", "commands") or tools.shell.search(names):
        return "shell"
    return "shell" if not tools.readers.search(last_name(tool)) and _starts_program(text) else "words"


def _is_program(name: str) -> bool:
    rules = action_rules()
    known = name in rules.programs or name in command_rules() or bool(lookup(rules.shell.interpreters, name))
    return known or name in rules.shell.requesters or name in rules.shell.remotes


def _starts_program(text: str) -> bool:
    """Whether a text given to some tool opens like a command line."""
    first, _, rest = text.partition(" ")
    if not first.isascii() or first != first.lower() or not _is_program(program_of(first)):
        return False
    return first not in action_rules().shell.english or bool(re.search(r"(?:^|\s)-|[/~]", rest))


def _is_verb(program: str, word: str) -> bool:
    """Whether a word that is also a program's name is a subcommand here: `git rm`, `docker find`."""
    return (
        program != program_of(word)
        and action_rules().programs.get(program) is not None
        and bool(action_rules().programs[program].depth)
    )


def _steps(tool: str, form: str, text: str, given: _Given) -> Iterator[Step]:
    text = text[:_LONGEST_READ]
    if form in ("shell", "windows"):
        yield from shell_steps(text, windows=form == "windows")
    elif form == "sql":
        yield from sql_steps(text)
    elif form == "code":
        yield from code_steps(text)
    elif form == "request":
        yield read_request(text) or request_step(_method(tool), text.split()[0])
    elif form == "words":
        yield words_step(tool, text) or call_step(tool, {}, text)
    if given.arguments or form == "words":
        yield from _call(tool, text, given.arguments)


def _call(tool: str, text: str, arguments: Mapping[str, Any]) -> Iterator[Step]:
    """Read the arguments of a call: a request, code and statements among them, and the call itself."""
    method, url = (
        arguments.get("method"),
        arguments.get("url") or arguments.get("path") or arguments.get("endpoint"),
    )
    step = call_step(tool, arguments, text)
    if isinstance(url, str) and (
        isinstance(method, str) or action_rules().tools.http.search(name_words(tool))
    ):
        sent = any(arguments.get(key) for key in ("body", "data", "json", "payload"))
        request = request_step(method if isinstance(method, str) else "POST" if sent else _method(tool), url)
        others = tuple(target for target in step.targets if target.value != url)
        step = Step(step.operation, others, step.dangers)
        yield Step(request.operation, unique((*request.targets, *others)), request.dangers)
    yield step
    for value in list(arguments.values())[:40]:
        if isinstance(value, str) and looks_like_sql(value[:_LONGEST_READ]):
            yield from sql_steps(value[:_LONGEST_READ])


def _method(tool: str) -> str:
    found = re.search(r"get|head|post|put|patch|delete", name_words(tool))
    return found[0].upper() if found else "GET"


# ---------------------------------------------------------------------- the key


def _normal(form: str, text: str, given: _Given, *, precious: bool) -> tuple[str, ...]:
    """Return the input in normal form. Where `precious`, ids and hashes count: they say what is at stake."""
    kinds = {"time", "temporary", "process"} if precious else {"time", "temporary", "process", "name"}
    if form == "arguments":
        return (_json(_masked(dict(given.arguments), "", kinds)),)
    head, tail = text[:_LONGEST_KEY], text[_LONGEST_KEY:]
    if form in ("shell", "windows"):
        flat, _ = tokens(head, windows=form == "windows")
        words = [(";" if token.operator and token.text == "\n" else token.text) for token in flat]
        while words and words[-1] == ";":
            words.pop()
        head = _GAP.join(words)
    else:
        head = " ".join(head.split())
    rest = _json(_masked(dict(given.arguments), "", kinds)) if given.arguments else ""
    return _mask(head, kinds), tail, rest


def _masked(value: Any, key: str, kinds: set[str]) -> Any:
    """Return arguments with their volatile parts masked, by what their names say of the values."""
    masks = action_rules().masks
    if isinstance(value, dict):
        return {
            k: "<volatile>" if k in masks.volatile_keys else _masked(v, k, kinds) for k, v in value.items()
        }
    if isinstance(value, list):
        return [_masked(item, key, kinds) for item in value]
    if isinstance(value, (bool, float)) or value is None:
        return value
    name = name_words(key)
    if masks.naming_keys.search(name):
        kinds = kinds - {"name", "time"}
    elif masks.scheduling_keys.search(name):
        kinds = kinds - {"time"}
    text = str(value)
    head = text[:_LONGEST_KEY]
    if not action_rules().tools.text_keys.search(name):  # prose and code mean their indentation
        head = head.strip()
    masked = _mask(head, kinds) + text[_LONGEST_KEY:]
    return value if isinstance(value, int) and masked == text else masked


def _mask(text: str, kinds: set[str]) -> str:
    for mask in action_rules().masks.rule:
        if mask.kind in kinds:
            kept = r"\g<keep>" if "keep" in mask.pattern.groupindex else ""
            text = mask.pattern.sub(f"{kept}<{mask.id}>", text)
    return text


def _digest(*parts: str) -> str:
    return hashlib.sha256("\x00".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]
