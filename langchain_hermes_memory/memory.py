"""The one object that users hold: opens a store, wires the engine, and hands out the adapters."""

from __future__ import annotations

import atexit
import copy
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from langchain_core.embeddings import Embeddings
from langchain_core.runnables import Runnable

from langchain_hermes_memory._tokens import TokenCounter
from langchain_hermes_memory.adapters.callback import HermesCallbackHandler
from langchain_hermes_memory.adapters.retriever import HermesRetriever, context_runnable
from langchain_hermes_memory.capture import CallLog
from langchain_hermes_memory.embeddings import default_embeddings
from langchain_hermes_memory.encode import Encoder
from langchain_hermes_memory.engine import Engine
from langchain_hermes_memory.errors import ConfigurationError, StoreError
from langchain_hermes_memory.explain import MemoryExplanation, RecallExplanation
from langchain_hermes_memory.ledger import Ledger
from langchain_hermes_memory.outcome import OutcomeReader
from langchain_hermes_memory.recall import Recaller
from langchain_hermes_memory.record import (
    MEMORY_HANDLE,
    Hit,
    Memory,
    Namespace,
    RecallFilter,
    Record,
    utc_now,
)
from langchain_hermes_memory.redact import Redactor
from langchain_hermes_memory.render import Block, Renderer
from langchain_hermes_memory.score import Scorer
from langchain_hermes_memory.settings import Settings
from langchain_hermes_memory.store import (
    INDEX_FOLDER,
    LEDGER_FILE,
    made_folder,
    open_indexer,
    own_settings,
)

if TYPE_CHECKING:
    from langchain_hermes_memory.adapters.classic import HermesBaseMemory
    from langchain_hermes_memory.adapters.middleware import HermesMemoryMiddleware
    from langchain_hermes_memory.index import ChromaClient
    from langchain_hermes_memory.outcome.reader import Reader


