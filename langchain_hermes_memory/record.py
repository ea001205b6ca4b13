"""The nouns that flow through the pipeline: a call or turn comes in, a record is kept, a hit goes out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, time
from enum import StrEnum
from typing import Any, Literal

from langchain_core.utils.uuid import uuid7
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

SCHEMA_VERSION = 1
"""Version of the record's JSON shape; raised whenever a field changes its meaning."""

MEMORY_HANDLE = re.compile(r"^M(\d+)$", re.IGNORECASE)
"""The short id under which a memory is shown to a model and cited by it, such as `M17`."""


class Status(StrEnum):
    """How a tool run ended."""

    SUCCESS = "success"
    PARTIAL = "partial"
    FAILURE = "failure"
    UNKNOWN = "unknown"


class Category(StrEnum):
    """Why a run failed, wholly or in part."""

    PERMISSION = "permission"
    AUTHENTICATION = "authentication"
    NOT_FOUND = "not_found"
    NETWORK = "network"
    TIMEOUT = "timeout"
    RATE_LIMIT = "rate_limit"
    RESOURCE_EXHAUSTED = "resource_exhausted"
    CONFLICT = "conflict"
    INVALID_ARGUMENT = "invalid_argument"
    UNAVAILABLE = "unavailable"
    INTERNAL = "internal"
    BLOCKED = "blocked"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


class TargetClass(StrEnum):
    """What kind of place a target is: how much harm a mistake there would do."""

    SYSTEM = "system"
    USER_DATA = "user_data"
    TEMPORARY = "temporary"
    REMOTE = "remote"
    UNKNOWN = "unknown"


class TargetKind(StrEnum):
    """What kind of thing a target is."""

    PATH = "path"
    URL = "url"
    HOST = "host"
    TABLE = "table"
    ID = "id"


class RecordType(StrEnum):
    """Where a record comes from."""

    TOOL = "tool_execution"
    CONVERSATION = "conversation"
    NOTE = "note"


class Lifecycle(StrEnum):
    """What has become of a memory since; meaningful for failures."""

    OPEN = "open"
    RECURRING = "recurring"
    RESOLVED = "resolved"
    EXPIRED = "expired"


class Frozen(BaseModel):
    """What is written to disk: immutable, and tolerant of fields that a later version adds."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Namespace(Frozen):
    """Whose memory it is. Records of one namespace are never seen from another."""

    user: str = "default"
    agent: str = "default"


class Evidence(Frozen):
    """One thing that spoke for an outcome: which rule saw what, where."""

    source: str
    """Stage that saw it, surest first: exception, structure, envelope, reader, verdict, pattern, empty."""
    rule: str
    """Id of the rule or reader."""
    quote: str = ""
    """What it saw, shortened."""


class Outcome(Frozen):
    """How a run ended and why."""

    status: Status
    category: Category | None = None
    """None for a success."""
    error_code: str = ""
    """The tool's own code where it has one, else one such as `PATH_NOT_FOUND`; empty for a success."""
    error_detail: str = ""
    """The most telling line of the failure."""
    transient: bool | None = False
    """Whether the same call, repeated later with nothing mended, may well work; None: cannot be told."""
    suggested_action: str = ""
    """Key of a text in `text/*.toml`, section `advice`; empty where there is none."""
    evidence: tuple[Evidence, ...] = ()


class Target(Frozen):
    """Something that an action was aimed at."""

    kind: TargetKind
    value: str
    """Normalised: an absolute path without trailing slash, a lower-case host, ..."""
    target_class: TargetClass = TargetClass.UNKNOWN


