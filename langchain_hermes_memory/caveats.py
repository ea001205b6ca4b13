"""Render, first half: what a memory does and does not say, as structure; `text/*.toml` has the words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time

from langchain_hermes_memory.action import TargetRelation, target_relation
from langchain_hermes_memory.record import (
    Action,
    Category,
    Lifecycle,
    Memory,
    RecordType,
    Status,
    Target,
    Window,
)


@dataclass(frozen=True, slots=True)
class Weekdays:
    """Days of the week; Monday is 0."""

    days: tuple[int, ...]


Value = str | int | datetime | tuple[str, ...] | Weekdays
"""A field of a caveat: a handle or command, a count, a time, the names of targets, or days of the week."""


@dataclass(frozen=True, slots=True)
class Caveat:
    """One limit of a memory."""

    kind: str
    """Key of the text in section `caveat`."""
    fields: Mapping[str, Value] = field(default_factory=dict)
    """What the text is filled with."""


def caveats(memory: Memory, asked: Sequence[Target] = ()) -> tuple[Caveat, ...]:
    """Return the limits of a memory, those first that change most what it means.

    Args:
        memory: A memory of a tool run; words of users have no limits of this kind.
        asked: What the request or the planned call names.
    """
    if memory.record.type is not RecordType.TOOL:
        return ()
    found = list(_about_failure(memory)) if memory.record.failed else []
    return (*found, *_about_targets(memory, asked))


def is_about_others(action: Action, asked: Sequence[Target]) -> bool:
    """Whether an action names targets, and none of them is near one of those asked for."""
    relations = {
        target_relation(one, other) for one in asked for other in action.targets if one.kind is other.kind
    }
    return bool(relations) and relations.isdisjoint(NEAR)


NEAR = frozenset({TargetRelation.SAME, TargetRelation.INSIDE, TargetRelation.CONTAINS})
"""Relations in which what is known of one target tells something about the other."""


def _about_failure(memory: Memory) -> Iterator[Caveat]:
    record, result, seen = memory.record, memory.record.execution_result, memory.occurrences
    if memory.window is not None:
        yield _about_hours(memory.window)
    elif memory.lifecycle is Lifecycle.RESOLVED and memory.resolved_at is not None:
        yield Caveat("resolved", {"at": memory.resolved_at, "by": f"M{memory.resolved_by}"})
    elif result.category is Category.BLOCKED:
        yield Caveat("boundary")
    elif memory.lifecycle is Lifecycle.RECURRING:
        yield Caveat("recurring", {"times": seen.times, "first": seen.first_seen, "last": seen.last_seen})
    elif result.transient:
        yield Caveat("transient")
    if result.category is Category.PERMISSION and memory.lifecycle is not Lifecycle.RESOLVED:
        yield Caveat("permission")
    if record.execution_result.status is Status.PARTIAL:
        yield Caveat("partial")
    if memory.worked_until is not None and memory.lifecycle is not Lifecycle.RESOLVED:
        yield Caveat("worked_before", {"at": memory.worked_until})
    if memory.solution is not None and memory.solution_text:
        kind = "mended" if memory.lifecycle is Lifecycle.RESOLVED else "solution"
        yield Caveat(kind, {"solution": memory.solution_text, "by": f"M{memory.solution}"})


def _about_hours(window: Window) -> Caveat:
    fields: dict[str, Value] = {
        "times": window.failures,
        "worked": window.worked_outside,
        "start": f"{window.start:%H:%M}",
        "end": f"{window.end:%H:%M}",
        "weekdays": Weekdays(window.weekdays),
    }
    if not window.weekdays:
        return Caveat("hours", fields)
    return Caveat("days" if window.start == time.min else "hours_on_days", fields)


def _about_targets(memory: Memory, asked: Sequence[Target]) -> Iterator[Caveat]:
    targets = tuple(target.value for target in memory.record.action.targets)
    if not targets:
        return
    if is_about_others(memory.record.action, asked):
        yield Caveat("other_target", {"targets": targets, "asked": tuple(target.value for target in asked)})
    elif memory.record.failed and memory.lifecycle is not Lifecycle.RESOLVED:
        yield Caveat("target", {"targets": targets})