class HermesMemory:
    """A memory of what an agent's tools did, why, and how far each lesson reaches.

    ```python
    with HermesMemory("memory") as memory:
        agent = create_agent(model, tools, middleware=[memory.middleware()])
        agent.invoke({"messages": [("user", "clean up the temporary files")]})
    ```

    One object serves threads and event loops. `scoped` gives the same memory to other users and agents, who
    never see each other's records.

    Args:
        path: Folder of the store, made where there is none; None: in memory, gone with the process.
        embeddings: Any LangChain embeddings; None: the best that is installed, see `default_embeddings`.
        settings: All tunables at once; None: the defaults, with environment variables and `tunables`.
        user: Whose memory it is.
        agent: Which agent's memory it is.
        session_id: Session of runs that name none.
        clock: The present time, timezone-aware.
        chroma_client: A Chroma client, such as `chromadb.HttpClient(...)`, in place of a folder of its own.
        scorer: Scores importance in place of the rules, on the agent's thread.
        refiner: Scores importance again in the background, such as `LLMScorer(model)`.
        readers: Functions that read the outcomes of your own tools, by tool name pattern.
        redact: Cuts further secrets out of texts, after the packaged rules.
        token_counter: Counts tokens as your model does.
        **tunables: Single settings, such as `k=8`.

    Raises:
        ConfigurationError: A setting or argument has no usable value.
        MissingDependencyError: No embedding model is installed.
        EmbeddingMismatchError: The store was indexed with another model.
        StoreError: The store cannot be opened; nothing in it was changed.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        embeddings: Embeddings | None = None,
        settings: Settings | None = None,
        user: str = "default",
        agent: str = "default",
        session_id: str = "default",
        clock: Callable[[], datetime] = utc_now,
        chroma_client: ChromaClient | None = None,
        scorer: Scorer | None = None,
        refiner: Scorer | None = None,
        readers: Mapping[str, Reader] | None = None,
        redact: Callable[[str], str] | None = None,
        token_counter: Callable[[str], int] | None = None,
        **tunables: Any,
    ) -> None:
        if settings is not None and tunables:
            raise ConfigurationError(
                f"Give either `settings` or single settings ({', '.join(tunables)}), not both."
            )
        if embeddings is not None and not isinstance(embeddings, Embeddings):
            raise ConfigurationError(
                f"`embeddings` must be LangChain Embeddings, not {type(embeddings).__name__}."
            )
        self.settings = settings or Settings(**tunables)
        self.namespace = Namespace(user=user, agent=agent)
        self.session_id = session_id
        self._scoped = False
        encoder = Encoder(
            self.settings,
            reader=OutcomeReader(rules_file=self.settings.rules_file, readers=readers),
            redactor=Redactor(extra=redact) if self.settings.redact else None,
            scorer=scorer,
        )
        model = embeddings or default_embeddings()
        folder = None if path is None else made_folder(Path(path))
        ledger = Ledger.open(
            ":memory:" if folder is None else folder / LEDGER_FILE, durability=self.settings.durability
        )
        try:
            indexer = open_indexer(ledger, model, self.settings, folder, chroma_client)
            indexer.check_model()
        except BaseException:
            ledger.close()
            raise
        self._engine = Engine(
            self.settings,
            clock=clock,
            ledger=ledger,
            indexer=indexer,
            encoder=encoder,
            recaller=Recaller(ledger, indexer.similar, self.settings),
            renderer=Renderer(self.settings, TokenCounter(token_counter)),
            refiner=refiner,
        )
        self._log = CallLog(self._engine)
        atexit.register(_close, weakref.ref(self._engine))

    @classmethod
    def open(cls, path: str | Path, *, config: str | Path | None = None, **options: Any) -> Self:
        """Open a memory with settings from a TOML file and the environment.

        Args:
            path: Folder of the store.
            config: The TOML file; None: `hermes.toml` in that folder, where there is one.
            **options: Arguments of `HermesMemory`, and single settings, which win over file and environment.

        Raises:
            HermesMemoryError: As `HermesMemory`.
        """
        tunables = {name: options.pop(name) for name in list(options) if name in Settings.model_fields}
        settings = (
            own_settings(Path(path), **tunables) if config is None else Settings.load(config, **tunables)
        )
        return cls(path, settings=settings, **options)

    def scoped(
        self, *, user: str | None = None, agent: str | None = None, session_id: str | None = None
    ) -> Self:
        """Return the same memory for another user, agent or session; what is not given stays as here."""
        view = copy.copy(self)
        view.namespace = Namespace(
            user=self.namespace.user if user is None else user,
            agent=self.namespace.agent if agent is None else agent,
        )
        view.session_id = self.session_id if session_id is None else session_id
        view._scoped = True  # noqa: SLF001 - a copy of this very object
        return view

    # ------------------------------------------------------------------ adapters

    @property
    def callback(self) -> HermesCallbackHandler:
        """A callback handler: give it to a call (`{"callbacks": [memory.callback]}`) or to `with_config`."""
        return HermesCallbackHandler(self._log, namespace=self.namespace, session_id=self.session_id)

    def as_base_memory(self, **fields: Any) -> HermesBaseMemory:
        """Return a `BaseMemory` that fills prompt variables.

        Args:
            **fields: Fields of `HermesBaseMemory`, such as `memory_key="lessons"` or `working_key=None`.
        """
        from langchain_hermes_memory.adapters.classic import HermesBaseMemory  # noqa: PLC0415 - takes a second

        given = {"namespace": self.namespace, "session_id": self.session_id, **fields}
        return HermesBaseMemory(engine=self._engine, log=self._log, **given)

    def attach(self, executor: Runnable[Any, Any], **fields: Any) -> Runnable[Any, Any]:
        """Return an `AgentExecutor` with this memory: its prompt variables filled, its tool runs recorded.

        Args:
            executor: The executor; it is left as it is.
            **fields: Fields of `HermesBaseMemory`.

        Raises:
            ConfigurationError: The executor takes no memory, or has one already.
        """
        from langchain_hermes_memory.adapters.classic import attach  # noqa: PLC0415 - takes a second

        return attach(executor, self.callback, self.as_base_memory(**fields))

    def middleware(self, **options: Any) -> HermesMemoryMiddleware:
        """Return a middleware for `create_agent`; needs the extra `agents`.

        Args:
            **options: Arguments of `HermesMemoryMiddleware`, such as `inject=False` or `name="ops"`.

        Raises:
            MissingDependencyError: The extra is not installed.
        """
        from langchain_hermes_memory.adapters.middleware import HermesMemoryMiddleware  # noqa: PLC0415

        given = {"namespace": self.namespace, "session_id": self.session_id, **options}
        return HermesMemoryMiddleware(self._engine, self._log, **given)

    def retriever(self, **fields: Any) -> HermesRetriever:
        """Return a retriever of memories as documents.

        Args:
            **fields: Fields of `HermesRetriever`, such as `k=3` or `filters=RecallFilter(...)`.
        """
        given = {"namespace": self.namespace, "session_id": self.session_id, **fields}
        return HermesRetriever(engine=self._engine, **given)

    def as_runnable(self, **options: Any) -> Runnable[Any, str]:
        """Return a runnable from a request to the context block, for `RunnablePassthrough.assign(...)`.

        Args:
            **options: `k`, `filters`, `budget_tokens`; see `context_runnable`.
        """
        given = {"namespace": self.namespace, "session_id": self.session_id, **options}
        return context_runnable(self._engine, **given)

    # ------------------------------------------------------------------ by hand

    def remember(self, text: str, *, tags: Sequence[str] = (), pinned: bool = False) -> str:
        """Store a note.

        Args:
            text: What to remember.
            tags: Words to filter by.
            pinned: Whether it never ages.

        Returns:
            The note's handle, such as `M17`.

        Raises:
            ConfigurationError: The text is empty.
            StoreError: The ledger cannot be written.
        """
        if not text.strip():
            raise ConfigurationError("There is nothing to remember: the text is empty.")
        number = self._engine.remember(
            text,
            namespace=self.namespace,
            session_id=self.session_id,
            tags=tuple(tags),
            pinned=pinned,
        )
        return f"M{number}"

    def recall(
        self,
        query: str,
        *,
        tool: str = "",
        command: str | Mapping[str, Any] = "",
        k: int | None = None,
        filters: RecallFilter | None = None,
    ) -> list[Hit]:
        """Recall what helps with a request, best first.

        Args:
            query: The request, in any words.
            tool: The tool that is about to be called, where it is known.
            command: Its input, where it is known.
            k: Memories to return; None: as in the settings.
            filters: Which memories may be returned.

        Raises:
            StoreError: The ledger cannot be read.
        """
        return self._engine.recall(
            query,
            namespace=self.namespace,
            session_id=self.session_id,
            tool=tool,
            command=command,
            k=k,
            filters=filters,
        )

    def context(
        self,
        query: str,
        *,
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
            tool: The tool that is about to be called, where it is known.
            command: Its input, where it is known.
            k: Memories shown; None: as in the settings.
            filters: Which memories may be shown.
            budget_tokens: Tokens that the block may have; None: as in the settings.
            language: Language of the block; None: as in the settings.
        """
        return self._engine.context(
            query,
            namespace=self.namespace,
            session_id=self.session_id,
            tool=tool,
            command=command,
            k=k,
            filters=filters,
            budget_tokens=budget_tokens,
            language=language,
        )

    def working_memory(self, *, language: Literal["en", "zh"] | None = None) -> str:
        """Return the session's last turns, rendered, oldest first; never raises."""
        return self._engine.working_memory(self.namespace, self.session_id, language=language)

    def explain(
        self,
        query: str,
        *,
        tool: str = "",
        command: str | Mapping[str, Any] = "",
        k: int | None = None,
        filters: RecallFilter | None = None,
    ) -> RecallExplanation | MemoryExplanation:
        """Tell what would be recalled for a request and why, or why a memory is what it is.

        Args:
            query: A request, or the handle of a memory, such as `M17`.
            tool: As in `recall`.
            command: As in `recall`.
            k: As in `recall`.
            filters: As in `recall`.

        Returns:
            An explanation that prints as text, shows as a table in a notebook, and has `to_dict()`.

        Raises:
            ConfigurationError: There is no memory of that handle.
            StoreError: The ledger cannot be read.
        """
        if MEMORY_HANDLE.match(query.strip()):
            return MemoryExplanation(self.memory(query), self.settings.admit_importance)
        found = self._engine.search(
            query,
            namespace=self.namespace,
            session_id=self.session_id,
            tool=tool,
            command=command,
            k=k,
            filters=filters,
        )
        return RecallExplanation(query, found.hits, found.dropped)

    def memory(self, handle: str | int) -> Memory:
        """Return a memory by its handle or number.

        Raises:
            ConfigurationError: There is none, in this namespace.
            StoreError: The ledger cannot be read.
        """
        match = MEMORY_HANDLE.match(f"M{handle}" if isinstance(handle, int) else handle.strip())
        found = self._engine.memory(self.namespace, int(match[1])) if match else None
        if found is None:
            raise ConfigurationError(f"There is no memory {handle!r} in this namespace.")
        return found

    def recent(self, limit: int = 20) -> list[Record]:
        """Return the newest records of the session, newest first, also those outside long-term memory.

        Raises:
            StoreError: The ledger cannot be read.
        """
        return self._engine.newest(self.namespace, self.session_id, limit)

    # ------------------------------------------------------------------ verdicts

    def rate(self, handle: str | int, *, helpful: bool) -> None:
        """Tell whether a memory helped; it moves up or down a little.

        Raises:
            ConfigurationError: There is no such memory.
        """
        number = self.memory(handle).number
        self._engine.ledger.add_feedback(self.namespace, number, 1 if helpful else -1)

    def withdraw(self, handle: str | int, *, obsolete: bool = True) -> None:
        """Take a memory out of recall, or bring it back; nothing is deleted.

        Raises:
            ConfigurationError: There is no such memory.
        """
        self._engine.ledger.set_obsolete(self.namespace, self.memory(handle).number, obsolete=obsolete)

    def pin(self, handle: str | int, *, pinned: bool = True) -> None:
        """Keep a memory from ageing, or let it go.

        Raises:
            ConfigurationError: There is no such memory.
        """
        self._engine.ledger.pin(self.namespace, self.memory(handle).number, pinned=pinned)

    def forget(self, *handles: str | int) -> list[str]:
        """Delete memories with all that belongs to them; return the handles of those that were there.

        Raises:
            StoreError: The ledger or the index cannot be written.
        """
        matches = [MEMORY_HANDLE.match(str(handle).strip().upper()) for handle in map(_handle, handles)]
        numbers = [int(match[1]) for match in matches if match]
        return [f"M{number}" for number in self._engine.forget(self.namespace, numbers)]

    # ------------------------------------------------------------------ life

    def stats(self) -> dict[str, int]:
        """Return numbers: of this namespace's records and memories, and what this process has counted.

        Keys: those of `Ledger.counts`, and `session.*` for the counters of the process: `offered`, `stored`,
        `recalls`, `capture_errors`, `recall_errors`, `dropped_runs`.
        """
        counted = {f"session.{name}": number for name, number in self._engine.counters().items()}
        return {**self._engine.ledger.counts(self.namespace), **counted}

    def flush(self, timeout: float | None = None) -> bool:
        """Index everything that is recorded; return False if the time was too short.

        Args:
            timeout: Seconds; None: as long as it takes.

        Raises:
            EmbeddingError: The model failed; what is not indexed yet stays queued in the ledger.
            StoreError: The ledger or the index cannot be used.
        """
        return self._engine.flush(timeout)

    def close(self) -> None:
        """Index what is left and close the store; a view from `scoped` leaves it open."""
        if not self._scoped:
            self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        where = self.namespace
        return f"HermesMemory(user={where.user!r}, agent={where.agent!r}, session_id={self.session_id!r})"

    @staticmethod
    def reembed(path: str | Path, *, embeddings: Embeddings | None = None, progress: bool = True) -> int:
        """Index a store again, for another embedding model; no process may have it open.

        Where it is broken off, opening the store with the new model goes on with it.

        Args:
            path: Folder of the store.
            embeddings: The new model; None: the best that is installed.
            progress: Whether a progress bar is shown.

        Returns:
            The number of memories that were indexed.

        Raises:
            StoreError: There is no store, or it cannot be written.
            EmbeddingError: The new model failed.
        """
        from langchain_hermes_memory.reembed import reembed  # noqa: PLC0415 - brings the progress bar

        folder = Path(path)
        if not (folder / LEDGER_FILE).is_file():
            raise StoreError(f"{folder} holds no memory: there is no {LEDGER_FILE} in it.")
        model = embeddings or default_embeddings()
        with Ledger.open(folder / LEDGER_FILE) as ledger:
            return reembed(
                ledger,
                folder / INDEX_FOLDER,
                lambda: open_indexer(ledger, model, own_settings(folder), folder, None),
                progress=progress,
            )


def _handle(handle: str | int) -> str:
    return f"M{handle}" if isinstance(handle, int) else handle


def _close(engine: weakref.ref[Engine]) -> None:
    alive = engine()
    if alive is not None:
        alive.close()