class Action(Frozen):
    """What a run tried to do, in a form in which equal actions compare equal."""

    operation: str
    """The verb: `rm -r`, `git push`, `DELETE`, `POST`, or the tool's name where nothing finer is known."""
    targets: tuple[Target, ...] = ()
    key: str
    """Digest of (tool, operation, arguments, targets); timestamps, ids and temporary names are masked."""
    family: str
    """Digest of (tool, operation) alone: the same kind of action on whatever target."""
    dangerous: bool = False
    """Destructive or irreversible outside a temporary place; read off the command, whatever the outcome."""
    dangers: tuple[str, ...] = ()
    """Ids of the rules that found it dangerous."""


class Reason(Frozen):
    """One contribution to a score."""

    rule: str
    points: float
    detail: str = ""


class ExecutionResult(Frozen):
    """The outcome as it is stored with a record."""

    status: Status
    category: Category | None = None
    error_code: str = ""
    error_detail: str = ""
    transient: bool | None = False
    suggested_action: str = ""
    output: str = ""
    """What the tool returned, redacted and shortened; untrusted text."""
    evidence: tuple[Evidence, ...] = ()


class Environment(Frozen):
    """The circumstances of a run."""

    time_of_day: str = ""
    """`HH:MM` in the zone of the timestamp."""
    weekday: str = ""
    """English name of the day, in the zone of the timestamp."""
    load: float | None = None
    """System load average of the last minute, where it was asked for."""


class Context(Frozen):
    """Who asked for what, and when and where it ran."""

    user_intent: str = ""
    purpose: str = ""
    """What the agent said that the call was for, where the tool asks it to."""
    trigger: str = "user_request"
    session_id: str = "default"
    run_id: str = ""
    parent_run_id: str = ""
    tool_call_id: str = ""
    attempt: int = 1
    duration_ms: float | None = None
    environment: Environment = Environment()


class Record(Frozen):
    """One tool run, one conversation turn or one note, as the ledger keeps it."""

    schema_version: int = SCHEMA_VERSION
    id: str
    namespace: Namespace = Namespace()
    type: RecordType
    tool_name: str = ""
    timestamp: AwareDatetime
    original_command: str = ""
    """The tool's input (or the user's words), redacted and shortened."""
    execution_result: ExecutionResult
    context: Context = Context()
    action: Action
    importance_score: int = Field(ge=0, le=100)
    importance_reasons: tuple[Reason, ...] = ()
    tags: tuple[str, ...] = ()
    description: str = ""
    """The text that is embedded and searched."""
    lang: Literal["en", "zh"] = "en"
    untrusted: bool = True
    """Whether the text comes from a tool; False for what the user said."""
    pinned: bool = False
    """Never forgotten and never filtered by age."""
    rules_version: str = ""
    """Digest of the rules that encoded it."""

    @property
    def failed(self) -> bool:
        """Whether the run failed, wholly or in part."""
        return self.execution_result.status in (Status.FAILURE, Status.PARTIAL)


class Occurrences(Frozen):
    """How often one action had one outcome, and how it went otherwise."""

    times: int = 1
    first_seen: AwareDatetime
    last_seen: AwareDatetime
    record_ids: tuple[str, ...] = ()
    """Ids of the folded records, newest first; at most the newest 200."""
    action_times: int = 1
    """How often the same action ran at all, whatever the outcome: the denominator of `times`."""


class Window(Frozen):
    """A span of the day, maybe on some weekdays, outside of which an action works and inside fails."""

    start: time
    end: time
    """Of the last failure in the span, both in the zone of the request."""
    weekdays: tuple[int, ...] = ()
    """Monday is 0; empty: on any day."""
    failures: int
    worked_outside: int
    """Successes of the same action outside the span."""
    inside: bool = False
    """Whether the present lies in it, with some margin."""


