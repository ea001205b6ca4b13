"""Measures recall across languages: `python -m benchmarks.crosslingual --data crosslingual.jsonl`.

With JSON lines of aligned turns (`zh`, `en`), each turn is a memory in one language and is asked for in the
other, both ways. With a Python file that has `records()` and `queries()`, the records of both languages are
in one store, and the queries are in the record's language or in the other. Look-alikes are made up here:
folders whose names differ by a suffix; the request names one of them.
"""

from __future__ import annotations

import runpy
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from uuid import uuid4

from langchain_core.embeddings import Embeddings
from tqdm import tqdm

from benchmarks._common import parser, print_last_line, read_lines
from langchain_hermes_memory import HermesMemory, OfflineEmbeddings

FOLDERS = ("cache", "logs", "exports", "uploads", "session", "backup", "thumbs", "reports")
SUFFIXES = ("", "_backup", "-old", "2")
RANKS = 10


def remembered(texts: Iterable[str], memory: HermesMemory) -> list[int]:
    """Store texts as notes; return their numbers."""
    numbers = [int(memory.remember(text)[1:]) for text in texts]
    memory.flush()
    return numbers


def rank_of(number: int, query: str, memory: HermesMemory) -> int:
    """Return the place of a memory among the first, from 1; 0 where it is not."""
    found = [hit.memory.number for hit in memory.recall(query, k=RANKS)]
    return found.index(number) + 1 if number in found else 0


def figures(ranks: Mapping[str, Sequence[int]]) -> dict[str, dict[str, float]]:
    """Return recall at 1, 5 and 10 and the mean reciprocal rank of each group."""
    return {
        name: {
            "n": len(places),
            **{f"recall@{k}": sum(0 < place <= k for place in places) / len(places) for k in (1, 5, 10)},
            "mrr": sum(1 / place for place in places if place) / len(places),
        }
        for name, places in ranks.items()
    }


def aligned(data: Path, embeddings: Embeddings, *, quiet: bool) -> dict[str, list[int]]:
    """Ask for each turn in the other language."""
    turns = read_lines(data)
    ranks: dict[str, list[int]] = {}
    for kept, asked in (("zh", "en"), ("en", "zh")):
        with tempfile.TemporaryDirectory() as folder, HermesMemory(folder, embeddings=embeddings) as memory:
            numbers = remembered((turn[kept] for turn in turns), memory)
            pairs = tqdm(list(zip(numbers, turns, strict=True)), desc=f"{asked}2{kept}", disable=quiet)
            ranks[f"{asked}2{kept}"] = [rank_of(number, turn[asked], memory) for number, turn in pairs]
    return ranks


def mixed(data: Path, embeddings: Embeddings) -> dict[str, list[int]]:
    """Ask for records of both languages in one store."""
    module = runpy.run_path(str(data))
    ranks: dict[str, list[int]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder, HermesMemory(folder, embeddings=embeddings) as memory:
        records = module["records"]()
        numbers = dict(
            zip((each for each, _ in records), remembered((text for _, text in records), memory), strict=True)
        )
        for group, query, wanted in module["queries"]():
            place = rank_of(numbers[wanted], query, memory)
            ranks[group].append(place)
            ranks["all"].append(place)
    return ranks


def lookalikes(embeddings: Embeddings) -> dict[str, list[int]]:
    """Ask for one folder among others of similar names, as tool runs."""
    ranks: dict[str, list[int]] = defaultdict(list)
    names = [f"/data/{folder}{suffix}" for folder in FOLDERS for suffix in SUFFIXES]
    with tempfile.TemporaryDirectory() as folder, HermesMemory(folder, embeddings=embeddings) as memory:
        handler = memory.callback
        for name in names:
            run = uuid4()
            handler.on_tool_start({"name": "clean_folder"}, name, run_id=run, inputs={"path": name})
            handler.on_tool_end(f"SUCCESS: cleaned {name}", run_id=run)
        memory.flush()
        for lang, request in (("en", "clean up {} please"), ("zh", "请清理 {} 目录")):
            for name in names:
                first = memory.recall(request.format(name), k=1)
                shown = first[0].memory.record.action.targets if first else ()
                ranks[f"lookalike_{lang}"].append(int(name in [target.value for target in shown]))
    return ranks


def main(arguments: Sequence[str] | None = None) -> None:
    """Ask everything and print the figures."""
    given = parser("Measures recall across languages.").parse_args(arguments)
    embeddings = OfflineEmbeddings()
    if given.data.suffix == ".py":
        ranks = mixed(given.data, embeddings)
    else:
        ranks = aligned(given.data, embeddings, quiet=given.json)
    found = figures({**ranks, **lookalikes(embeddings)})
    if not given.json:
        for name, values in found.items():
            print(f"{name:14} " + " ".join(f"{key}={value:.3g}" for key, value in values.items()))
    print_last_line({"figures": found})


if __name__ == "__main__":
    main()
