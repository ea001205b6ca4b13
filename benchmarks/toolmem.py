"""Measures recall on real tool calls: `python -m benchmarks.toolmem --data records.jsonl`.

Every record is played through the real callback handler at its own time, every query is asked at its own. A
query sees only older records of other sessions; those of the asking session are played afterwards. A folded
memory stands for all its records: it counts as the one of them that the metric looks for.

Forms: `intent` (the user's request), `plan` (the agent's description of the call, and the tool), `command`
(the planned call itself), `error` (the error's text, and the tool).
"""

from __future__ import annotations

import json
import math
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from langchain_core.messages import ToolMessage
from tqdm import tqdm

from benchmarks._common import parser, print_last_line, read_lines
from langchain_hermes_memory import HermesMemory, OfflineEmbeddings
from langchain_hermes_memory.record import Hit
from langchain_hermes_memory.testing import FrozenClock

Row = dict[str, Any]

FORMS = {
    "recur": ("intent", "plan", "command", "error"),
    "recur_rule": ("intent", "error"),
    "resolved": ("intent", "plan", "command"),
    "rejected": ("intent", "plan", "command"),
    "entity": ("intent", "plan", "command"),
}
KEPT_TOOLS = ("Bash", "PowerShell", "Skill")
"""Of the other tools only failures are played, as the data's own evaluation does."""
RANKS = 20
NOWHERE = 10**6


def play(record: Row, memory: HermesMemory, clock: FrozenClock) -> str:
    """Play one record; return the id of what was stored."""
    clock.now = datetime.fromisoformat(record["at"])
    owner = memory.scoped(user=record["ns"], session_id=record["session"])
    handler, chain, run = owner.callback, uuid4(), uuid4()
    handler.on_chain_start({}, {"input": record["intent"]}, run_id=chain)
    handler.on_tool_start(
        {"name": record["tool"]}, record["input"], run_id=run, parent_run_id=chain, inputs=arguments(record)
    )
    status = "error" if record["failed"] else "success"
    output = record["output"] or record.get("error", "")
    handler.on_tool_end(
        ToolMessage(output, tool_call_id=str(run), status=status), run_id=run, parent_run_id=chain
    )
    handler.on_chain_end({}, run_id=chain)
    return owner.recent(1)[0].id


def arguments(call: Row) -> dict[str, Any]:
    """Return the arguments of a call: an object of JSON, or a command with the agent's description of it."""
    try:
        found = json.loads(call["input"])
    except ValueError:
        found = None
    if isinstance(found, dict):
        return found
    return {"command": call["input"]} | ({"description": call["desc"]} if call["desc"] else {})


def ask(query: Row, form: str, memory: HermesMemory) -> list[Hit]:
    """Ask a query in one of its forms."""
    owner = memory.scoped(user=query["ns"], session_id=query["session"])
    plan = (query["desc"] or query["intent"] or "")[:300]
    if form == "intent":
        return owner.recall(query["intent"] or plan or query["input"][:200], k=RANKS)
    if form == "plan":
        return owner.recall(plan, tool=query["tool"], k=RANKS)
    if form == "error":
        return owner.recall((query.get("error") or query["input"])[:400], tool=query["tool"], k=RANKS)
    return owner.recall(query["desc"], tool=query["tool"], command=arguments(query), k=RANKS)


def ranking(query: Row, hits: Sequence[Hit], known: Mapping[str, Row]) -> list[Row]:
    """Return for each memory the one of its records that the metrics look for."""
    grades, stale = query["relevant"], set(query.get("stale", ()))
    exact = {record["exact"] for record in known.values() if record["id"] in grades}

    def worth(record: Row) -> tuple[float, bool, bool]:
        return grades.get(record["id"], 0), record["id"] in stale, record["exact"] in exact

    return [
        max((known[each] for each in hit.memory.occurrences.record_ids if each in known), key=worth)
        for hit in hits
    ]


def measure(query: Row, ranked: Sequence[Row], by_id: Mapping[str, Row]) -> dict[str, float]:
    """Return the metrics of one ranking; they are defined in the data's README."""
    ids = [record["id"] for record in ranked]
    grades = {each: grade for each, grade in query["relevant"].items() if each in by_id}
    best = {each for each, grade in grades.items() if grade == 2} or set(grades)
    first = next((place for place, each in enumerate(ids[:10], 1) if each in best), 0)
    gains = sum(
        (2 ** grades[each] - 1) / math.log2(n + 2) for n, each in enumerate(ids[:10]) if each in grades
    )
    ideal = sum(
        (2**grade - 1) / math.log2(n + 2) for n, grade in enumerate(sorted(grades.values())[::-1][:10])
    )
    top = ranked[:5]
    found = {
        "hit@5": float(0 < first <= 5),
        "hit@10": float(first > 0),
        "mrr": 1 / first if first else 0.0,
        "ndcg@10": gains / ideal if ideal else 0.0,
        "recall@10": len(set(ids[:10]) & set(grades)) / min(10, len(grades)),
        "leak@5": sum(record["ns"] != query["ns"] for record in top) / max(1, len(top)),
        "lookalike@5": sum(record["id"] in query["lookalike"] for record in top) / max(1, len(top)),
    }
    return found | (_staleness(query, ranked, by_id) if query["family"] == "resolved" else {})


