"""A memory for LangChain agents that use tools: what happened, why, and how far each lesson reaches."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langchain_hermes_memory.embeddings import OfflineEmbeddings, default_embeddings
    from langchain_hermes_memory.errors import HermesMemoryError
    from langchain_hermes_memory.memory import HermesMemory
    from langchain_hermes_memory.record import Category, Lifecycle, Namespace, RecallFilter, Record, Status
    from langchain_hermes_memory.render import Block
    from langchain_hermes_memory.score_llm import LLMScorer
    from langchain_hermes_memory.settings import Settings

_HOMES = {
    "Block": "render",
    "Category": "record",
    "HermesMemory": "memory",
    "HermesMemoryError": "errors",
    "LLMScorer": "score_llm",
    "Lifecycle": "record",
    "Namespace": "record",
    "OfflineEmbeddings": "embeddings",
    "RecallFilter": "record",
    "Record": "record",
    "Settings": "settings",
    "Status": "record",
    "default_embeddings": "embeddings",
}

__all__ = [
    "Block",
    "Category",
    "HermesMemory",
    "HermesMemoryError",
    "LLMScorer",
    "Lifecycle",
    "Namespace",
    "OfflineEmbeddings",
    "RecallFilter",
    "Record",
    "Settings",
    "Status",
    "default_embeddings",
]


def __getattr__(name: str) -> Any:
    """Load a public name on first use, so that importing the package costs next to nothing."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return __all__
