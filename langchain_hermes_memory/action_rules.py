"""The shape of `rules/actions.toml`: what programs, statements, requests and tools do, and their dangers."""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from langchain_hermes_memory._rules import load_rules
from langchain_hermes_memory.record import TargetClass


class Strict(BaseModel):
    """A table in which an unknown key is a mistake."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Rule(Strict):
    """A rule with samples of what it must and must not match, as inputs of the tool `sample_tool`."""

    id: str
    yes: list[str] = Field(min_length=1)
    no: list[str] = Field(min_length=1)


class Program(Strict):
    """How the arguments of a program are to be read."""

    depth: int = 0
    """How many words after the name belong to the operation: 1 for `git push`, 2 for `aws s3 rm`."""
    groups: list[str] = []
    """Subcommands that take one of their own: `docker image rm`."""
    values: list[str] = []
    """Options that take the next word, wherever they stand."""
    flags: list[str] = []
    """Options that belong to the operation: `rm -r`."""
    names: list[str] = []
    """Subcommands whose arguments are names rather than paths; `*` for all."""
    kind: Literal["id", "table"] = "id"
    """What those names are names of."""


class Wrapper(Strict):
    """A prefix such as `sudo` that runs the rest of the line."""

    values: list[str] = []
    arguments: int = 0
    """How many words of its own it takes before the command: 1 for `timeout 5 make`."""
    piped: bool = False
    """Whether it appends what it reads from its standard input: `xargs`."""


class Remote(Strict):
    """A program that runs a command line somewhere else."""

    verbs: list[str] = []
    """Subcommands that do so; empty where the program does nothing else."""
    values: list[str] = []
    arguments: int = 1
    host: bool = False
    joined: bool = False
    """Whether its words are one command line for another shell (`ssh`), not a program with arguments."""


class Interpreter(Strict):
    """A program that is handed code."""

    language: Literal["shell", "sql", "code"]
    options: list[str] = []
    clustered: str = ""
    """Pattern of bundled options that end in the one that takes the code: `-lc`."""
    argument: int = 0
    """Which bare argument is the code, counted from 1; 0 for none."""
    rest: bool = False
    """Whether all words after the option are the code."""
    stdin: bool = False
    windows: bool = False


class Shell(Strict):
    """Words of command lines."""

    reserved: list[str]
    printers: list[str]
    changers: list[str]
    quiet: list[str]
    """Helpers that are not what a command line is about."""
    path_programs: list[str]
    """Programs whose every bare argument is a path."""
    requesters: dict[str, list[str]]
    """Programs that send HTTP requests, with the options that make a request a POST."""
    windows_programs: list[str]
    """Programs whose options begin with a slash."""
    secret_options: re.Pattern[str]
    """Options whose value is nobody's business."""
    host_options: list[str]
    common_names: list[str]
    """Names that tell no two targets apart."""
    english: list[str]
    """Programs whose names are also plain words: a text that begins with one need not be a command line."""
    harmless_flags: list[str]
    wrappers: dict[str, Wrapper]
    remotes: dict[str, Remote]
    interpreters: dict[str, Interpreter]


class Tools(Strict):
    """What the names of tools and arguments say; words of a name are joined by `_`, lower case."""

    shell: re.Pattern[str]
    windows: re.Pattern[str]
    sql: re.Pattern[str]
    code: re.Pattern[str]
    http: re.Pattern[str]
    programs: dict[str, str]
    """Tools that are called otherwise than the program whose arguments they take."""
    readers: re.Pattern[str]
    """Tools that only look or speak: no word in their input is an order."""
    carriers: list[str]
    """Arguments that hold a command line, a statement or code, the first that is there."""
    purposes: list[str]
    """Of these, those that say what the call is for."""
    noise: list[str]
    """Arguments beside a carrier that change nothing about what is done."""
    verbs: list[str]
    """Arguments that name the operation."""
    target_keys: re.Pattern[str]
    """Arguments that name what the tool is aimed at."""
    text_keys: re.Pattern[str]
    """Arguments that hold prose."""


class Masks(Strict):
    """Parts of an input that differ from run to run and mean nothing."""

    volatile_keys: list[str]
    naming_keys: re.Pattern[str]
    """Arguments that name a thing: a uuid, hash or number there is the target."""
    scheduling_keys: re.Pattern[str]
    """Arguments that say when: a timestamp there is meant."""
    rule: list[Mask]


class Mask(Rule):
    """One kind of volatile part; samples are pairs that must or must not become equal, joined by ` ~ `."""

    kind: Literal["time", "name", "temporary", "process"]
    pattern: re.Pattern[str]


class PlaceRule(Rule):
    """A kind of place; samples are paths, hosts or tables."""

    target_class: TargetClass
    pattern: re.Pattern[str]


class NamedRule(Rule):
    """A kind of thing that free text can name; samples are texts."""

    kind: Literal["path", "url", "host", "table", "id"]
    pattern: re.Pattern[str]


class CommandRule(Rule):
    """A dangerous use of programs; samples are command lines."""

    programs: list[str]
    line: re.Pattern[str] | None = None
    """Searched in the arguments without options, joined by spaces."""
    flags: list[str] = []
    """Of these options one must be given."""
    unless: list[str] = []
    places: Literal["none", "args", "last", "base"] = "none"
    """Which of its places must not all be temporary."""
    needs_args: bool = False


class SqlRule(Rule):
    """A dangerous kind of statement; samples are statements."""

    kinds: list[str]


class HttpRule(Rule):
    """A dangerous request; samples are `METHOD url`."""

    methods: list[str]
    resource: re.Pattern[str]


class CodeRule(Rule):
    """A dangerous call in a program; samples are source texts.

    The pattern sees literals as `"0"`, `"1"`, ... and no comments.
    """

    pattern: re.Pattern[str]
    opens: Literal["", "shell", "sql"] = ""
    """Language of the first literal after the match: read in turn, instead of being dangerous by itself."""


class ToolRule(Rule):
    """A dangerous tool by its name (or by its verb argument before its name); samples are `tool | input`."""

    name: re.Pattern[str]
    unless: re.Pattern[str] | None = None
    text: re.Pattern[str] | None = None
    """Must be found in the input."""
    places: bool = False
    """Whether it must be aimed at a path that is not temporary."""


class WordsRule(Rule):
    """A dangerous order in plain words; samples are texts."""

    pattern: re.Pattern[str]
    unless: re.Pattern[str] | None = None
    places: bool = False
    verb: int = 1
    """Group of the pattern that is the operation."""


class ActionRules(Strict):
    """The whole of `rules/actions.toml`."""

    shell: Shell
    tools: Tools
    production: re.Pattern[str]
    programs: dict[str, Program]
    masks: Masks
    suffixes: re.Pattern[str]
    """Chinese words that may follow a path without a space."""
    place: list[PlaceRule]
    table_place: list[PlaceRule]
    named: list[NamedRule]
    command: list[CommandRule]
    sql: list[SqlRule]
    http: list[HttpRule]
    code: list[CodeRule]
    tool: list[ToolRule]
    words: list[WordsRule]


@functools.cache
def action_rules() -> ActionRules:
    """Return the packaged rules, read once.

    Raises:
        RuleError: The packaged file is malformed.
    """
    return load_rules("actions", ActionRules)


@functools.cache
def command_rules() -> Mapping[str, tuple[CommandRule, ...]]:
    """Return the command rules by program."""
    by_program: dict[str, list[CommandRule]] = defaultdict(list)
    for rule in action_rules().command:
        for program in rule.programs:
            by_program[program].append(rule)
    return {program: tuple(rules) for program, rules in by_program.items()}
