"""Measures the outcome reader on labelled tool outputs: `python -m benchmarks.outcomes --data dev.jsonl`."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._common import parser, print_last_line, read_lines
from langchain_hermes_memory.outcome import OutcomeReader
from langchain_hermes_memory.record import Category, Status, Target

STATUSES = ("success", "failure", "partial")
SUBSETS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "all": lambda _: True,
    "zh": lambda item: item["lang"] == "zh",
    "hard": lambda item: bool(item["hard"]),
    "zh_hard": lambda item: item["lang"] == "zh" and bool(item["hard"]),
    "clear": lambda item: not item["ambiguous"],
}
SHELLS = ("Bash", "PowerShell")


@dataclass(frozen=True, slots=True)
class Prediction:
    """What was read from one item, in the terms of the labels."""

    status: str
    category: str | None
    transient: bool
    dangerous: bool
    seconds: float
    why: str


def predict(reader: OutcomeReader, item: dict[str, Any]) -> Prediction:
    """Read one item."""
    tool, command = item["tool"] or "", item["command"] or ""
    targets, dangerous = _action(tool, command)
    start = time.perf_counter()
    outcome = reader.read(tool=tool, command=command, output=item["output"], targets=targets)
    seconds = time.perf_counter() - start
    status = "success" if outcome.status is Status.UNKNOWN else outcome.status.value
    category = outcome.category.value if outcome.category and status != "success" else None
    why = " < ".join(f"{seen.source}:{seen.rule}" for seen in outcome.evidence)
    return Prediction(status, category, bool(outcome.transient), dangerous, seconds, why)


def metrics(rows: list[tuple[dict[str, Any], Prediction]]) -> dict[str, Any]:
    """Return the figures of one subset: balanced status is the mean recall of the statuses present."""
    recall = {
        status: _share(p.status == status for item, p in rows if item["status"] == status)
        for status in STATUSES
        if any(item["status"] == status for item, _ in rows)
    }
    present = [c.value for c in Category if any(item["category"] == c.value for item, _ in rows)]
    f1 = {
        name: _f1((item["category"] == name, p.category == name) for item, p in rows)[2] for name in present
    }
    decided = [(bool(item["transient"]), p.transient) for item, p in rows if item["transient"] is not None]
    precision, found, _ = _f1((bool(item["dangerous"]), p.dangerous) for item, p in rows)
    return {
        "n": len(rows),
        "balanced_status": statistics.fmean(recall.values()),
        "status_accuracy": _share(item["status"] == p.status for item, p in rows),
        "success_recall": recall.get("success"),
        "failed_recall": _share(p.status != "success" for item, p in rows if item["status"] != "success"),
        "partial_recall": recall.get("partial"),
        "macro_f1": statistics.fmean(f1.values()) if f1 else None,
        "transient_f1": _f1(decided)[2],
        "dangerous_recall": found,
        "dangerous_precision": precision,
        "category_f1": f1,
    }


def tool_log(path: Path, reader: OutcomeReader, *, verbose: bool) -> dict[str, Any]:
    """Measure failures of real shell calls against the flag that the agent's harness set."""
    pairs, masked = [], []
    for item in read_lines(path):
        if item["tool"] not in SHELLS:
            continue
        outcome = reader.read(tool=item["tool"], command=item["input"], output=item["output"])
        said = outcome.status in (Status.FAILURE, Status.PARTIAL)
        pairs.append((bool(item["failed"]), said))
        hidden = any(mark in item["input"] for mark in ("|", ";", "||", "\n"))
        masked.append(hidden)
        if verbose and said != bool(item["failed"]):
            why = " < ".join(f"{seen.source}:{seen.rule} {seen.quote!r}" for seen in outcome.evidence[:2])
            print(
                f"{'missed' if item['failed'] else 'extra '} {item['id']} {item['input'][:100]!r}\n    {why}"
            )
    precision, recall, _ = _f1(pairs)
    bare, _, _ = _f1(pair for pair, hidden in zip(pairs, masked, strict=True) if not hidden)
    return {
        "toolmem_n": len(pairs),
        "toolmem_failed": sum(gold for gold, _ in pairs),
        "toolmem_precision": precision,
        "toolmem_recall": recall,
        "toolmem_precision_plain_commands": bare,
    }


