"""The retriever and the context runnable: the memory as a part of LCEL chains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda, run_in_executor
from pydantic import Field, SkipValidation
from typing_extensions import override

from langchain_hermes_memory._messages import request_text
from langchain_hermes_memory.adapters import MemoryEngine, session_of
from langchain_hermes_memory.record import Hit, Namespace, RecallFilter


class HermesRetriever(BaseRetriever):
    """Recalls memories as documents, best first; raises what the engine raises.

    `k` and `filters` are fields, and can be given per call:

    ```python
    retriever.invoke("clean up the cache", k=3, filters=RecallFilter(statuses=(Status.FAILURE,)))
    ```
    """

    engine: SkipValidation[MemoryEngine] = Field(exclude=True, repr=False)
    """The memory."""
    namespace: Namespace = Namespace()
    """Whose memory it is."""
    session_id: str = "default"
    """Session of calls whose metadata hold neither `session_id` nor `thread_id`."""
    k: int | None = Field(default=None, ge=1)
    """Greatest number of documents; None: as in the settings."""
    filters: RecallFilter | None = None
    """Which memories may be recalled."""

    @override
    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        k: int | None = None,
        filters: RecallFilter | None = None,
    ) -> list[Document]:
        return self._recall(query, run_manager.metadata, k, filters)

    @override
    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,
        k: int | None = None,
        filters: RecallFilter | None = None,
    ) -> list[Document]:
        # The inherited method takes no arguments of a call.
        return await run_in_executor(None, self._recall, query, run_manager.metadata, k, filters)

    def _recall(
        self, query: str, metadata: Mapping[str, Any] | None, k: int | None, filters: RecallFilter | None
    ) -> list[Document]:
        hits = self.engine.recall(
            query,
            namespace=self.namespace,
            session_id=session_of(metadata) or self.session_id,
            k=self.k if k is None else k,
            filters=self.filters if filters is None else filters,
        )
        return [to_document(hit) for hit in hits]


def context_runnable(
    engine: MemoryEngine,
    *,
    namespace: Namespace | None = None,
    session_id: str = "default",
    k: int | None = None,
    filters: RecallFilter | None = None,
    budget_tokens: int | None = None,
) -> Runnable[Any, str]:
    """Return a runnable from a request to the context block, for a prompt variable.

    ```python
    chain = RunnablePassthrough.assign(memory=context_runnable(engine)) | prompt | model
    ```

    Its input is the request, or a mapping that holds it under `input`, `question`, `query` or `messages`.
    The session is the `session_id` or `thread_id` in the config's metadata, else the one given here.

    Args:
        engine: The memory.
        namespace: Whose memory it is.
        session_id: Session of calls whose metadata name none.
        k: Memories shown; None: as in the settings.
        filters: Which memories may be shown.
        budget_tokens: Tokens that the block may have; None: as in the settings.
    """

    def hermes_context(request: str | Mapping[str, Any], config: RunnableConfig) -> str:
        query = request_text(request)
        if not query:
            return ""
        return engine.context(
            query,
            namespace=namespace or Namespace(),
            session_id=session_of(config.get("metadata")) or session_id,
            k=k,
            filters=filters,
            budget_tokens=budget_tokens,
        ).text

    return RunnableLambda(hermes_context)


def to_document(hit: Hit) -> Document:
    """Return a hit as a document: its description, with what is known about it as plain metadata."""
    memory, record = hit.memory, hit.memory.record
    result, seen = record.execution_result, memory.occurrences
    metadata = {
        "handle": memory.handle,
        "number": memory.number,
        "type": record.type.value,
        "tool": record.tool_name,
        "status": result.status.value,
        "category": None if result.category is None else result.category.value,
        "error_code": result.error_code,
        "lifecycle": memory.lifecycle.value,
        "tags": list(record.tags),
        "importance": record.importance_score,
        "score": hit.score,
        "timestamp": record.timestamp.isoformat(),
        "first_seen": seen.first_seen.isoformat(),
        "last_seen": seen.last_seen.isoformat(),
        "times": seen.times,
        "session_id": record.context.session_id,
        "dangerous": record.action.dangerous,
        "command": record.original_command,
        "solution": memory.solution_text,
    }
    return Document(id=record.id, page_content=record.description, metadata=metadata)