class Memory(Frozen):
    """What recall deals in: all records of one action with one outcome, folded, and what has become of it."""

    number: int
    """Number in the ledger; shown to the model as the handle `M<number>`."""
    record: Record
    """The newest of the folded records."""
    occurrences: Occurrences
    lifecycle: Lifecycle = Lifecycle.OPEN
    resolved_at: AwareDatetime | None = None
    """When the same action succeeded after the failure."""
    resolved_by: int | None = None
    """Number of the memory of that success."""
    worked_until: AwareDatetime | None = None
    """When the same action last succeeded before it began to fail."""
    solution: int | None = None
    """Number of the memory of another way that worked in the same task."""
    solution_text: str = ""
    """The command of that other way."""
    window: Window | None = None
    """Times to which the failures are bound; read at recall."""
    obsolete: bool = False
    """Withdrawn by a user or superseded by a correction."""
    feedback: int = 0
    """Sum of the users' verdicts: +1 helpful, -1 misleading."""

    @property
    def handle(self) -> str:
        """The id that a model sees and cites."""
        return f"M{self.number}"


class RecallFilter(Frozen):
    """Which memories may be recalled; an empty field filters nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    statuses: tuple[Status, ...] = ()
    categories: tuple[Category, ...] = ()
    error_codes: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    """At least one of them."""
    since: AwareDatetime | None = None
    """Seen at this time or later."""
    until: AwareDatetime | None = None
    """Last seen before this time."""
    min_importance: int = Field(0, ge=0, le=100)
    want_failures: bool = False
    """The request is about failures themselves, so they are not put last."""
    safety_critical: bool = False
    """A mistake would be costly: dangerous failures are put last or out, unless failures were asked for."""

    def admits(self, memory: Memory) -> bool:
        """Return whether a memory passes every field."""
        record, result = memory.record, memory.record.execution_result
        last_seen = memory.occurrences.last_seen
        return (
            (not self.statuses or result.status in self.statuses)
            and (not self.categories or result.category in self.categories)
            and (not self.error_codes or result.error_code in self.error_codes)
            and (not self.tools or record.tool_name in self.tools)
            and (not self.tags or not set(self.tags).isdisjoint(record.tags))
            and (self.since is None or last_seen >= self.since)
            and (self.until is None or last_seen < self.until)
            and record.importance_score >= self.min_importance
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One finished tool run, as an adapter saw it: plain values, nothing read into them yet."""

    tool: str
    tool_input: str | Mapping[str, Any]
    output: Any = None
    """What the tool returned: text, a dict, a `ToolMessage`, ...; ignored where `error` is given."""
    error: BaseException | str | None = None
    """The exception that the tool raised, or its text."""
    rejected: bool = False
    """Refused by a human before it ran; `output` holds the reason."""
    namespace: Namespace = Namespace()
    session_id: str = "default"
    intent: str = ""
    trigger: str = "user_request"
    started_at: datetime | None = None
    finished_at: datetime
    run_id: str = ""
    parent_run_id: str = ""
    tool_call_id: str = ""
    attempt: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One exchange between user and agent."""

    user: str
    assistant: str = ""
    at: datetime
    namespace: Namespace = Namespace()
    session_id: str = "default"
    run_id: str = ""


LOOK_ALIKE = "look_alike"
"""Name of the factor of a memory that is about a look-alike of a name in the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """One multiplier on a hit's relevance, with the reason for it."""

    name: str
    value: float
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A memory that was found for a query, with everything that decided its place."""

    memory: Memory
    score: float
    """Relevance times factors; higher is better."""
    relevance: float
    """Calibrated similarity plus words and exact matches, before the factors."""
    signals: Mapping[str, float] = field(default_factory=dict)
    """The parts of the relevance: meaning, words, action, target, ..."""
    factors: tuple[Factor, ...] = ()
    dropped: str = ""
    """Why it was not shown; empty for a hit that was."""


def new_id(at: datetime) -> str:
    """Return a unique id that sorts by time (UUID version 7).

    Args:
        at: Time that the id carries; timezone-aware.
    """
    return str(uuid7(int(at.timestamp() * 1_000_000_000)))


def utc_now() -> datetime:
    """Return the present, timezone-aware: the default clock."""
    return datetime.now(UTC).astimezone()
