"""The vector index: finds memories by meaning, in Chroma, one collection for each namespace.

Everything in it is derived from the ledger: it may be deleted at any time and is rebuilt. Only this module
knows Chroma.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import secrets
import threading
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, cast

import numpy as np
from langchain_core.embeddings import Embeddings
from pydantic import BaseModel, ConfigDict, ValidationError

from langchain_hermes_memory.errors import (
    EmbeddingError,
    EmbeddingMismatchError,
    HermesMemoryError,
    IndexDamagedError,
    StoreClosedError,
    StoreError,
)
from langchain_hermes_memory.record import Namespace

if TYPE_CHECKING:
    from chromadb import Collection
    from chromadb.api import ClientAPI
    from chromadb.api.client import Client
    from chromadb.config import Settings
    from langchain_chroma import Chroma

if TYPE_CHECKING:
    ChromaClient: TypeAlias = ClientAPI
    """What a user may give in place of a folder."""

logger = logging.getLogger(__name__)

FINGERPRINT_KEY = "embedding_fingerprint"
"""Under which the ledger keeps the fingerprint of the model that made the vectors."""
SAME_MODEL = 0.98
"""Cosine of two vectors of the probe text from which they are of one model; quantising stays above .999."""
MAX_CHARS = 400
"""Default length to which a text is cut before it is embedded: models read little more, some at length."""

_PROBE = "The nightly backup of /srv/data failed with permission denied. 昨晚的备份因权限不足而失败。"
_SPACE = "cosine"
# With Chroma's own threshold of 1000, single writes take three times as long and reopening six times.
_CONFIGURATION = {"hnsw": {"space": _SPACE, "sync_threshold": 100, "batch_size": 50}}
_MODEL_NAMES = ("model_name", "model", "model_id", "repo_id", "deployment")


class KeyValues(Protocol):
    """Where the fingerprint is kept: the ledger."""

    def get_meta(self, key: str) -> str | None:
        """Return a value or None."""

    def set_meta(self, key: str, value: str) -> None:
        """Keep a value."""


class Fingerprint(BaseModel):
    """Tells one embedding model from another, also where their vectors are equally long."""

    model_config = ConfigDict(frozen=True)

    model: str
    """Class of the embeddings and name of their model."""
    dimension: int
    probe: tuple[float, ...]
    """The rounded vector of a fixed text."""

    def matches(self, other: Fingerprint) -> bool:
        """Whether both are of one model, whatever it is called and however its numbers are rounded."""
        return self.dimension == other.dimension and _cosines(self.probe, [other.probe])[0] >= SAME_MODEL

    def __str__(self) -> str:
        return f"{self.model} ({self.dimension} dimensions)"


def fingerprint(embeddings: Embeddings) -> Fingerprint:
    """Take the fingerprint of a model by embedding a fixed text.

    Raises:
        EmbeddingError: The model failed or gave no usable vector.
    """
    vector = _embed(embeddings, [_PROBE])[0]
    if not np.any(vector):
        msg = (
            f"The embedding model {model_name(embeddings)} gives a vector of zeros. Check how it was loaded."
        )
        raise EmbeddingError(msg)
    probe = tuple(float(value) for value in np.round(np.asarray(vector) / np.linalg.norm(vector), 4))
    return Fingerprint(model=model_name(embeddings), dimension=len(vector), probe=probe)


def model_name(embeddings: Embeddings) -> str:
    """Return what to call a model: its class, and its own name where it tells one."""
    names = (getattr(embeddings, attribute, None) for attribute in _MODEL_NAMES)
    name = next((name for name in names if isinstance(name, str) and name), "")
    return " ".join(filter(None, (type(embeddings).__name__, name)))


class _Checked(Embeddings):
    """A model that is known to be the store's before it first embeds, and whose vectors are looked at."""

    def __init__(self, embeddings: Embeddings, index: VectorIndex, max_chars: int) -> None:
        self._embeddings = embeddings
        self._index = index
        self._max_chars = max_chars

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self._index.require_fingerprint()
        return _embed(self._embeddings, [self._cut(text) for text in texts])

    def embed_query(self, text: str) -> list[float]:
        self._index.require_fingerprint()
        return _embed(self._embeddings, [self._cut(text)], query=True)[0]

    def _cut(self, text: str) -> str:
        # Some models refuse an empty text.
        return _speakable(text[: self._max_chars]) or " "


