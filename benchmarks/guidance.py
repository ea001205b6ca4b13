"""Replays behavioural cases and judges the context: `python -m benchmarks.guidance --data dev.jsonl`.

Every event goes through the real callback handler at its own time; then the request is asked and the block is
compared with what the case expects.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import uuid4

from langchain_core.embeddings import Embeddings
from langchain_core.tools import ToolException
from tqdm import tqdm

from benchmarks._common import parser, print_last_line, read_lines
from langchain_hermes_memory import Block, HermesMemory, OfflineEmbeddings, RecallFilter
from langchain_hermes_memory.action import read_targets
from langchain_hermes_memory.caveats import caveats
from langchain_hermes_memory.record import LOOK_ALIKE, Hit, Target
from langchain_hermes_memory.testing import FrozenClock

LIMITS = frozenset({"transient", "resolved", "target", "other_target", "hours", "days", "hours_on_days"})
"""Caveats that say: may be temporary, is solved, concerns its own target or time only."""
NOWHERE = 10**6


@dataclass(frozen=True, slots=True)
class Shown:
    """One entry of the block, in the terms of the cases."""

    event: str
    """The event of the record that the entry tells of: the newest of those that are folded in it."""
    caveated: bool
    resolved: bool


def replay(case: Mapping[str, Any], memory: HermesMemory, clock: FrozenClock) -> dict[str, str]:
    """Play a case's history into a memory; return the events by the ids of their records."""
    events: dict[str, str] = {}
    for event in case["history"]:
        clock.now = datetime.fromisoformat(event["at"])
        if event["kind"] == "maintain":
            continue
        owner = memory.scoped(session_id=event["session"], **event.get("namespace", case["namespace"]))
        before = {record.id for record in owner.recent(2)}
        play(event, owner)
        events.update({record.id: event["id"] for record in owner.recent(2) if record.id not in before})
    memory.flush()
    return events


def play(event: Mapping[str, Any], memory: HermesMemory) -> None:
    """Give one event to the callback handler, as a run of an agent would."""
    handler, chain, run = memory.callback, uuid4(), uuid4()
    if event["kind"] == "turn":
        handler.on_chain_start({}, {"input": event["user"]}, run_id=chain)
        handler.on_chain_end({"output": event["assistant"]}, run_id=chain)
        return
    given = event["input"]
    handler.on_chain_start({}, {"input": event["intent"]}, run_id=chain)
    handler.on_tool_start(
        {"name": event["tool"]},
        str(given),
        run_id=run,
        parent_run_id=chain,
        inputs=given if isinstance(given, dict) else None,
    )
    if "error" in event:
        handler.on_tool_error(ToolException(event["error"]), run_id=run, parent_run_id=chain)
    else:
        handler.on_tool_end(event["output"], run_id=run, parent_run_id=chain)
    handler.on_chain_end({}, run_id=chain)


def ask(case: Mapping[str, Any], memory: HermesMemory, clock: FrozenClock) -> Block:
    """Ask the case's question."""
    question = case["ask"]
    clock.now = datetime.fromisoformat(question["at"])
    owner = memory.scoped(session_id=question["session"], **case["namespace"])
    return owner.context(
        question["request"],
        tool=question.get("tool", ""),
        k=question["k"],
        budget_tokens=question["budget_tokens"],
        filters=RecallFilter(
            safety_critical=question["safety_critical"], want_failures=question["want_failures"]
        ),
    )


def read_block(block: Block, request: str, events: Mapping[str, str]) -> list[Shown]:
    """Return what a block shows, in its order."""
    asked = read_targets(request)
    return [_shown(hit, asked, events) for hit in block.hits]


def _shown(hit: Hit, asked: Sequence[Target], events: Mapping[str, str]) -> Shown:
    memory = hit.memory
    kinds = {caveat.kind for caveat in caveats(memory, asked)}
    other = any(factor.name == LOOK_ALIKE for factor in hit.factors)
    return Shown(events.get(memory.record.id, ""), other or bool(kinds & LIMITS), "resolved" in kinds)


def judge(case: Mapping[str, Any], block: Block, shown: Sequence[Shown]) -> list[str]:
    """Return the names of the expectations that are not met."""
    expect = case["expect"]
    rank = {entry.event: place for place, entry in enumerate(shown)}
    text = block.text.casefold()
    checks = {
        "shown": "shown" not in expect or any(event in rank for event in expect["shown"]),
        "hidden": not any(event in rank for event in expect.get("hidden", ())),
        "caveated": all(entry.caveated for entry in shown if entry.event in expect.get("caveated", ())),
        "resolved": all(entry.resolved for entry in shown if entry.event in expect.get("resolved", ())),
        "first": all(
            rank.get(expect.get("first", ""), NOWHERE) < rank[event]
            for event in expect.get("after", ())
            if event in rank
        ),
        "text_any": any(piece.casefold() in text for piece in expect.get("text_any", ("",))),
        "text_none": not any(piece.casefold() in text for piece in expect.get("text_none", ())),
        "max_records": len(shown) <= expect.get("max_records", NOWHERE),
        "max_tokens": block.tokens <= expect.get("max_tokens", NOWHERE),
    }
    return [name for name, met in checks.items() if not met]


def run(case: Mapping[str, Any], embeddings: Embeddings) -> tuple[list[str], Block, list[Shown]]:
    """Run one case in an empty memory; return the expectations that are not met, and the context."""
    clock = FrozenClock(datetime.fromisoformat(case["ask"]["at"]))
    with (
        tempfile.TemporaryDirectory() as folder,
        HermesMemory(folder, embeddings=embeddings, clock=clock) as memory,
    ):
        events = replay(case, memory, clock)
        block = ask(case, memory, clock)
    shown = read_block(block, case["ask"]["request"], events)
    return judge(case, block, shown), block, shown


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the cases and print the figures."""
    options = parser(__doc__ or "")
    options.add_argument("--verbose", action="store_true", help="show the context of each failed case")
    options.add_argument("--case", default="", help="run only cases whose id begins so")
    given = options.parse_args(arguments)
    embeddings = OfflineEmbeddings()
    passed: Counter[str] = Counter()
    total: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    tokens = 0
    cases = [case for case in read_lines(given.data) if case["id"].startswith(given.case)]
    for case in tqdm(cases, unit=" cases", disable=given.json):
        unmet, block, shown = run(case, embeddings)
        total[case["family"]] += 1
        passed[case["family"]] += not unmet
        missed.update(unmet)
        tokens += block.tokens
        if unmet and not given.json:
            tqdm.write(f"{case['id']}: not met: {', '.join(unmet)}")
            if given.verbose:
                tqdm.write(
                    f"  asked: {case['ask']['request']}\n  expected: {case['expect']}\n  {case['why']}"
                )
                tqdm.write(f"  shown: {[entry.event for entry in shown]}\n{block.text}\n")
    families = {family: [passed[family], total[family]] for family in sorted(total)}
    if not given.json:
        for family, (good, of) in families.items():
            print(f"{family:16} {good:3} of {of}")
    print_last_line(
        {
            "passed": passed.total(),
            "total": total.total(),
            "families": families,
            "unmet": dict(missed),
            "mean_tokens": tokens / max(1, total.total()),
        }
    )


if __name__ == "__main__":
    main()
