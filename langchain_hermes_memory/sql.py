"""Reads a SQL text into statements: what each does and to which tables, by tokens rather than words."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

_VERBS = (
    "ALTER|ANALYZE|BEGIN|CALL|COMMIT|COPY|CREATE|DELETE|DESC|DESCRIBE|DROP|EXEC|EXECUTE|EXPLAIN|GRANT|INSERT|KILL|LOAD|LOCK|MERGE|"
    "OPTIMIZE|PRAGMA|PURGE|REFRESH|REINDEX|RENAME|REPLACE|RESET|REVOKE|ROLLBACK|SELECT|SET|SHOW|START|TRUNCATE|UPDATE|USE|VACUUM|WITH"
)
_LEAD = r"\A\s*(?:(?:--[^\n]*\n|/\*[^*]*\*/)\s*)*\(?\s*"
_BEGINS = re.compile(rf"{_LEAD}(?:{_VERBS})\b(?!\s*[:=])", re.IGNORECASE)
_SURELY = re.compile(
    rf"{_LEAD}(?:SELECT\b.+\bFROM\b|SELECT\s+[\d'*]|INSERT\s+(?:OR\s+\w+\s+)?INTO\b|UPDATE\s+\S+\s+SET\b|DELETE\s+FROM\b|"
    r"(?:DROP|CREATE|ALTER)\s+(?:TEMP(?:ORARY)?\s+|OR\s+REPLACE\s+)?"
    r"(?:TABLE|DATABASE|SCHEMA|VIEW|INDEX|USER|ROLE|SEQUENCE|MATERIALIZED|TRIGGER|FUNCTION)\b|"
    r"TRUNCATE\s+(?:TABLE\s+)?[\w.\"`]+\s*;?\s*\Z|WITH\s+\w+\s+AS\b|MERGE\s+INTO\b)",
    re.IGNORECASE | re.DOTALL,
)
_WORDS = re.compile(
    r"--[^\n]*|/\*.*?(?:\*/|\Z)|(?P<string>'(?:[^']|'')*(?:'|\Z))|[\"`\[](?P<quoted>[^\"`\]]{1,128})[\"`\]]|(?P<word>\w+)|(?P<mark>[^\s\w])",
    re.DOTALL,
)
_ANALYSED = re.compile(
    r"(\A|;)\s*EXPLAIN\s+\(?\s*ANALY[SZ]E\b[^)(;]{0,40}?\)?\s+(?=(?:DELETE|UPDATE|INSERT|MERGE|WITH|SELECT)\b)",
    re.IGNORECASE,
)
"""`EXPLAIN ANALYZE` runs what it explains."""
_BEFORE_TABLE = {"FROM", "JOIN", "INTO", "UPDATE", "TABLE", "TRUNCATE", "DESCRIBE", "USING"}
_OBJECTS = {
    "TABLE",
    "DATABASE",
    "SCHEMA",
    "VIEW",
    "INDEX",
    "USER",
    "ROLE",
    "SEQUENCE",
    "TRIGGER",
    "FUNCTION",
    "PROCEDURE",
    "TABLESPACE",
    "TYPE",
    "EXTENSION",
    "POLICY",
    "PUBLICATION",
    "SUBSCRIPTION",
    "KEYSPACE",
    "COLLECTION",
    "OWNED",
    "LOGIN",
    "DOMAIN",
}
_BETWEEN = {
    "IF",
    "NOT",
    "EXISTS",
    "ONLY",
    "IGNORE",
    "LOW_PRIORITY",
    "QUICK",
    "CONCURRENTLY",
    "OVERWRITE",
    "TABLE",
    "BY",
}
_NO_TABLE = {
    "SELECT",
    "LATERAL",
    "UNNEST",
    "VALUES",
    "SET",
    "WHERE",
    "ON",
    "DUAL",
    "OUTFILE",
    "STDIN",
    "STDOUT",
}
_LONGEST = 8_000


@dataclass(frozen=True, slots=True)
class Statement:
    """One SQL statement."""

    operation: str
    """Its verb, with the kind of object where it has one: `DELETE`, `DROP TABLE`."""
    kinds: tuple[str, ...]
    """What it does that may be dangerous: delete, drop, truncate, update_all, drop_part, overwrite, purge."""
    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    bare: bool
    """Whether it is a word of the language or a plain name, rather than a string or a quoted name."""
    name: bool

    @property
    def word(self) -> str:
        return self.text.upper() if self.bare else ""


def looks_like_sql(text: str, *, surely: bool = True) -> bool:
    """Whether a text is SQL: by its first words, or, where SQL is expected anyway, by its verb alone."""
    return bool((_SURELY if surely else _BEGINS).match(text[:_LONGEST]))


def read_statements(text: str) -> list[Statement]:
    """Return the statements of a SQL text in order; at most 50.

    A script that ends in `ROLLBACK` does nothing dangerous, nor does `EXPLAIN` without `ANALYZE`.

    Args:
        text: SQL of any dialect, perhaps malformed; only its first 8,000 characters are read.
    """
    run = _ANALYSED.sub(r"\1 ", text[:_LONGEST])
    found = [_statement(part) for part in _split(_tokens(run))][:50]
    if found and found[-1].operation == "ROLLBACK":
        return [Statement(item.operation, (), item.tables) for item in found]
    return found


def _tokens(text: str) -> list[_Token]:
    import sqlglot  # noqa: PLC0415 - takes 150 ms to load, and most inputs are no SQL
    from sqlglot.errors import SqlglotError  # noqa: PLC0415
    from sqlglot.tokenizer_core import TokenType  # noqa: PLC0415

    dialect = "mysql" if "`" in text else "postgres" if "$$" in text else None
    try:
        raw = sqlglot.tokenize(text, read=dialect)
    except SqlglotError:
        return list(_plain_tokens(text))
    strings = {TokenType.STRING, TokenType.NATIONAL_STRING, TokenType.RAW_STRING, TokenType.HEREDOC_STRING}
    quoted = TokenType.IDENTIFIER
    return [
        _Token(
            token.text,
            bare=token.token_type not in strings and token.token_type is not quoted,
            name=token.token_type not in strings and bool(re.match(r"\w", token.text)),
        )
        for token in raw
    ]


def _plain_tokens(text: str) -> Iterator[_Token]:
    """Cut by words alone what the tokenizer refuses: an open quote, a foreign dialect."""
    for match in _WORDS.finditer(text):
        if match["word"] or match["mark"]:
            yield _Token(match.group(), bare=True, name=bool(match["word"]))
        elif match["quoted"]:
            yield _Token(match["quoted"], bare=False, name=True)
        elif match["string"]:
            yield _Token(match["string"], bare=False, name=False)


def _split(items: list[_Token]) -> Iterator[list[_Token]]:
    part: list[_Token] = []
    for token in items:
        if token.bare and token.text == ";":
            if part:
                yield part
            part = []
        elif part or token.text != "(":
            part.append(token)
    if part:
        yield part


def _statement(part: list[_Token]) -> Statement:
    words = [token.word for token in part]
    verb = words[0]
    if verb in ("EXPLAIN", "DESCRIBE", "DESC"):
        return Statement(verb, (), _tables(part))
    if verb == "WITH":
        verb = next((word for word in words if word in ("DELETE", "UPDATE", "INSERT", "MERGE")), "SELECT")
    operation = verb or part[0].text[:20]
    if verb in ("DROP", "CREATE", "ALTER"):
        object_type = next((word for word in words[1:6] if word in _OBJECTS), "")
        operation = f"{verb} {object_type}".strip()
    return Statement(operation, tuple(dict.fromkeys(_kinds(verb, words))), _tables(part))


def _kinds(verb: str, words: list[str]) -> Iterator[str]:
    if verb == "DELETE" or any(pair == ("DELETE", "FROM") for pair in itertools.pairwise(words)):
        yield "delete"
    if verb == "DROP" and not {"TEMPORARY", "TEMP"} & set(words[:3]):
        yield "drop"
    if verb == "TRUNCATE":
        yield "truncate"
    if verb == "UPDATE" and "SET" in words and not _narrowed(words):
        yield "update_all"
    if verb == "ALTER" and "DROP" in words:
        what = words[words.index("DROP") + 1 :][:1]
        if what and what[0] not in (
            "CONSTRAINT",
            "INDEX",
            "DEFAULT",
            "NOT",
            "KEY",
            "PRIMARY",
            "FOREIGN",
            "CHECK",
            "IDENTITY",
        ):
            yield "drop_part"
    if (verb == "INSERT" and "OVERWRITE" in words[:3]) or (
        verb == "CREATE" and words[1:4] == ["OR", "REPLACE", "TABLE"]
    ):
        yield "overwrite"
    if verb in ("PURGE", "RESET") and {"BINARY", "MASTER", "RECYCLEBIN", "TABLE"} & set(words[1:3]):
        yield "purge"


def _narrowed(words: list[str]) -> bool:
    """Whether a condition picks rows out: there is a WHERE, and it is not always true."""
    if "WHERE" not in words:
        return False
    condition = words[words.index("WHERE") + 1 :]
    return condition not in (["TRUE"], ["1"], ["1", "=", "1"])


def _tables(part: list[_Token]) -> tuple[str, ...]:
    names: list[str] = []
    words = [token.word for token in part]
    common = {
        part[i].text.casefold()
        for i in range(len(part) - 2)
        if words[i + 1] == "AS" and words[i + 2] == "(" and words[0] == "WITH"
    }
    ddl = words[0] in ("DROP", "ALTER", "CREATE", "REFRESH")
    for index, word in enumerate(words):
        starts = word in _BEFORE_TABLE or (ddl and index < 6 and word in _OBJECTS)
        starts = starts or (ddl and word == "ON" and "INDEX" in words[:4])
        if not starts or (word == "UPDATE" and index and words[index - 1] in ("FOR", "ON", "KEY")):
            continue
        position = index + 1
        while position < len(part) and words[position] in _BETWEEN:
            position += 1
        name, end = _name(part, position)
        if (
            name
            and name.casefold() not in common
            and not (word in ("FROM", "JOIN", "USING") and end < len(part) and part[end].text == "(")
        ):
            names.append(name)
    return tuple(dict.fromkeys(names))[:20]


def _name(part: list[_Token], position: int) -> tuple[str, int]:
    """Read a possibly qualified name; return it and where it ends."""
    pieces: list[str] = []
    while position < len(part) and part[position].name and part[position].word not in _NO_TABLE:
        pieces.append(part[position].text)
        position += 1
        if position < len(part) and part[position].text == ".":
            position += 1
            continue
        break
    return ".".join(pieces)[:200], position
