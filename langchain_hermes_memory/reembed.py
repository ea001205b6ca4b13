"""Maintenance: indexes a store again for another embedding model."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from tqdm import tqdm

from langchain_hermes_memory.index import VectorIndex
from langchain_hermes_memory.indexer import Indexer
from langchain_hermes_memory.ledger import Ledger


def reembed(
    ledger: Ledger, folder: Path, open_indexer: Callable[[], Indexer], *, progress: bool = True
) -> int:
    """Index all memories of a ledger again; the old index is deleted when the new one is complete.

    Args:
        ledger: The records.
        folder: The index's folder.
        open_indexer: Opens the new index on the same folder.
        progress: Whether a progress bar is shown.

    Returns:
        The number of memories that were indexed.
    """
    old = VectorIndex.set_aside(folder) if folder.exists() else None
    total = ledger.mark_all_pending()
    indexer = open_indexer()
    try:
        with tqdm(total=total, unit=" memories", disable=not progress) as bar:
            more = True
            while more:
                more = indexer.step()
                bar.update(total - ledger.pending_count() - bar.n)
    finally:
        indexer.close()
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)
    return total