def _staleness(query: Row, ranked: Sequence[Row], by_id: Mapping[str, Row]) -> dict[str, float]:
    exact = by_id[next(iter(query["relevant"]))]["exact"]
    stale = min((n for n, record in enumerate(ranked) if record["id"] in query["stale"]), default=NOWHERE)
    fresh = min(
        (n for n, record in enumerate(ranked) if not record["failed"] and record["exact"] == exact),
        default=NOWHERE,
    )
    return {
        "stale@5": float(stale < 5),
        "fresh_first": float(fresh < stale),
        "stale_alone@5": float(stale < 5 <= fresh),
    }


def rounds(records: Sequence[Row], queries: Sequence[Row]) -> Iterator[tuple[list[Row], Row]]:
    """Yield each query with the records to play before it: older ones of other sessions than its own."""
    waiting: list[Row] = []
    number = 0
    for query in queries:
        while number < len(records) and records[number]["at"] < query["at"]:
            waiting.append(records[number])
            number += 1
        yield [record for record in waiting if record["session"] != query["session"]], query
        waiting = [record for record in waiting if record["session"] == query["session"]]


def load(data: Path, queries: Path | None, families: Sequence[str]) -> tuple[list[Row], list[Row]]:
    """Return records and queries in the order of time."""
    records = [
        record
        for record in read_lines(data)
        if record["failed"] or record["tool"] in KEPT_TOOLS or record["tool"].startswith("mcp__")
        if not data.name.startswith("tau")
    ] or read_lines(data)
    records.sort(key=lambda record: record["at"])
    known = {record["id"] for record in records}
    beside = data.with_name(data.name.replace("records", "queries"))
    asked = [
        query
        for query in read_lines(queries or beside)
        if query["family"] in families and not known.isdisjoint(query["relevant"])
    ]
    asked.sort(key=lambda query: query["at"])
    return records, asked


def main(arguments_: Sequence[str] | None = None) -> None:
    """Run all queries and print the figures."""
    options = parser("Measures recall on real tool calls.")
    options.add_argument("--queries", type=Path, help="the queries; else the file beside the records")
    options.add_argument("--families", default=",".join(FORMS), help="families to ask, with commas")
    options.add_argument("--limit", type=int, help="ask only so many queries")
    options.add_argument(
        "--verbose", action="store_true", help="explain the misses of the forms plan and command"
    )
    given = options.parse_args(arguments_)
    records, queries = load(given.data, given.queries, given.families.split(","))
    queries = queries[: given.limit]
    rows: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
    by_id = {record["id"]: record for record in records}
    known: dict[str, Row] = {}
    clock = FrozenClock(datetime.fromisoformat(records[0]["at"]))
    spent: list[float] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        HermesMemory(folder, embeddings=OfflineEmbeddings(), clock=clock) as memory,
        tqdm(total=len(records), unit=" records", disable=given.json) as bar,
    ):
        for played, query in rounds(records, queries):
            for record in played:
                known[play(record, memory, clock)] = record
            bar.update(len(played))
            memory.flush()
            clock.now = datetime.fromisoformat(query["at"])
            for form in FORMS[query["family"]]:
                started = time.perf_counter()
                hits = ask(query, form, memory)
                spent.append(time.perf_counter() - started)
                found = measure(query, ranking(query, hits, known), by_id)
                rows[query["family"], form].append(found)
                if given.verbose and form in ("plan", "command") and not found["hit@5"]:
                    tqdm.write(_miss(query, form, hits, by_id))
    _report(rows, spent, len(records), quiet=given.json)


def _miss(query: Row, form: str, hits: Sequence[Hit], by_id: Mapping[str, Row]) -> str:
    lines = [f"--- {query['id']} {form}: {query['desc'][:80]!r} {query['input'][:120]!r}"]
    lines += [
        f"  wanted {each}: {by_id[each]['input'][:100]!r}"
        for each in list(query["relevant"])[:3]
        if each in by_id
    ]
    lines += [
        f"  {hit.score:5.2f} {dict(hit.signals)} {hit.memory.record.description[:90]}" for hit in hits[:3]
    ]
    return "\n".join(lines)


def _report(
    rows: Mapping[tuple[str, str], Sequence[Mapping[str, float]]],
    spent: list[float],
    records: int,
    *,
    quiet: bool,
) -> None:
    table: dict[str, dict[str, float]] = {}
    for (family, form), found in rows.items():
        names = list(found[0])
        means = {name: statistics.fmean(each[name] for each in found) for name in names}
        table[f"{family}/{form}"] = {"n": len(found), **means}
        if not quiet:
            shown = " ".join(f"{name}={value:.3f}" for name, value in means.items())
            print(f"{family:11} {form:8} n={len(found):3} {shown}")
    print_last_line(
        {"records": records, "recall_ms_median": 1000 * statistics.median(spent), "figures": table}
    )


if __name__ == "__main__":
    main()
