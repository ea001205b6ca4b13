"""The engine: runs a call through the write path and a request through the read path; knows no agent.

capture -> encode -> ledger -> index        `observe`, `observe_turn`, `remember`
recall -> render                            `recall`, `context`
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar

from langchain_hermes_memory._text import detect_lang
from langchain_hermes_memory._worker import Worker
from langchain_hermes_memory.encode import Encoded, Encoder
from langchain_hermes_memory.errors import HermesMemoryError
from langchain_hermes_memory.indexer import Indexer
from langchain_hermes_memory.ledger import Ledger
from langchain_hermes_memory.links import link_solutions
from langchain_hermes_memory.recall import Query, Recalled, Recaller
from langchain_hermes_memory.record import (
    Hit,
    Memory,
    Namespace,
    RecallFilter,
    Record,
    RecordType,
    ToolCall,
    Turn,
)
from langchain_hermes_memory.render import Block, Frame, Renderer
from langchain_hermes_memory.score import History, ScoreInput, Scorer
from langchain_hermes_memory.settings import Settings

logger = logging.getLogger(__name__)

MOST_TO_REFINE = 1_000
"""Records that wait to be scored again; the oldest keeps the rules' score."""
POLL = 5.0
"""Seconds after which the worker looks for what other processes have recorded."""
CLOSE_TIMEOUT = 5.0
"""Seconds for which `close` goes on indexing; what is left is indexed at the next start."""

_T = TypeVar("_T")


