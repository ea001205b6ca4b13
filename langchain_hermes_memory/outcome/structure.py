"""Reads the fields by which structured results say how a call went."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from langchain_hermes_memory.outcome.call import Call
from langchain_hermes_memory.outcome.finding import Finding, by_code, by_http, evidence, words_of
from langchain_hermes_memory.outcome.model import OutcomeRules
from langchain_hermes_memory.outcome.values import parse
from langchain_hermes_memory.record import Status

Cause = Callable[[str], Finding | None]
"""Finds the cause that a text names."""

_MAX_ITEMS = 500
_MAX_DEPTH = 4


class Structure:
    """Reads one result; the top speaks for what is nested in it."""

    def __init__(self, rules: OutcomeRules, call: Call, cause: Cause) -> None:
        self._rules = rules
        self._fields = rules.fields
        self._call = call
        self._cause = cause

    def read(self, data: Any) -> Finding | None:
        """Return what the fields of a result say; None where they say nothing about the call."""
        if isinstance(data, list):
            return self._items(data, "[]")
        return self._table(data, 0) if isinstance(data, dict) else None

    def _table(self, data: Mapping[str, Any], depth: int) -> Finding | None:
        table = {_key(key): value for key, value in list(data.items())[:_MAX_ITEMS]}
        parts = self._parts(table)
        if parts is not None:
            return parts
        inner = self._inner(table, depth)
        if inner is not None and inner.status is not Status.SUCCESS:
            return inner.filled(self._outer(table))
        return self._failure(table) or inner or self._success(table)

    def _outer(self, table: Mapping[str, Any]) -> Finding | None:
        return self._coded(table, _flat(table, self._fields.messages))

    def _inner(self, table: Mapping[str, Any], depth: int) -> Finding | None:
        """Look into `data`, `result`, `response`, ... which may also be JSON in text."""
        if depth >= _MAX_DEPTH:
            return None
        good = None
        for key in self._fields.envelopes:
            value = table.get(key)
            if isinstance(value, str):
                value = parse(value)
            if isinstance(value, dict):
                found = self._table(value, depth + 1)
                if found is not None and found.status is not Status.SUCCESS:
                    return found
                good = good or found
        return good

    # --- failure of the whole

    def _failure(self, table: Mapping[str, Any]) -> Finding | None:
        for sign in (self._flag, self._error, self._exit, self._code, self._state, self._http):
            found = sign(table)
            if found is not None:
                return found
        return None

    def _flag(self, table: Mapping[str, Any]) -> Finding | None:
        for key, value in table.items():
            wrong = (key in self._fields.false_flags and _is_false(value)) or (
                key in self._fields.true_flags and _is_true(value)
            )
            if wrong:
                return self._because(table, f"{key}: {value}")
        return None

    def _error(self, table: Mapping[str, Any]) -> Finding | None:
        for key in self._fields.errors:
            value = table.get(key)
            if _empty(value) or (isinstance(value, (int, float)) and not isinstance(value, bool)):
                continue
            if isinstance(value, str) and value.strip().lower() in _NO_ERROR:
                continue
            return self._because(table, f"{key}: {_brief(value)}")
        return None

    def _exit(self, table: Mapping[str, Any]) -> Finding | None:
        for key in self._fields.exits:
            value = table.get(key)
            if isinstance(value, int) and not isinstance(value, bool) and value != 0:
                return self._because(table, f"{key}: {value}")
        return None

    def _code(self, table: Mapping[str, Any]) -> Finding | None:
        says = _flat(table, self._fields.messages)
        for key in (*self._fields.sure_codes, *self._fields.codes):
            value = table.get(key)
            if isinstance(value, bool) or not isinstance(value, (int, str)) or _empty(value):
                continue
            if str(value).strip().lower() in self._fields.good_codes:
                continue
            if key in self._fields.sure_codes or (says and self._means_failure(value, says)):
                return self._because(table, f"{key}: {value}")
        return None

    def _means_failure(self, code: str | int, says: str) -> bool:
        """Tell an error code from any other code: a number beside a message, or a name that is a cause."""
        number = str(code).strip().lstrip("-").isdigit()
        return number or self._cause(f"{words_of(str(code))}: {says}") is not None

    def _state(self, table: Mapping[str, Any]) -> Finding | None:
        for key in self._fields.states:
            value = table.get(key)
            if not isinstance(value, str):
                continue
            state = value.strip().lower()
            told = bool(_flat(table, self._fields.messages) or not _empty(table.get("errors")))
            alone = len(table) <= 2 and not self._call.is_lookup
            if state in self._fields.bad_states and (told or alone):
                return self._because(table, f"{key}: {value}")
            if state in self._fields.part_states and not self._call.is_payload:
                return self._because(table, f"{key}: {value}", Status.PARTIAL)
        return None

    def _http(self, table: Mapping[str, Any]) -> Finding | None:
        for key in self._fields.http:
            status = _number(table.get(key))
            if status is not None and 400 <= status <= 599:
                return self._because(table, f"{key}: {status}")
        return None

    # --- parts

    def _parts(self, table: Mapping[str, Any]) -> Finding | None:
        """Read results that are made of several items, some of which may have failed."""
        for key in self._fields.items:
            if isinstance(table.get(key), list):
                found = self._items(table[key], key)
                if found is not None:
                    return found
        bad, quote = self._failed_parts(table)
        if bad is None:
            return None
        good = self._done(table)
        if good is None and len(bad) if isinstance(bad, list) else not good:
            good = max(0, self._call.parts - (len(bad) if isinstance(bad, list) else bad))
        status = Status.PARTIAL if good else Status.FAILURE
        return self._because({"errors": bad} if isinstance(bad, list) else table, quote, status)

    def _failed_parts(self, table: Mapping[str, Any]) -> tuple[list[Any] | int | None, str]:
        for key in self._fields.failed_items:
            value = table.get(key)
            if isinstance(value, dict) and value:
                value = list(value.values())
            if isinstance(value, list) and value:
                return value, f"{key}: {_brief(value)}"
        for key in self._fields.bad_counts:
            value = _number(table.get(key))
            if value:
                return value, f"{key}: {value}"
        if isinstance(table.get("errors"), list) and table["errors"] and self._done(table):
            return table["errors"], f"errors: {_brief(table['errors'])}"
        return None, ""

    def _done(self, table: Mapping[str, Any]) -> int | None:
        """Return how many parts were done, where the result says so."""
        for key in self._fields.good_counts:
            value = _number(table.get(key))
            if value is not None:
                return value
        for key in self._fields.done_items:
            value = table.get(key)
            if isinstance(value, (list, dict)) and value:
                return len(value)
        return None

    def _items(self, items: list[Any], name: str) -> Finding | None:
        """Judge the items of a list each for itself, where each says how it went."""
        bad: list[Finding] = []
        good = 0
        for item in items[:_MAX_ITEMS]:
            if not isinstance(item, dict):
                continue
            found = self._item(item)
            if found is None:
                continue
            if found.status is Status.SUCCESS:
                good += 1
            else:
                bad.append(found)
        if not bad or (name == "[]" and self._call.is_payload):
            return None
        status = Status.PARTIAL if good else Status.FAILURE
        whole = evidence("structure", "items", f"{name}: {len(bad)} of {len(bad) + good} failed")
        return Finding(status=status, evidence=whole).filled(bad[0])

    def _item(self, item: Mapping[str, Any]) -> Finding | None:
        table = {_key(key): value for key, value in item.items()}
        if len(table) == 1 and isinstance(next(iter(table.values())), dict):
            table = {_key(key): value for key, value in next(iter(table.values())).items()}
        for sign in (self._flag, self._error, self._exit, self._http, self._code):
            found = sign(table)
            if found is not None:
                return found
        state = next(
            (str(table[key]).lower() for key in self._fields.states if isinstance(table.get(key), str)), ""
        )
        if state in self._fields.bad_states and _flat(table, self._fields.messages):
            return self._because(table, f"status: {state}")
        return self._success(table) or Finding(status=Status.SUCCESS)

    # --- success

    def _success(self, table: Mapping[str, Any]) -> Finding | None:
        for key, value in table.items():
            flagged = (key in self._fields.false_flags and _is_true(value)) or (
                key in self._fields.true_flags and value is False
            )
            coded = key in (*self._fields.sure_codes, *self._fields.exits) and value in (0, "0")
            state = key in self._fields.states and str(value).lower() in self._fields.good_states
            if flagged or coded or state:
                return Finding(status=Status.SUCCESS, evidence=evidence("structure", key, f"{key}: {value}"))
        return None

    # --- cause

    def _because(self, table: Mapping[str, Any], sign: str, status: Status = Status.FAILURE) -> Finding:
        """Return a failure with the cause that the codes and messages beside its sign name."""
        nested = " ".join(_flatten(table, self._fields.errors, 0))
        told = _flat(table, (*self._fields.messages, *self._fields.envelopes))
        says = " ".join(filter(None, (told, nested))).strip()
        found = Finding(
            status=status,
            detail=says or sign,
            evidence=evidence("structure", sign.split(":", maxsplit=1)[0], sign),
        )
        return found.filled(self._coded(table, says))

    def _coded(self, table: Mapping[str, Any], says: str) -> Finding | None:
        codes = list(_codes(table, (*self._fields.sure_codes, *self._fields.codes, *self._fields.http), 0))
        best: Finding | None = None
        for code in codes:
            best = best or by_code(self._rules, self._call.tool, code, "structure", code)
        names = " ".join(words_of(code) for code in codes if not code.lstrip("-").isdigit())
        best = best or self._cause(f"{says} {names}".strip())
        for code in codes:
            if best is None and code.isdigit():
                best = by_http(self._rules, int(code), "structure", code)
        own = next((code for code in codes if not 200 <= (_number(code) or 0) < 600), "")
        if own and best is not None:
            return Finding(status=best.status, code=own[:80]).filled(best)
        return best or (Finding(status=Status.FAILURE, code=own[:80]) if own else None)


_NO_ERROR = {"none", "null", "ok", "success", "no error", "no", "0", "false", "无"}


def _key(key: str) -> str:
    return re.sub(r"[_\-\s$@]", "", str(key)).lower()


def _is_false(value: Any) -> bool:
    return value is False or (
        isinstance(value, str) and value.strip().lower() in ("false", "fail", "failed", "no", "f")
    )


def _is_true(value: Any) -> bool:
    return value is True or (isinstance(value, str) and value.strip().lower() in ("true", "yes", "t"))


def _empty(value: Any) -> bool:
    return value is None or value is False or value in ("", [], {})


def _number(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,9}", value.strip()):
        return int(value)
    return None


def _brief(value: Any) -> str:
    return str(value)[:200]


def _flat(table: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    """Return the texts of some fields, joined."""
    return " ".join(
        str(table[key])[:2_000] for key in keys if isinstance(table.get(key), str) and table[key]
    ).strip()


def _flatten(value: Any, keys: tuple[str, ...], depth: int) -> Iterator[str]:
    """Yield every text in the error fields of a table, however deep."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, str):
        yield value[:2_000]
    elif isinstance(value, dict):
        chosen = value.items() if depth else ((k, v) for k, v in value.items() if _key(k) in keys)
        for key, item in list(chosen)[:20]:
            if depth and isinstance(item, str) and _key(key) not in _NO_MESSAGE:
                yield (
                    words_of(item)
                    if _key(key) in ("code", "type", "status", "reason") and " " not in item
                    else item[:2_000]
                )
            elif not isinstance(item, str) or not depth:
                yield from _flatten(item, keys, depth + 1)
    elif isinstance(value, list):
        for item in value[:10]:
            yield from _flatten(item, keys, depth + 1)


_NO_MESSAGE = {
    "url",
    "documentationurl",
    "index",
    "id",
    "traceid",
    "requestid",
    "help",
    "docs",
    "path",
    "param",
    "field",
}


def _codes(table: Any, keys: tuple[str, ...], depth: int) -> Iterator[str]:
    """Yield the error codes of a table, inner ones first: they are the finer."""
    if depth > 3:
        return
    if isinstance(table, list):
        for item in table[:5]:
            yield from _codes(item, keys, depth + 1)
    if not isinstance(table, Mapping):
        return
    for key in ("error", "errors", "detail"):
        yield from _codes(table.get(key), keys, depth + 1)
    flat = {_key(key): value for key, value in table.items()}
    for key in keys:
        value = flat.get(key)
        if isinstance(value, (str, int)) and not isinstance(value, bool) and 0 < len(str(value)) <= 80:
            yield str(value).strip()
