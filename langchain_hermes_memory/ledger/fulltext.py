"""Full-text search by SQLite's FTS5, with scores that know one namespace only.

All namespaces share one FTS5 table, in which every term carries the id of its namespace: a search touches
that namespace's postings alone. FTS5's own BM25 counts the documents of the whole table, though, so that
other users' memories would move the scores; it only preselects here, and the scores are computed again from
the namespace's own counts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from sqlalchemy import BindParameter, Connection, bindparam, text

MAX_QUERY_TERMS = 32
MAX_POSTINGS = 20_000
"""Terms of a query that are searched, the rarest ones, and the places they may have altogether."""
COMMON_SHARE = 0.1
"""A term that more than this share of the memories have is left out where others remain."""
LEAST_SIZE = 100
"""Memories that a namespace is taken to have at least: among few, no word would seem rare."""
COMMON_FROM = 50
"""Memories from which a namespace has common terms."""
K1 = 1.2
B = 0.75
"""The usual constants of BM25 (Robertson and Zaragoza, 2009): saturation of repetitions, weight of length."""

# FTS5's tokenizer `ascii` splits at ASCII punctuation and spaces; each such character becomes one of a
# private area, which keeps a term whole.
_WHOLE = {code: 0xE000 + code for code in range(128) if not chr(code).isalnum()}
_PREFIX_END = "\ue100"

_CREATE = (
    "CREATE VIRTUAL TABLE words USING fts5(terms, tokenize='ascii')",
    "CREATE VIRTUAL TABLE words_vocabulary USING fts5vocab('words', 'row')",
)
_INSERT = text("INSERT INTO words (rowid, terms) VALUES (:number, :terms)")
_DELETE = text("DELETE FROM words WHERE rowid = :number")
_FREQUENCIES = text("SELECT term, doc FROM words_vocabulary WHERE term IN :terms").bindparams(
    bindparam("terms", expanding=True)
)
# CROSS JOIN keeps SQLite from going through the memories first.
_CANDIDATES = (
    "SELECT memories.number FROM words CROSS JOIN memories ON memories.number = words.rowid "
    "WHERE words MATCH :query AND (memories.admitted OR :everything OR memories.number IN :also) "
    "ORDER BY {order} LIMIT :limit"
)
_ALSO: BindParameter[int] = bindparam("also", expanding=True)
_BEST = text(_CANDIDATES.format(order="words.rank")).bindparams(_ALSO)
_NEWEST = text(_CANDIDATES.format(order="words.rowid DESC")).bindparams(_ALSO)
_TERMS = text("SELECT rowid, terms FROM words WHERE rowid IN :numbers").bindparams(
    bindparam("numbers", expanding=True)
)


class SqliteFullText:
    """The terms of every memory, in a table of FTS5."""

    @staticmethod
    def create(connection: Connection) -> None:
        """Make the tables."""
        for statement in _CREATE:
            connection.exec_driver_sql(statement)

    @staticmethod
    def put(connection: Connection, namespace_id: int, number: int, terms: Sequence[str]) -> None:
        """Store the terms of a memory that has none stored."""
        connection.execute(_INSERT, {"number": number, "terms": " ".join(_encoded(namespace_id, terms))})

    @staticmethod
    def remove(connection: Connection, numbers: Iterable[int]) -> None:
        """Forget the terms of memories."""
        rows = [{"number": number} for number in numbers]
        if rows:
            connection.execute(_DELETE, rows)

    @staticmethod
    def search(
        connection: Connection,
        namespace_id: int,
        terms: Iterable[str],
        limit: int,
        *,
        size: int,
        mean_length: float,
        everything: bool,
        also: Collection[int],
    ) -> list[tuple[int, float]]:
        """Return the numbers of the memories that match best, with their BM25 scores, best first.

        Args:
            connection: A connection that reads.
            namespace_id: Where to search.
            terms: What to search for; one matching term is enough.
            limit: Number of memories to return.
            size: Memories in the namespace.
            mean_length: Their mean number of terms.
            everything: Whether memories that are not admitted are found as well.
            also: Numbers of memories that are found though they are not admitted.
        """
        wanted = list(_encoded(namespace_id, dict.fromkeys(terms)))
        if not wanted:
            return []
        rows = connection.execute(_FREQUENCIES, {"terms": wanted})
        chosen = _rarest({term: found for term, found in rows if found}, size)
        if not chosen:
            return []
        values = {
            "query": " OR ".join(f'"{term}"' for term in chosen),
            "everything": everything,
            "also": list(also),
            "limit": limit * 2 + 50,
        }
        # A term that is nearly everywhere ranks nothing: its newest places are as good as any, and quick.
        everywhere = sum(chosen.values()) > MAX_POSTINGS
        numbers = connection.scalars(_NEWEST if everywhere else _BEST, values).all()
        found = connection.execute(_TERMS, {"numbers": list(numbers)})
        total = max(size, LEAST_SIZE)
        weights = {term: math.log1p((total - count + 0.5) / (count + 0.5)) for term, count in chosen.items()}
        scored = [(number, _bm25(stored.split(" "), weights, mean_length)) for number, stored in found]
        scored.sort(key=lambda hit: (-hit[1], -hit[0]))
        return scored[:limit]


def _encoded(namespace_id: int, terms: Iterable[str]) -> Iterable[str]:
    return (f"{namespace_id}{_PREFIX_END}{term.translate(_WHOLE)}" for term in terms)


def _rarest(frequencies: Mapping[str, int], size: int) -> dict[str, int]:
    """Return the terms worth searching, rarest first."""
    chosen = sorted(frequencies.items(), key=lambda item: (item[1], item[0]))
    if size > COMMON_FROM:
        chosen = [(term, count) for term, count in chosen if count <= size * COMMON_SHARE] or chosen
    kept: dict[str, int] = {}
    for term, count in chosen[:MAX_QUERY_TERMS]:
        if kept and sum(kept.values()) + count > MAX_POSTINGS:
            break
        kept[term] = count
    return kept


def _bm25(stored: Sequence[str], weights: Mapping[str, float], mean_length: float) -> float:
    length = K1 * (1 - B + B * len(stored) / max(mean_length, 1.0))
    counts = Counter(term for term in stored if term in weights)
    return sum(weights[term] * times * (K1 + 1) / (times + length) for term, times in counts.items())