def size_figures(reader: OutcomeReader, items: list[dict[str, Any]]) -> dict[str, float]:
    """Time the same outputs with so much of a log before them that they have a given size."""
    figures = {}
    for name, size, some in (("10kb", 10_000, items), ("1mb", 1_000_000, items[:50])):
        log = "\n".join(f"2026-03-01 10:{n % 60:02d} worker {n} took {n % 90} ms" for n in range(size // 35))
        times = []
        for item in some:
            output = log[: max(0, size - len(item["output"]))] + "\n" + item["output"]
            start = time.perf_counter()
            reader.read(tool=item["tool"] or "", command=item["command"] or "", output=output)
            times.append((time.perf_counter() - start) * 1_000)
        figures[f"ms_median_{name}"] = statistics.median(times)
        figures[f"ms_max_{name}"] = max(times)
    return figures


def _action(tool: str, command: str) -> tuple[tuple[Target, ...], bool]:
    try:
        from langchain_hermes_memory.action import read_action
    except ImportError:
        return (), False
    action = read_action(tool, command)
    return action.targets, action.dangerous


def _share(values: Iterable[bool]) -> float:
    counted = list(values)
    return sum(counted) / len(counted) if counted else 0.0


def _f1(pairs: Iterable[tuple[bool, bool]]) -> tuple[float, float, float]:
    counts = Counter(pairs)
    both, extra, missed = counts[True, True], counts[False, True], counts[True, False]
    precision = both / (both + extra) if both + extra else 0.0
    recall = both / (both + missed) if both + missed else 0.0
    return precision, recall, 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _print_table(name: str, figures: dict[str, Any]) -> None:
    shown = " ".join(
        f"{key}={value:.3f}"
        for key, value in figures.items()
        if isinstance(value, float) and value is not None
    )
    print(f"{name:8s} n={figures['n']:4d} {shown}")


def _print_confusion(confusion: Counter[tuple[str, str]]) -> None:
    print("\nlabel \\ read  " + "".join(f"{status:>10s}" for status in STATUSES))
    for gold in STATUSES:
        print(f"{gold:13s} " + "".join(f"{confusion[gold, read]:10d}" for read in STATUSES))


def _print_errors(rows: list[tuple[dict[str, Any], Prediction]]) -> None:
    for item, p in rows:
        transient_wrong = item["transient"] is not None and bool(item["transient"]) != p.transient
        if (item["status"], item["category"]) != (p.status, p.category) or transient_wrong:
            gold = f"{item['status']}/{item['category']}/{item['transient']}"
            print(f"{item['id']} gold {gold} read {p.status}/{p.category}/{p.transient}  [{p.why}]")
            print(f"    {item['tool']} $ {str(item['command'])[:150]!r}\n    {item['output'][-400:]!r}")


def main() -> None:
    """Run the benchmark."""
    options = parser("Measure the outcome reader on labelled tool outputs.")
    options.add_argument(
        "--toolmem", type=Path, help="records of real tool calls with a `failed` flag (JSON lines)"
    )
    options.add_argument(
        "--verbose", action="store_true", help="print F1 by category and what differs in --toolmem"
    )
    options.add_argument(
        "--errors", action="store_true", help="print every item that was read otherwise than labelled"
    )
    arguments = options.parse_args()
    reader = OutcomeReader()
    reader.read(tool="bash", command="true", output="warm")
    result: dict[str, Any] = {}
    if arguments.data:
        rows = [(item, predict(reader, item)) for item in read_lines(arguments.data)]
        subsets = {
            name: metrics([row for row in rows if choose(row[0])])
            for name, choose in SUBSETS.items()
            if any(choose(row[0]) for row in rows)
        }
        confusion = Counter((item["status"], p.status) for item, p in rows)
        result = {key: value for key, value in subsets["all"].items() if key != "failed_recall"}
        for name in ("zh", "hard"):
            result[f"{name}_balanced_status"] = subsets.get(name, {}).get("balanced_status")
            result[f"{name}_macro_f1"] = subsets.get(name, {}).get("macro_f1")
        result["ms_median"] = statistics.median(p.seconds for _, p in rows) * 1_000
        result |= size_figures(reader, [item for item, _ in rows])
        result["confusion"] = {gold: {read: confusion[gold, read] for read in STATUSES} for gold in STATUSES}
        if arguments.errors:
            _print_errors(rows)
        if not arguments.json:
            for name, figures in subsets.items():
                _print_table(name, figures)
            _print_confusion(confusion)
            print(
                f"\n{result['ms_median']:.2f} ms per item (median); "
                f"padded to 10 kB {result['ms_median_10kb']:.2f}, "
                f"to 1 MB {result['ms_median_1mb']:.2f}"
            )
        if arguments.verbose:
            print({name: round(value, 2) for name, value in result["category_f1"].items()})
    if arguments.toolmem:
        result |= tool_log(arguments.toolmem, reader, verbose=arguments.verbose)
    print_last_line(result)


if __name__ == "__main__":
    main()
