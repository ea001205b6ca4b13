"""Explanations: why a memory was recalled or not, and why a record is what it is."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from langchain_hermes_memory._text import one_line, shorten
from langchain_hermes_memory.caveats import caveats
from langchain_hermes_memory.record import Hit, Memory

_WIDTH = 60


class RecallExplanation:
    """Every candidate for a request, with what made its score and why it was shown or not.

    Args:
        query: The request.
        hits: What is shown, best first.
        dropped: What is not, each with the reason.
    """

    def __init__(self, query: str, hits: Sequence[Hit], dropped: Sequence[Hit]) -> None:
        self.query = query
        self.hits = tuple(hits)
        self.dropped = tuple(dropped)

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as plain values."""
        return {"query": self.query, "candidates": [_hit(hit) for hit in (*self.hits, *self.dropped)]}

    def __str__(self) -> str:
        lines = [f"{len(self.hits)} of {len(self.hits) + len(self.dropped)} candidates for: {self.query}"]
        for row in self.to_dict()["candidates"]:
            verdict = f"not shown: {row['dropped']}" if row["dropped"] else "shown"
            parts = " + ".join(f"{name} {value}" for name, value in row["signals"].items())
            times = "".join(f" \u00d7 {factor['value']} {factor['name']}" for factor in row["factors"])
            lines.append(f"{row['handle']:>6} {row['score']:6.2f}  {verdict:<22} {row['what']}")
            lines.append(f"{'':>15}{f'({parts})' if times else parts}{times}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = [
            [
                row["handle"],
                row["score"],
                row["dropped"] or "✓",
                row["what"],
                ", ".join(f"{name} {value}" for name, value in row["signals"].items()),
                ", ".join(f"{factor['name']} ×{factor['value']}" for factor in row["factors"]),
            ]
            for row in self.to_dict()["candidates"]
        ]
        return _table(["memory", "score", "shown", "what", "relevance", "factors"], rows)


class MemoryExplanation:
    """Why a memory is what it is: what its outcome was read off, what its importance rests on, its limits.

    Args:
        memory: The memory.
        threshold: Importance from which a record enters long-term memory.
    """

    def __init__(self, memory: Memory, threshold: int) -> None:
        self.memory = memory
        self.threshold = threshold

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as plain values."""
        record, seen = self.memory.record, self.memory.occurrences
        result = record.execution_result
        return {
            "handle": self.memory.handle,
            "record": record.id,
            "what": record.description,
            "status": result.status.value,
            "category": None if result.category is None else result.category.value,
            "error_code": result.error_code,
            "transient": result.transient,
            "evidence": [piece.model_dump() for piece in result.evidence],
            "importance": record.importance_score,
            "threshold": self.threshold,
            "reasons": [reason.model_dump() for reason in record.importance_reasons],
            "dangers": list(record.action.dangers),
            "targets": [target.model_dump(mode="json") for target in record.action.targets],
            "times": seen.times,
            "of": seen.action_times,
            "first_seen": seen.first_seen.isoformat(),
            "last_seen": seen.last_seen.isoformat(),
            "lifecycle": self.memory.lifecycle.value,
            "caveats": [caveat.kind for caveat in caveats(self.memory)],
        }

    def __str__(self) -> str:
        found = self.to_dict()
        category = f" ({found['category']} {found['error_code']})" if found["category"] else ""
        lines = [
            f"{found['handle']}  {found['what']}",
            f"  outcome: {found['status']}{category}; transient: {found['transient']}",
            *(f"    {piece['source']}/{piece['rule']}: {piece['quote']}" for piece in found["evidence"]),
            f"  importance: {found['importance']} (long-term from {found['threshold']})",
            *(
                f"    {reason['points']:+g} {reason['rule']} {reason['detail']}"
                for reason in found["reasons"]
            ),
            f"  seen: {found['times']} of {found['of']} runs, {found['first_seen']} to {found['last_seen']}",
            f"  lifecycle: {found['lifecycle']}; caveats: {', '.join(found['caveats']) or 'none'}",
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return _table(["field", "value"], [[name, value] for name, value in self.to_dict().items()])


def _hit(hit: Hit) -> dict[str, Any]:
    return {
        "handle": hit.memory.handle,
        "record": hit.memory.record.id,
        "what": shorten(one_line(hit.memory.record.description), _WIDTH),
        "score": round(hit.score, 3),
        "relevance": round(hit.relevance, 3),
        "signals": {name: round(value, 3) for name, value in hit.signals.items()},
        "factors": [
            {"name": factor.name, "value": round(factor.value, 3), "detail": factor.detail}
            for factor in hit.factors
        ],
        "dropped": hit.dropped,
    }


def _table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in heads)
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
