"""Loads the rule files: ordered TOML tables, validated, with a digest that tells which rules were used."""

from __future__ import annotations

import hashlib
import tomllib
from importlib import resources
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from langchain_hermes_memory.errors import RuleError

RulesT = TypeVar("RulesT", bound=BaseModel)


def rule_text(name: str) -> str:
    """Return the source of the packaged rule file `name` (without `.toml`)."""
    return (resources.files("langchain_hermes_memory") / "rules" / f"{name}.toml").read_text("utf-8")


def load_rules(name: str, model: type[RulesT], overlay: Path | None = None) -> RulesT:
    """Read and validate a packaged rule file.

    Args:
        name: File name in `rules/`, without `.toml`.
        model: Pydantic model of the whole file.
        overlay: A user's file of the same shape. Its lists come before the packaged ones (the first wins),
            its single values replace them.

    Raises:
        RuleError: A file cannot be read or does not fit the model.
    """
    tables = _parse(rule_text(name), f"rules/{name}.toml")
    if overlay is not None:
        try:
            text = overlay.read_text("utf-8")
        except OSError as error:
            msg = f"Cannot read the rule file {overlay}: {error.strerror}. Check the path in your settings."
            raise RuleError(msg) from error
        tables = _overlay(tables, _parse(text, str(overlay)))
    try:
        return model.model_validate(tables)
    except ValidationError as error:
        where = overlay or f"rules/{name}.toml"
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        msg = f"{where}: {place}: {first['msg']}"
        raise RuleError(msg) from error


def rules_digest(*names: str) -> str:
    """Return a short digest of packaged rule files."""
    digest = hashlib.sha256()
    for name in names:
        digest.update(rule_text(name).encode())
    return digest.hexdigest()[:12]


def _parse(text: str, where: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        msg = f"{where} is not valid TOML: {error}"
        raise RuleError(msg) from error


def _overlay(base: dict[str, object], user: dict[str, object]) -> dict[str, object]:
    merged = dict(base)
    for key, value in user.items():
        old = merged.get(key)
        if isinstance(old, list) and isinstance(value, list):
            merged[key] = [*value, *old]
        elif isinstance(old, dict) and isinstance(value, dict):
            merged[key] = _overlay(old, value)
        else:
            merged[key] = value
    return merged
