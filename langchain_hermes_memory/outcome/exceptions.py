"""Reads exceptions: their type, errno, HTTP status and message."""

from __future__ import annotations

import errno as errno_names
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import Any

from langchain_hermes_memory.outcome.finding import Finding, by_http, evidence
from langchain_hermes_memory.outcome.model import OutcomeRules
from langchain_hermes_memory.outcome.values import squeeze
from langchain_hermes_memory.record import Category, Status

_MAX_CHAIN = 5


def read_exception(
    rules: OutcomeRules, error: BaseException, cause: Callable[[str], Finding | None]
) -> Finding:
    """Return what an exception says about the run that raised it.

    Args:
        rules: The rules.
        error: The exception.
        cause: Finds the cause that a text names.
    """
    name, message = type(error).__name__, _message(error)
    quote = f"{name}: {message}" if message else name
    found = Finding(status=Status.FAILURE, detail=quote[:2_000], evidence=evidence("exception", name, quote))
    names = [base.__name__ for base in type(error).__mro__]
    by_type = by_name(rules, names, quote)
    if by_type is not None and by_type.category in (Category.CANCELLED, Category.BLOCKED):
        return found.filled(by_type)
    for link in _chain(error):
        found = found.filled(_errno(rules, link)).filled(_http(rules, link, quote))
    return found.filled(cause(message) if message else None).filled(
        by_type or _inner_type(rules, error, quote)
    )


def by_name(rules: OutcomeRules, names: list[str], quote: str) -> Finding | None:
    """Return what the name of an exception class, or of its nearest known base, means."""
    for name in names:
        for known in rules.exception:
            if any(fnmatchcase(name, pattern) for pattern in known.names):
                return Finding(
                    status=Status.FAILURE,
                    category=known.category,
                    code=known.error_code,
                    transient=known.transient,
                    evidence=evidence("exception", f"type-{name}", quote),
                )
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    for _ in range(_MAX_CHAIN):
        if link is None:
            return
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _inner_type(rules: OutcomeRules, error: BaseException, quote: str) -> Finding | None:
    for link in list(_chain(error))[1:]:
        found = by_name(rules, [type(link).__name__], quote)
        if found is not None:
            return found
    return None


def _message(error: BaseException) -> str:
    try:
        return squeeze(str(error)[:8_000])
    except Exception:  # noqa: BLE001 - an exception's own __str__ may raise anything
        return ""


def _errno(rules: OutcomeRules, error: BaseException) -> Finding | None:
    if not isinstance(error, OSError):
        return None
    number = error.errno
    name = errno_names.errorcode.get(number, "") if isinstance(number, int) else ""
    category = rules.errno.get(name)
    if category is None:
        return None
    return Finding(
        status=Status.FAILURE,
        category=category,
        code=name,
        evidence=evidence("exception", f"errno-{name}", name),
    )


def _http(rules: OutcomeRules, error: BaseException, quote: str) -> Finding | None:
    """Read the status that httpx, requests, aiohttp and the SDKs built on them carry."""
    for holder in (error, _attribute(error, "response")):
        for attribute in ("status_code", "status", "http_status", "code"):
            status = _attribute(holder, attribute)
            if isinstance(status, int) and not isinstance(status, bool):
                found = by_http(rules, int(status), "exception", quote)
                if found is not None:
                    return found
    return None


def _attribute(holder: Any, name: str) -> Any:
    try:
        return getattr(holder, name, None)
    except Exception:  # noqa: BLE001 - properties of foreign exceptions may raise
        return None
