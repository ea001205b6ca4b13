"""Words shown to people and models, in English and Chinese: data in `text/*.toml`, picked here."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Literal

from langchain_hermes_memory.errors import RuleError

Lang = Literal["en", "zh"]

HAN = re.compile(r"[㐀-䶿一-鿿]")
"""A Chinese character."""


def detect_lang(text: str) -> Lang:
    """Return the language of a text: Chinese as soon as Han characters carry a fair share of it.

    A Han character weighs about as much as one English word, so the two are counted against each other.
    """
    han = len(HAN.findall(text))
    if not han:
        return "en"
    words = len(re.findall(r"[A-Za-z]{2,}", text))
    return "zh" if han >= words else "en"


@functools.cache
def texts(lang: Lang) -> Mapping[str, str]:
    """Return all texts of a language by dotted key, such as `caveat.transient`.

    Raises:
        RuleError: The packaged file is malformed.
    """
    name = f"text/{lang}.toml"
    source = (resources.files("langchain_hermes_memory") / "text" / f"{lang}.toml").read_text("utf-8")
    try:
        tables = tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        msg = f"{name} is not valid TOML: {error}"
        raise RuleError(msg) from error
    return {f"{section}.{key}": value for section, entries in tables.items() for key, value in entries.items()}


def say(lang: Lang, key: str, **values: object) -> str:
    """Return the text `key` in a language with its fields filled in."""
    return texts(lang)[key].format_map(values)