class _Open(NamedTuple):
    """A collection, as LangChain gives it for writing and as Chroma gives it for what LangChain lacks."""

    store: Chroma
    collection: Collection


class VectorIndex:
    """Finds memories of a namespace by meaning.

    Safe to use from many threads, not from several processes at once: embedded Chroma loses vectors then.

    Args:
        folder: Where Chroma keeps its files; None: in memory, or where `client` has them.
        embeddings: The model. It is compared with the one that made the stored vectors before its first use.
        fingerprints: Keeps the fingerprint of that one: the ledger.
        client: A Chroma client to use in place of a folder, such as `chromadb.HttpClient(...)`; it is left
            open.
        max_chars: Length to which texts are cut before they are embedded.

    Every method raises `StoreClosedError` after `close()`, `IndexDamagedError` where Chroma fails (set the
    folder aside with `set_aside` and rebuild), `StoreError` where the disk is full or read-only,
    `EmbeddingError` where the model fails and `EmbeddingMismatchError` where it is another than the
    store's.
    """

    def __init__(
        self,
        folder: Path | None,
        embeddings: Embeddings,
        *,
        fingerprints: KeyValues,
        client: ClientAPI | None = None,
        max_chars: int = MAX_CHARS,
    ) -> None:
        self._folder = folder
        self._embeddings = embeddings
        self._checked = _Checked(embeddings, self, max_chars)
        self._fingerprints = fingerprints
        self._given_client = client
        self._client: ClientAPI | None = client
        # In-memory clients of a process share their collections.
        self._salt = secrets.token_hex(8) if folder is None and client is None else ""
        self._open: dict[Namespace, _Open] = {}
        self._lock = threading.RLock()
        self._fingerprinted = False
        self._closed = False

    # ------------------------------------------------------------------ the model

    def check_fingerprint(self) -> bool:
        """Compare the model with the one that made the stored vectors; an empty index takes any.

        Returns:
            False where the model cannot be reached now: it is then compared before it first embeds.

        Raises:
            EmbeddingMismatchError: It is another model.
        """
        try:
            self.require_fingerprint()
        except EmbeddingError as error:
            logger.warning("The embedding model is not reachable and will be checked later: %s", error)
            return False
        return True

    def require_fingerprint(self) -> None:
        """Compare the model as `check_fingerprint` does; raise `EmbeddingError` where it is not reachable."""
        with self._lock:
            if self._fingerprinted:
                return
            current = fingerprint(self._embeddings)
            stored = _stored_fingerprint(self._fingerprints)
            if stored is None or (not stored.matches(current) and self._is_empty()):
                self._fingerprints.set_meta(FINGERPRINT_KEY, current.model_dump_json())
            elif not stored.matches(current):
                raise EmbeddingMismatchError(_mismatch(stored, current))
            self._fingerprinted = True

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a query."""
        return self._checked.embed_query(text)

    def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the vectors of texts."""
        return self._checked.embed_documents(list(texts))

    # ------------------------------------------------------------------ memories

    def upsert(self, namespace: Namespace, items: Iterable[tuple[int, str]]) -> None:
        """Embed the texts of memories, given as (number, text), and store or replace their vectors."""
        texts = {str(number): _speakable(text) for number, text in items}
        with self._chroma() as client:
            size = client.get_max_batch_size()
            opened = self._collection(namespace, create=True) if texts else None
            ids = list(texts)
            for start in range(0, len(ids), size):
                batch = ids[start : start + size]
                if opened is not None:
                    # Chroma merges new metadata into old and refuses empty ones: one that never changes
                    # stays right.
                    metadatas = [{"number": int(number)} for number in batch]
                    opened.store.add_texts([texts[number] for number in batch], metadatas, batch)

    def search(self, namespace: Namespace, vector: Sequence[float], k: int) -> list[tuple[int, float]]:
        """Return the `k` memories nearest to a vector as (number, cosine similarity), nearest first."""
        with self._chroma():
            opened = self._collection(namespace)
            if opened is None:
                return []
            found = opened.collection.query(query_embeddings=_one(vector), n_results=k, include=["distances"])
            distances = found["distances"] or [[]]
            return [
                (int(number), 1.0 - distance)
                for number, distance in zip(found["ids"][0], distances[0], strict=True)
            ]

    def similarities(
        self, namespace: Namespace, vector: Sequence[float], numbers: Iterable[int]
    ) -> dict[int, float]:
        """Return the cosine similarities of memories found otherwise; those without a vector are left out."""
        ids = [str(number) for number in dict.fromkeys(numbers)]
        with self._chroma():
            opened = self._collection(namespace) if ids else None
            if opened is None:
                return {}
            # A query restricted to ids takes four times as long and fails when one of them is missing.
            found = opened.store.get(ids, include=["embeddings"])
            if not found["ids"]:
                return {}
            cosines = _cosines(vector, found["embeddings"])
            return {int(number): float(cosine) for number, cosine in zip(found["ids"], cosines, strict=True)}

    def delete(self, namespace: Namespace, numbers: Iterable[int]) -> None:
        """Remove the vectors of memories; unknown ones are no error."""
        ids = [str(number) for number in numbers]
        with self._chroma() as client:
            opened = self._collection(namespace) if ids else None
            size = client.get_max_batch_size()
            for start in range(0, len(ids), size):
                if opened is not None:
                    opened.store.delete(ids[start : start + size])

    def count(self, namespace: Namespace) -> int:
        """Return how many memories of a namespace have a vector."""
        with self._chroma():
            opened = self._collection(namespace)
            return 0 if opened is None else opened.collection.count()

    def drop(self, namespace: Namespace) -> None:
        """Remove a namespace's collection."""
        with self._chroma() as client, self._lock:
            if self._collection(namespace) is not None:
                del self._open[namespace]
                client.delete_collection(self._name(namespace))

    def close(self) -> None:
        """Release Chroma's files; a second call does nothing. A client that was given stays open."""
        with self._lock:
            self._closed = True
            self._open.clear()
            if self._client is not None and self._given_client is None:
                cast("Client", self._client).close()
            self._client = None

    @staticmethod
    def set_aside(folder: Path) -> Path:
        """Rename a damaged Chroma folder, so that a new one can be built in its place; nothing is deleted.

        Every index on the folder must be closed before.

        Returns:
            The new path.

        Raises:
            StoreError: The folder cannot be renamed.
        """
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        target = folder.with_name(f"{folder.name}.damaged-{stamp}-{secrets.token_hex(2)}")
        try:
            return folder.rename(target)
        except OSError as error:
            msg = (
                f"Cannot rename {folder}: {error.strerror}. Move it away yourself and open the memory again."
            )
            raise StoreError(msg) from error

    # ------------------------------------------------------------------ Chroma

    @contextlib.contextmanager
    def _chroma(self) -> Iterator[ClientAPI]:
        """Give the client, opened on first use; what fails inside becomes an error of ours."""
        try:
            yield self._connected()
        except HermesMemoryError:
            raise
        except Exception as error:
            raise self._named(error) from error
        except BaseException as error:
            # What panics in Chroma's Rust code is no Exception in Python.
            if type(error).__name__ == "PanicException":
                raise self._named(error) from error
            raise

    def _connected(self) -> ClientAPI:
        with self._lock:
            if self._closed:
                msg = "The memory is closed. Open it again to go on."
                raise StoreClosedError(msg)
            if self._client is None:
                import chromadb  # noqa: PLC0415 - takes a second
                from chromadb import config  # noqa: PLC0415

                settings = config.Settings(anonymized_telemetry=False)
                if self._folder is None:
                    self._client = chromadb.EphemeralClient(settings)
                else:
                    self._client = _persistent_client(str(self._folder), settings)
            return self._client

    def _collection(self, namespace: Namespace, *, create: bool = False) -> _Open | None:
        """Open a namespace's collection; None where there is none and none is to be made."""
        with self._lock:
            if namespace not in self._open:
                opened = self._opened(self._name(namespace), create=create)
                if opened is None:
                    return None
                self._open[namespace] = opened
            return self._open[namespace]

    def _opened(self, name: str, *, create: bool) -> _Open | None:
        from chromadb.errors import NotFoundError  # noqa: PLC0415
        from langchain_chroma import Chroma  # noqa: PLC0415

        client = self._connected()
        try:
            store = Chroma(
                name,
                self._checked,
                client=client,
                collection_configuration=_CONFIGURATION,  # type: ignore[arg-type]  # typed closer than documented
                create_collection_if_not_exists=create,
            )
        except NotFoundError:
            return None
        collection = client.get_collection(name, embedding_function=None)
        # Chroma takes an existing collection as it is, whatever distance is asked for.
        space = (collection.configuration_json.get("hnsw") or {}).get("space")
        if space != _SPACE:
            msg = (
                f"The collection {name} measures {space!r}, not {_SPACE}. Rebuild the index from the ledger."
            )
            raise IndexDamagedError(msg)
        return _Open(store, collection)

    def _is_empty(self) -> bool:
        with self._chroma() as client:
            return not any(
                collection.count()
                for collection in client.list_collections()
                if collection.name.startswith("hm-")
            )

    def _name(self, namespace: Namespace) -> str:
        exact = json.dumps([namespace.user, namespace.agent, self._salt])
        return f"hm-{hashlib.sha256(exact.encode()).hexdigest()[:40]}"

    def _named(self, error: BaseException) -> StoreError:
        if self._closed:
            return StoreClosedError("The memory was closed while it was in use. Open it again to go on.")
        text = str(error).lower()
        where = self._folder or "the Chroma client"
        if any(sign in text for sign in ("disk is full", "no space left")):
            return StoreError(
                f"{where}: {error}. The disk is full; free some space. The ledger has the records."
            )
        if any(sign in text for sign in ("readonly", "read-only", "permission denied", "unable to open")):
            return StoreError(f"{where}: {error}. The folder cannot be written; check its permissions.")
        reason = f"{type(error).__name__}: {error}"
        msg = f"The vector index {where} is unusable ({reason}). Rebuild it from the ledger: nothing is lost."
        return IndexDamagedError(msg)


