"""The folder of a store: ledger, index and settings, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_core.embeddings import Embeddings

from langchain_hermes_memory.errors import StoreError
from langchain_hermes_memory.index import VectorIndex
from langchain_hermes_memory.indexer import Indexer
from langchain_hermes_memory.ledger import Ledger
from langchain_hermes_memory.settings import Settings

if TYPE_CHECKING:
    from langchain_hermes_memory.index import ChromaClient

LEDGER_FILE = "ledger.db"
INDEX_FOLDER = "chroma"
SETTINGS_FILE = "hermes.toml"


def open_indexer(
    ledger: Ledger, model: Embeddings, settings: Settings, folder: Path | None, client: ChromaClient | None
) -> Indexer:
    """Return what keeps the vectors of a ledger.

    Args:
        ledger: The records.
        model: The embedding model.
        settings: Sizes of texts and batches.
        folder: The store's folder; None: in memory.
        client: A Chroma client to use in place of the folder.
    """
    own = None if folder is None or client is not None else folder / INDEX_FOLDER
    return Indexer(
        ledger,
        lambda: VectorIndex(
            own, model, fingerprints=ledger, client=client, max_chars=settings.max_description_chars
        ),
        model,
        folder=own,
        batch=settings.index_batch,
    )


def own_settings(folder: Path, **tunables: Any) -> Settings:
    """Return the settings of a store: of the file beside it, where there is one."""
    file = folder / SETTINGS_FILE
    return Settings.load(file if file.is_file() else None, **tunables)


def made_folder(folder: Path) -> Path:
    """Make a store's folder where there is none, and return it.

    Raises:
        StoreError: It cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"The folder {folder} cannot be made: {error.strerror}.") from error
    return folder
