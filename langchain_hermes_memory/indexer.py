"""Indexing: keeps the vector index up with the ledger, finds out when it is not, and repairs it."""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path

from filelock import FileLock, Timeout
from langchain_core.embeddings import Embeddings
from pydantic import BaseModel, ConfigDict, ValidationError

from langchain_hermes_memory.embeddings import Calibration, calibrate
from langchain_hermes_memory.errors import IndexDamagedError
from langchain_hermes_memory.index import FINGERPRINT_KEY, VectorIndex, cosine
from langchain_hermes_memory.ledger import Ledger, Pending
from langchain_hermes_memory.record import Namespace

logger = logging.getLogger(__name__)

CALIBRATION_KEY = "embedding_calibration"
"""Under which the ledger keeps what the similarities of the store's model mean."""


MOST_WAITING = 32
"""Memories without a vector that a search embeds itself: so many candidates, and so many new ones."""


class _Stored(BaseModel):
    """A calibration and the fingerprint of the model that it was measured on."""

    model_config = ConfigDict(frozen=True)

    fingerprint: str
    floor: float
    high: float


class Indexer:
    """Owns the vector index of a ledger.

    The ledger marks what the index has yet to take in, so nothing is lost when the process or the embedding
    model dies in between.

    Args:
        ledger: The records.
        open_index: Opens the index; called again after a repair.
        embeddings: The model, for its calibration.
        folder: The index's own folder; None for an index that lives elsewhere and cannot be set aside. Of
            several processes on one folder, one indexes for all: two of them would lose vectors.
        batch: Memories that are embedded at once.
    """

    def __init__(
        self,
        ledger: Ledger,
        open_index: Callable[[], VectorIndex],
        embeddings: Embeddings,
        *,
        folder: Path | None,
        batch: int,
    ) -> None:
        self._ledger = ledger
        self._open_index = open_index
        self._embeddings = embeddings
        self._folder = folder
        self._batch = batch
        self._index = open_index()
        self._lock = threading.RLock()
        self._verified = False
        self._ownership = None if folder is None else FileLock(f"{folder}.lock", timeout=0)
        self._process = 0
        self._calibration: Calibration | None = None
        self._waiting: OrderedDict[tuple[int, int], Sequence[float]] = OrderedDict()

    @property
    def index(self) -> VectorIndex:
        """The vector index as it is now; another object after a repair."""
        return self._index

    # ------------------------------------------------------------------ writing

    def step(self) -> bool:
        """Index one batch of what is pending; return whether there is more.

        Raises:
            EmbeddingError: The model failed; what is pending stays so.
            StoreError: The index or the ledger cannot be used.
        """
        with self._lock:
            if not self._owns():
                return False
            try:
                self._verify()
                return self._take_in(self._batch)
            except IndexDamagedError as error:
                self._repair(error)
                return True

    def flush(self, timeout: float | None = None) -> bool:
        """Index everything that is pending; return False if something is left.

        That is so if the time was too short, or another process indexes this store.

        Raises:
            EmbeddingError: The model failed; what is pending stays so.
            StoreError: The index or the ledger cannot be used.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while self.step():
            if end is not None and time.monotonic() >= end:
                break
        return self._ledger.pending_count() == 0

    def delete(self, namespace: Namespace, numbers: Iterable[int]) -> None:
        """Remove the vectors of memories that the ledger has forgotten."""
        with self._lock:
            if not self._owns():
                return  # recall leaves out what the ledger does not have
            try:
                self._index.delete(namespace, numbers)
            except IndexDamagedError as error:
                self._repair(error)

    def close(self) -> None:
        """Release the index."""
        with self._lock:
            self._index.close()
            if self._ownership is not None and self._process == os.getpid():
                self._ownership.release()

    def _owns(self) -> bool:
        """Return whether this process indexes the store: the first that asks does, until it closes."""
        if self._ownership is None or self._process == os.getpid():
            return True
        if self._process:  # a forked child has its parent's lock in hand, and does not own it
            return False
        try:
            self._ownership.acquire()
        except Timeout:
            return False
        self._process = os.getpid()
        return True

    def _take_in(self, limit: int) -> bool:
        pending = self._ledger.pending(limit)
        by_namespace = attrgetter("namespace.user", "namespace.agent")
        for _, group in itertools.groupby(sorted(pending, key=by_namespace), key=by_namespace):
            batch: list[Pending] = list(group)
            self._index.upsert(batch[0].namespace, [(item.number, item.description) for item in batch])
            self._ledger.mark_indexed([(item.number, item.revision) for item in batch])
        return len(pending) == limit

    # ------------------------------------------------------------------ reading

    def similar(
        self, namespace: Namespace, text: str, k: int, also: Iterable[int] = ()
    ) -> Mapping[int, float]:
        """Return calibrated similarities: of the `k` memories nearest to a text, and of others by number.

        The others come in the order of their promise: of many not indexed yet the first are compared.

        0 is noise, 1 a typical match; see `Calibration.normalize`.

        Raises:
            EmbeddingError: The model failed.
            StoreError: The index cannot be used; one that is damaged is repaired for the next search.
        """
        try:
            calibration = self._calibrated()
            vector = self._index.embed_query(text)
            cosines = dict(self._index.search(namespace, vector, k))
            missing = [number for number in also if number not in cosines]
            cosines.update(self._index.similarities(namespace, vector, missing))
            missing = [number for number in missing if number not in cosines]
            cosines.update(self._not_indexed(namespace, vector, missing))
        except IndexDamagedError as error:
            with self._lock:
                if self._owns():
                    self._repair(error)
            raise
        return {number: calibration.normalize(cosine) for number, cosine in cosines.items()}

    def _not_indexed(
        self, namespace: Namespace, vector: Sequence[float], missing: Sequence[int]
    ) -> dict[int, float]:
        """Compare with candidates that the index lacks and with what was just recorded.

        It lacks them until they are embedded, for good where they are outside long-term memory, and for a
        while where another process has indexed them.
        """
        waiting = self._ledger.to_embed(namespace, missing[:MOST_WAITING], MOST_WAITING)
        new = [each for each in waiting if each[:2] not in self._waiting]
        vectors = self._index.embed_documents([text for _, _, text in new]) if new else []
        for (number, revision, _), found in zip(new, vectors, strict=True):
            self._waiting[number, revision] = found
        while len(self._waiting) > 8 * MOST_WAITING:
            self._waiting.popitem(last=False)
        known = [(number, self._waiting.get((number, revision))) for number, revision, _ in waiting]
        return {number: cosine(vector, found) for number, found in known if found is not None}

    def _calibrated(self) -> Calibration:
        """Return what the model's similarities mean: measured once for each store and model."""
        if self._calibration is None:
            self._index.require_fingerprint()
            fingerprint = self._ledger.get_meta(FINGERPRINT_KEY) or ""
            try:
                stored = _Stored.model_validate_json(self._ledger.get_meta(CALIBRATION_KEY) or "")
            except ValidationError:
                stored = None
            if stored is None or stored.fingerprint != fingerprint:
                found = calibrate(self._embeddings)
                stored = _Stored(fingerprint=fingerprint, floor=found.floor, high=found.high)
                self._ledger.set_meta(CALIBRATION_KEY, stored.model_dump_json())
            self._calibration = Calibration(floor=stored.floor, high=stored.high)
        return self._calibration

    # ------------------------------------------------------------------ repair

    def _verify(self) -> None:
        """Compare the index with the ledger, once after opening; what the index lacks becomes pending."""
        if self._verified:
            return
        for namespace in self._ledger.namespaces():
            counts = self._ledger.counts(namespace)
            expected = counts["admitted"] - counts["pending"]
            if self._index.count(namespace) < expected:
                logger.warning(
                    "The vector index lacks memories and is filled again from the ledger",
                    extra={"namespace": namespace.model_dump(), "expected": expected},
                )
                self._ledger.mark_all_pending(namespace)
        self._verified = True

    def _repair(self, error: IndexDamagedError) -> None:
        """Set a damaged index aside and have it built again from the ledger.

        Raises:
            IndexDamagedError: The index lives elsewhere, so only its owner can repair it.
        """
        if self._folder is None:
            raise error
        self._index.close()
        aside = VectorIndex.set_aside(self._folder) if self._folder.exists() else None
        pending = self._ledger.mark_all_pending()
        self._index = self._open_index()
        self._verified = True
        logger.warning(
            "The vector index was damaged and is built again from the ledger; nothing is lost: %s",
            error,
            extra={"set_aside": str(aside), "pending": pending},
        )

    def check_model(self) -> None:
        """Compare the model with the one that made the store's vectors, if there are any.

        Raises:
            EmbeddingMismatchError: It is another model.
        """
        if self._ledger.get_meta(FINGERPRINT_KEY) is None:
            return
        try:
            self._index.check_fingerprint()
        except IndexDamagedError as error:
            self._repair(error)