class Engine:
    """All stages of one memory, wired up.

    Args:
        settings: Every tunable.
        clock: The present time, timezone-aware.
        ledger: The records.
        indexer: Keeps their vectors.
        encoder: Makes records.
        recaller: Finds them.
        renderer: Words them.
        refiner: Scores records again behind, for scorers that are too slow for a capture.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Callable[[], datetime],
        ledger: Ledger,
        indexer: Indexer,
        encoder: Encoder,
        recaller: Recaller,
        renderer: Renderer,
        refiner: Scorer | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.ledger = ledger
        self._indexer = indexer
        self._encoder = encoder
        self._recaller = recaller
        self._renderer = renderer
        self._refiner = refiner
        self._to_refine: deque[ScoreInput] = deque(maxlen=MOST_TO_REFINE)
        self._worker = Worker(self._work_behind, "hermes-memory-worker", poll=POLL)
        self._counters: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._closed = False

    # ------------------------------------------------------------------ the write path

    def observe(self, call: ToolCall) -> None:
        """Encode and store a tool call; never raises: a failure is logged and counted."""
        self._softly("observe", lambda: self._store_call(call), None)

    def observe_turn(self, turn: Turn) -> None:
        """Encode and store a turn; never raises: a failure is logged and counted."""
        self._softly("observe_turn", lambda: self._store(self._encoder.encode_turn(turn)), None)

    def remember(
        self,
        text: str,
        *,
        namespace: Namespace,
        session_id: str = "default",
        tags: tuple[str, ...] = (),
        pinned: bool = False,
    ) -> int:
        """Store a note of a user or program; return the memory's number.

        Raises:
            StoreError: The ledger cannot be written.
        """
        encoded = self._encoder.encode_note(
            text, at=self.clock(), namespace=namespace, session_id=session_id, tags=tags
        )
        record = encoded.record.model_copy(update={"pinned": pinned})
        return self._store(encoded._replace(record=record, admitted=True))

    def _store_call(self, call: ToolCall) -> None:
        encoded = self._encoder.encode_call(call, self._history)
        number = self._store(encoded)
        self._softly("link", lambda: link_solutions(self.ledger, encoded.record, number), None)

    def _store(self, encoded: Encoded) -> int:
        self.count("offered")
        number = self.ledger.add(encoded.record, fold_key=encoded.fold_key, admitted=encoded.admitted)
        self.count("stored")
        if self._refiner is not None:
            self._to_refine.append(encoded.scored)
        if not self.settings.background:
            self._softly("index", self.flush, None)
        elif encoded.admitted or self._to_refine:
            self._worker.wake()
        return number

    def _work_behind(self) -> bool:
        """Score one record again, or index one batch; return whether there is more."""
        if not self._to_refine:
            return self._indexer.step()
        self._softly("refine", self._refine, None)
        return True

    def _refine(self) -> None:
        try:
            given = self._to_refine.popleft()
        except IndexError:  # a flush was faster
            return
        if self._refiner is None:
            return
        found = self._refiner.score(given)
        if found.score != given.record.importance_score:
            record = given.record.model_copy(
                update={"importance_score": found.score, "importance_reasons": found.reasons}
            )
            self.ledger.rescore(record, admitted=found.score >= self.settings.admit_importance)
            self.count("refined")

    def _history(self, namespace: Namespace, action_key: str) -> History:
        since = self.clock() - timedelta(days=self.settings.frequency_window_days)
        return self.ledger.history(namespace, action_key, since)

    # ------------------------------------------------------------------ the read path

    def recall(
        self,
        query: str,
        *,
        namespace: Namespace,
        session_id: str = "default",
        tool: str = "",
        command: str | Mapping[str, Any] = "",
        k: int | None = None,
        filters: RecallFilter | None = None,
    ) -> list[Hit]:
        """Recall what helps with a request, best first.

        Args:
            query: The request, in any words.
            namespace: Whose memories.
            session_id: The session that asks: its working memory is searched too.
            tool: The tool that is about to be called, where it is known.
            command: Its input, where it is known: memories of this very action are found exactly.
            k: Memories to return; None: as in the settings.
            filters: Which memories may be returned.

        Raises:
            StoreError: The ledger cannot be read.
        """
        return self.search(
            query,
            namespace=namespace,
            session_id=session_id,
            tool=tool,
            command=command,
            k=k,
            filters=filters,
        ).hits

    def search(
        self,
        query: str,
        *,
        namespace: Namespace,
        session_id: str = "default",
        tool: str = "",
        command: str | Mapping[str, Any] = "",
        k: int | None = None,
        filters: RecallFilter | None = None,
    ) -> Recalled:
        """Recall as `recall` does; return also what was found and not chosen, with the reasons."""
        started = time.perf_counter()
        found = self._recaller.search(
            Query(
                text=query,
                namespace=namespace,
                at=self.clock(),
                session_id=session_id,
                tool=tool,
                tool_input=command,
                k=k,
                filters=filters or RecallFilter(),
            )
        )
        self.count("recalls")
        logger.debug(
            "recalled",
            extra={
                "shown": len(found.hits),
                "dropped": len(found.dropped),
                "ms": round((time.perf_counter() - started) * 1000, 1),
            },
        )
        return found

    def context(
        self,
        query: str,
        *,
        namespace: Namespace,
        session_id: str = "default",
        tool: str = "",
        command: str | Mapping[str, Any] = "",
        k: int | None = None,
        filters: RecallFilter | None = None,
        budget_tokens: int | None = None,
        language: Literal["en", "zh"] | None = None,
    ) -> Block:
        """Recall and render what helps with a request; never raises: a failure gives an empty block.

        Args:
            query: The request, in any words.
            namespace: Whose memories.
            session_id: The session that asks.
            tool: The tool that is about to be called, where it is known.
            command: Its input, where it is known.
            k: Memories shown; None: as in the settings.
            filters: Which memories may be shown.
            budget_tokens: Tokens that the block may have; None: as in the settings.
            language: Language of the block; None: as in the settings.
        """
        filters = filters or RecallFilter()

        def block() -> Block:
            found = self.search(
                query,
                namespace=namespace,
                session_id=session_id,
                tool=tool,
                command=command,
                k=k,
                filters=filters,
            )
            frame = Frame(
                lang=language or self._language(query),
                at=self.clock(),
                budget=budget_tokens or self.settings.budget_tokens,
                asked=found.targets,
                safety_critical=filters.safety_critical and not filters.want_failures,
            )
            return self._renderer.render(found.hits, frame)

        return self._softly("context", block, Block(), counter="recall_errors")

    def working_memory(
        self,
        namespace: Namespace,
        session_id: str,
        *,
        language: Literal["en", "zh"] | None = None,
        since: datetime | None = None,
    ) -> str:
        """Return the session's last turns, rendered, oldest first; never raises.

        Args:
            namespace: Whose.
            session_id: Which session.
            language: Language of the speakers' names; None: as in the settings, or that of the last turn.
            since: Only turns from then on.
        """

        def turns() -> str:
            limit = self.settings.working_turns
            newest = (
                self.ledger.by_session(namespace, session_id, limit, type=RecordType.CONVERSATION)
                if limit
                else []
            )
            shown = [record for record in newest if since is None or record.timestamp >= since]
            if not shown:
                return ""
            lang = language or self._language(shown[0].original_command)
            return self._renderer.turns(reversed(shown), lang)

        return self._softly("working_memory", turns, "", counter="recall_errors")

    def recorded_calls(
        self, namespace: Namespace, session_id: str, tool_call_ids: Collection[str]
    ) -> set[str]:
        """Return those of the tool calls that the session's records hold; never raises.

        Where the ledger cannot be read, all of them: a call that is not recorded twice may be missed once.
        """
        return self._softly(
            "recorded_calls",
            lambda: self.ledger.recorded_calls(namespace, session_id, tool_call_ids),
            set(tool_call_ids),
        )

    def memory(self, namespace: Namespace, number: int) -> Memory | None:
        """Return a memory by its number; None where the namespace has none."""
        found = self.ledger.memories(
            namespace,
            [number],
            at=self.clock(),
            window=timedelta(days=self.settings.frequency_window_days),
            recurring_after=self.settings.recurring_after,
        )
        return found[0] if found else None

    def newest(self, namespace: Namespace, session_id: str, limit: int) -> list[Record]:
        """Return the newest records of a session, newest first, admitted to long-term memory or not."""
        return self.ledger.by_session(namespace, session_id, limit)

    def _language(self, text: str) -> Literal["en", "zh"]:
        return detect_lang(text) if self.settings.language == "auto" else self.settings.language

    # ------------------------------------------------------------------ life

    def forget(self, namespace: Namespace, numbers: Collection[int]) -> list[int]:
        """Remove memories with all that belongs to them; return the numbers of those that were there.

        Raises:
            StoreError: The ledger or the index cannot be written.
        """
        gone = self.ledger.forget(namespace, numbers)
        self._indexer.delete(namespace, gone)
        return gone

    def flush(self, timeout: float | None = None) -> bool:
        """Index everything that is recorded; return False if the time was too short.

        Args:
            timeout: Seconds; None: as long as it takes.

        Raises:
            EmbeddingError: The model failed; what is not indexed yet stays queued in the ledger.
            StoreError: The ledger or the index cannot be used.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while self._to_refine:
            if end is not None and time.monotonic() >= end:
                return False
            self._refine()
        return self._indexer.flush(None if end is None else max(0.0, end - time.monotonic()))

    def close(self) -> None:
        """Index what is left, for a few seconds at most, and close the store; a second call does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._worker.stop(CLOSE_TIMEOUT)
        self._to_refine.clear()
        try:
            self.flush(CLOSE_TIMEOUT)
        except HermesMemoryError as error:
            logger.warning("Not everything could be indexed; it will be at the next start: %s", error)
        self._indexer.close()
        self.ledger.close()

    def count(self, counter: str, n: int = 1) -> None:
        """Add to a counter of the statistics."""
        with self._lock:
            self._counters[counter] += n

    def counters(self) -> dict[str, int]:
        """Return the counters of this process: offered, stored, recalls, errors by kind, ..."""
        with self._lock:
            return dict(self._counters)

    def _softly(
        self, where: str, step: Callable[[], _T], otherwise: _T, *, counter: str = "capture_errors"
    ) -> _T:
        """Run a step whose failure must not reach the agent: it is logged and counted."""
        try:
            return step()
        except Exception:
            logger.exception("The memory failed; the agent goes on without it", extra={"step": where})
            self.count(counter)
            return otherwise