def _persistent_client(path: str, settings: Settings) -> ClientAPI:
    import chromadb  # noqa: PLC0415
    from chromadb.api.shared_system_client import SharedSystemClient  # noqa: PLC0415

    try:
        return chromadb.PersistentClient(path, settings)
    except BaseException:
        # Chroma keeps what it could not start, and would hand it out for a new folder of the same name.
        if not SharedSystemClient._identifier_to_refcount.get(path):  # noqa: SLF001
            SharedSystemClient._identifier_to_system.pop(path, None)  # noqa: SLF001
        raise


# ---------------------------------------------------------------------- vectors


def _embed(embeddings: Embeddings, texts: list[str], *, query: bool = False) -> list[list[float]]:
    """Embed texts and make sure of the vectors."""
    name = model_name(embeddings)
    try:
        vectors = [embeddings.embed_query(texts[0])] if query else embeddings.embed_documents(texts)
        found = np.asarray(vectors, dtype=np.float64)
    except Exception as error:
        msg = f"The embedding model {name} failed: {error}. What was recorded is kept and indexed later."
        raise EmbeddingError(msg) from error
    if texts and (found.ndim != 2 or len(found) != len(texts) or not np.isfinite(found).all()):
        msg = (
            f"The embedding model {name} gave no usable vectors (shape {found.shape} for {len(texts)} texts)."
        )
        raise EmbeddingError(msg)
    return [[float(value) for value in row] for row in vectors]


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the cosine of the angle between two vectors; 0 where one of them is zero."""
    return float(_cosines(one, [other])[0])


def _cosines(vector: Sequence[float], others: Any) -> np.ndarray:
    one, many = np.asarray(vector, dtype=np.float64), np.asarray(others, dtype=np.float64)
    lengths = np.linalg.norm(many, axis=1) * np.linalg.norm(one)
    cosines: np.ndarray = np.divide(many @ one, lengths, out=np.zeros(len(many)), where=lengths > 0)
    return cosines


def _one(vector: Sequence[float]) -> list[Sequence[float] | Sequence[int]]:
    return [[float(value) for value in vector]]


def _stored_fingerprint(kept: KeyValues) -> Fingerprint | None:
    text = kept.get_meta(FINGERPRINT_KEY)
    try:
        return None if text is None else Fingerprint.model_validate_json(text)
    except ValidationError as error:
        msg = "The fingerprint of the store's embedding model cannot be read. Re-embed the store."
        raise IndexDamagedError(msg) from error


def _mismatch(stored: Fingerprint, current: Fingerprint) -> str:
    return (
        f"The store was indexed with {stored}, but {current} was given, whose vectors are others. Open it "
        "with the former, or re-embed it with `HermesMemory.reembed(path, embeddings=...)` "
        "(command: `hermes-memory reembed PATH`)."
    )


def _speakable(text: str) -> str:
    """Return a text without halves of surrogate pairs, which Chroma and most models refuse."""
    return text.encode("utf-8", "replace").decode()
