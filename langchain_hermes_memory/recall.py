"""Recall: finds candidates by meaning, words, action and target, fuses, weighs and selects them.

The score of a memory is `relevance * product(factors)`.

Relevance adds up, in units in which 0 is noise and 1 a typical match for the embedding model:

- meaning: `(cosine - floor) / (high - floor)`, at least 0, both calibrated for the model;
- words: `words_weight * bm25 / (bm25 + words_saturation)`, which keeps word matches in one language from
  drowning matches across languages, as rank fusion does;
- action, target, tool: bonuses where the planned call, a target or the tool are the same.

Factors stay close to 1, so that they reorder memories of like relevance and never lift an irrelevant one.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from langchain_hermes_memory.action import (
    TargetRelation,
    command_text,
    read_action,
    read_targets,
    target_relation,
)
from langchain_hermes_memory.caveats import NEAR, is_about_others
from langchain_hermes_memory.ledger import Filters, Ledger
from langchain_hermes_memory.lookalikes import look_alikes
from langchain_hermes_memory.record import (
    LOOK_ALIKE,
    Action,
    Category,
    Factor,
    Hit,
    Lifecycle,
    Memory,
    Namespace,
    RecallFilter,
    RecordType,
    Status,
    Target,
)
from langchain_hermes_memory.score import SpeechActs
from langchain_hermes_memory.settings import Settings
from langchain_hermes_memory.windows import LEAST_FAILURES, find_window
from langchain_hermes_memory.words import terms

logger = logging.getLogger(__name__)

Similar = Callable[[Namespace, str, int, Iterable[int]], Mapping[int, float]]
"""Finds memories by meaning: of a namespace, near a text, at most so many, and the given numbers besides;
returns calibrated similarities (0 is noise, 1 a typical match) by number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What is asked of the memory."""

    text: str
    namespace: Namespace
    at: datetime
    session_id: str = "default"
    tool: str = ""
    tool_input: str | Mapping[str, Any] = ""
    k: int | None = None
    filters: RecallFilter = field(default_factory=RecallFilter)


@dataclass(frozen=True, slots=True)
class Recalled:
    """What was found: the hits that are shown, best first, and those that are not, each with the reason."""

    hits: list[Hit]
    dropped: list[Hit]
    targets: tuple[Target, ...] = ()
    """What the request or the planned call names."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A query with what was read from it."""

    query: Query
    action: Action | None
    targets: tuple[Target, ...]
    words: list[str]
    tool_bonus: float
    """What a memory of the planned tool gains: less, the more of all memories are of that tool."""


class Recaller:
    """Searches one ledger and its index.

    Args:
        ledger: The records.
        similar: Finds them by meaning; where it raises, words and actions still serve.
        settings: Weights, sizes and filters.
    """

    def __init__(self, ledger: Ledger, similar: Similar, settings: Settings) -> None:
        self._ledger = ledger
        self._similar = similar
        self._settings = settings
        self._acts = SpeechActs()

    def search(self, query: Query) -> Recalled:
        """Return the memories that help with a query."""
        if not query.tool_input and (not query.text.strip() or self._acts.read(query.text) == "greeting"):
            return Recalled([], [])
        asked = self._read(query)
        signals, by_meaning = self._candidates(asked)
        k = query.k or self._settings.k
        signals = _shortlist(signals, max(LEAST_WEIGHED, WEIGHED_PER_SHOWN * k))
        memories = {memory.number: memory for memory in self._memories(query, signals)}
        self._add_resolvers(query, memories, signals)
        memories = {number: self._timed(query, memory) for number, memory in memories.items()}
        others = look_alikes(query.text, {number: _matter(memory) for number, memory in memories.items()})
        hits = [
            self._weigh(asked, memory, signals[number], others.get(number))
            for number, memory in memories.items()
        ]
        hits = [replace(hit, dropped=self._why_out(query, hit, by_meaning=by_meaning)) for hit in hits]
        hits = self._drop_faint(hits)
        kept = sorted((hit for hit in hits if not hit.dropped), key=_best_first)
        kept = _resolver_first(kept)
        if query.filters.safety_critical and not query.filters.want_failures:
            kept = _safe_first(kept)
        shown, rest = self._select(kept, k)
        dropped = sorted((hit for hit in hits if hit.dropped), key=_best_first)
        return Recalled(shown, rest + dropped, asked.targets)

    def _read(self, query: Query) -> _Asked:
        action = read_action(query.tool, query.tool_input) if query.tool_input else None
        named = {
            target.value: target
            for target in (*(action.targets if action else ()), *read_targets(query.text))
        }
        command = command_text(query.tool_input) if query.tool_input else ""
        share = self._ledger.tool_share(query.namespace, query.tool) if query.tool else 1.0
        bonus = self._settings.tool_bonus * (1 - share) ** 3
        return _Asked(query, action, tuple(named.values()), terms(f"{query.text} {command}"), bonus)

    # ------------------------------------------------------------------ candidates

    def _candidates(self, asked: _Asked) -> tuple[dict[int, dict[str, float]], bool]:
        """Return the signals of every candidate by its number, and whether meaning was searched."""
        query, settings = asked.query, self._settings
        found: dict[int, dict[str, float]] = {}
        in_session = self._ledger.session_numbers(query.namespace, query.session_id, settings.working_records)
        saturation = settings.words_saturation
        for number, bm25 in self._ledger.search_words(
            query.namespace, asked.words, settings.fetch_k, also=in_session
        ):
            found.setdefault(number, {})["words"] = settings.words_weight * bm25 / (bm25 + saturation)
        if asked.action is not None:
            for number in self._ledger.by_action(query.namespace, asked.action.key):
                found.setdefault(number, {})["action"] = settings.action_bonus
        if query.tool:
            failures = Filters(tool=query.tool, status=(Status.FAILURE, Status.PARTIAL))
            for number in self._ledger.select(query.namespace, failures, limit=settings.fetch_k):
                found.setdefault(number, {})["tool"] = asked.tool_bonus
        if asked.targets:
            values = [target.value for target in asked.targets]
            for number in self._ledger.by_targets(query.namespace, values, settings.fetch_k):
                found.setdefault(number, {})["target"] = settings.target_bonus
        return found, self._add_meaning(asked, found, in_session)

    def _add_meaning(
        self, asked: _Asked, found: dict[int, dict[str, float]], in_session: Sequence[int]
    ) -> bool:
        """Search the index; without it (a failing embedder, a damaged index) words still serve."""
        query = asked.query
        command = command_text(query.tool_input) if query.tool_input else ""
        text = " ".join(filter(None, (query.text, command)))
        promising = dict.fromkeys((*_ahead(found), *in_session))
        try:
            similar = self._similar(query.namespace, text, self._settings.fetch_k, promising)
        except Exception:  # embedders are foreign code; a recall by words beats none
            logger.warning("The index cannot be searched; recall goes by words alone", exc_info=True)
            return False
        for number, similarity in similar.items():
            found.setdefault(number, {})["meaning"] = similarity
        return True

    def _memories(self, query: Query, signals: Mapping[int, object]) -> list[Memory]:
        return self._ledger.memories(
            query.namespace,
            list(signals),
            at=query.at,
            window=timedelta(days=self._settings.frequency_window_days),
            recurring_after=self._settings.recurring_after,
        )

    def _add_resolvers(
        self, query: Query, memories: dict[int, Memory], signals: dict[int, dict[str, float]]
    ) -> None:
        """A resolved failure brings the success that resolved it: alone it would mislead."""
        missing = {
            memory.resolved_by: signals[number]
            for number, memory in memories.items()
            if memory.resolved_by is not None and memory.resolved_by not in memories
        }
        signals.update({number: {**found} for number, found in missing.items()})
        memories.update({memory.number: memory for memory in self._memories(query, missing)})

    def _timed(self, query: Query, memory: Memory) -> Memory:
        """Note the hours to which a failure is bound: a success at another hour has not resolved it."""
        if not memory.record.failed or memory.occurrences.times < LEAST_FAILURES:
            return memory
        runs = self._ledger.run_times(query.namespace, memory.record.action.key)
        window = find_window(
            [at for number, at, _ in runs if number == memory.number],
            [at for _, at, status in runs if status is Status.SUCCESS],
            query.at,
        )
        if window is None or not window.inside:
            return memory.model_copy(update={"window": window})
        recurring = {"lifecycle": Lifecycle.RECURRING, "resolved_at": None, "resolved_by": None}
        return memory.model_copy(update={"window": window, **recurring})

    # ------------------------------------------------------------------ weighing

    def _weigh(
        self, asked: _Asked, memory: Memory, found: Mapping[str, float], other: tuple[str, str] | None
    ) -> Hit:
        signals = {**found, **self._matches(asked, memory)}
        relevance = sum(signals.values())
        factors = tuple(factor for factor in self._factors(asked, memory) if factor.value != 1)
        if other is not None:
            weight = self._settings.other_target_weight
            factors = (*factors, Factor(name=LOOK_ALIKE, value=weight, detail=" / ".join(other)))
        score = relevance
        for factor in factors:
            score *= factor.value
        return Hit(memory=memory, score=score, relevance=relevance, signals=signals, factors=factors)

    def _matches(self, asked: _Asked, memory: Memory) -> dict[str, float]:
        """Bonuses for what is known to be the same."""
        bonuses: dict[str, float] = {}
        action = memory.record.action
        if asked.action is not None and action.key == asked.action.key:
            bonuses["action"] = self._settings.action_bonus
        elif asked.action is not None and action.family == asked.action.family:
            bonuses["family"] = self._settings.family_bonus
        if asked.query.tool and memory.record.tool_name == asked.query.tool:
            bonuses["tool"] = asked.tool_bonus
        relations = _relations(asked.targets, action.targets)
        if TargetRelation.SAME in relations:
            bonuses["target"] = self._settings.target_bonus
        elif relations & NEAR:
            bonuses["target"] = self._settings.target_bonus / 2
        return bonuses

    def _factors(self, asked: _Asked, memory: Memory) -> Iterable[Factor]:
        settings, record = self._settings, memory.record
        result = record.execution_result
        yield from self._outcome_factors(asked.query, memory)
        if is_about_others(record.action, asked.targets):
            yield Factor(name="other_target", value=settings.other_target_weight)
        if set(asked.query.filters.tags) & set(record.tags):
            yield Factor(name="tag", value=settings.tag_weight)
        span = settings.importance_weight
        yield Factor(
            name="importance",
            value=1 + span * (record.importance_score - 50) / 50,
            detail=str(record.importance_score),
        )
        if not (record.pinned or result.category is Category.BLOCKED):
            days = max(0.0, (asked.query.at - memory.occurrences.last_seen).total_seconds() / 86_400)
            fresh = 0.5 ** (days / settings.half_life_days)
            yield Factor(name="age", value=1 - settings.age_weight * (1 - fresh), detail=f"{days:.0f} d")
        if memory.feedback:
            yield Factor(name="feedback", value=max(0.7, min(1.3, 1 + 0.1 * memory.feedback)))

    def _outcome_factors(self, query: Query, memory: Memory) -> Iterable[Factor]:
        settings, record = self._settings, memory.record
        if record.type is not RecordType.TOOL:
            if record.type is RecordType.CONVERSATION and record.tags == (record.type.value,):
                yield Factor(name="plain_request", value=settings.plain_request_weight)
            return
        if record.execution_result.status is Status.SUCCESS:
            yield Factor(name="success", value=settings.success_weight)
            if "efficient" in record.tags:
                yield Factor(name="efficient", value=settings.efficient_weight)
            return
        if query.filters.want_failures:
            yield Factor(name="failures_wanted", value=settings.recurring_weight)
        if memory.window is not None and not memory.window.inside:
            yield Factor(name="other_hours", value=settings.resolved_weight)
        elif memory.lifecycle is Lifecycle.RESOLVED:
            yield Factor(name="resolved", value=settings.resolved_weight)
        elif memory.lifecycle is Lifecycle.RECURRING:
            yield Factor(name="recurring", value=settings.recurring_weight)
        elif record.execution_result.transient:
            yield Factor(name="transient", value=settings.transient_weight)

    # ------------------------------------------------------------------ filters and selection

    def _why_out(self, query: Query, hit: Hit, *, by_meaning: bool) -> str:
        """Return the id of the filter that keeps a hit out, or an empty string."""
        memory, record, settings = hit.memory, hit.memory.record, self._settings
        if memory.obsolete:
            return "obsolete"
        if not query.filters.admits(memory):
            return "filter"
        age = query.at - memory.occurrences.last_seen
        if age < timedelta(0):
            return "future"
        old = age > timedelta(days=settings.max_age_days)
        if old and record.importance_score < settings.aged_importance and not record.pinned:
            return "age"
        if hit.relevance < self._floor(hit, by_meaning=by_meaning):
            return "relevance"
        return ""

    def _floor(self, hit: Hit, *, by_meaning: bool) -> float:
        """Return the relevance that a hit needs: more where common words are all that speaks for it."""
        if not by_meaning:
            return 0.0
        speaks = {name for name, value in hit.signals.items() if value} - {"tool", "family"}
        if speaks == {"words"} and not _is_wish(hit):
            return self._settings.min_words_relevance
        return self._settings.min_relevance

    def _drop_faint(self, hits: Sequence[Hit]) -> list[Hit]:
        """Drop what is far less relevant than the best; what a user wished for holds beyond one request."""
        best = max((hit.relevance for hit in hits if not hit.dropped), default=0.0)
        least = best * self._settings.min_share
        return [
            replace(hit, dropped="faint")
            if not hit.dropped and hit.relevance < least and not _is_wish(hit)
            else hit
            for hit in hits
        ]

    def _select(self, ranked: Sequence[Hit], k: int) -> tuple[list[Hit], list[Hit]]:
        """Take the best `k`, with variety: a hit counts for less the more like it are taken already.

        A limit that somebody set on purpose is taken first where it is a good match: many successes of other
        commands must not crowd it out.
        """
        rest = {hit.memory.number: hit for hit in ranked}
        out: list[Hit] = []
        shown: list[Hit] = []
        taken: Counter[tuple[str, ...]] = Counter()
        limits = [hit for hit in ranked if _is_limit(hit) and hit.relevance >= TYPICAL][:1]
        while rest and len(shown) < k:
            best = limits.pop() if limits else max(rest.values(), key=lambda hit: self._value(hit, taken))
            del rest[best.memory.number]
            resolver = rest.pop(best.memory.resolved_by or -1, None)
            pair = [best] if resolver is None else [resolver, best]
            if len(shown) + len(pair) > k:  # a solved failure alone would mislead
                out.append(best)
                pair = pair[:-1]
            shown += pair
            for hit in pair:
                taken.update(_likeness(hit))
        places = {hit.memory.number: place for place, hit in enumerate(ranked)}
        shown.sort(key=lambda hit: places[hit.memory.number])
        return shown, [replace(hit, dropped="rank") for hit in (*out, *rest.values())]

    def _value(self, hit: Hit, taken: Mapping[tuple[str, ...], int]) -> float:
        alike = max((taken[kind] for kind in _likeness(hit)), default=0)
        return hit.score * self._settings.repetition_weight**alike


def _shortlist(signals: Mapping[int, dict[str, float]], size: int) -> dict[int, dict[str, float]]:
    """Keep the candidates that are ahead before anything is known of them but why they were found."""
    return {number: signals[number] for number in _ahead(signals)[:size]}


def _ahead(signals: Mapping[int, dict[str, float]]) -> list[int]:
    return sorted(signals, key=lambda number: -sum(signals[number].values()))


LEAST_WEIGHED = 40
WEIGHED_PER_SHOWN = 3
"""Candidates that are loaded and weighed; to load them takes longer than to find them."""
LASTING_ACTS = frozenset({"preference", "correction", "warning"})
"""What a user says in these acts is meant to hold from then on."""
TYPICAL = 1.0
"""Relevance of a typical match by meaning."""


def _matter(memory: Memory) -> str:
    """What a memory is about: the request and the call, not what came of it."""
    record = memory.record
    return f"{record.context.user_intent} {record.original_command}"


def _is_wish(hit: Hit) -> bool:
    return not LASTING_ACTS.isdisjoint(hit.memory.record.tags)


def _is_limit(hit: Hit) -> bool:
    return hit.memory.record.execution_result.category is Category.BLOCKED


def _likeness(hit: Hit) -> list[tuple[str, ...]]:
    """Return the kinds of which one more tells less: of one action, or of one wish with one outcome."""
    record = hit.memory.record
    kinds: list[tuple[str, ...]] = [("action", record.action.key, str(record.failed))]
    if record.type is RecordType.TOOL and record.context.user_intent:
        kinds.append(("intent", record.context.user_intent.casefold(), record.execution_result.status))
    return kinds


def _relations(asked: Sequence[Target], found: Sequence[Target]) -> set[TargetRelation]:
    return {target_relation(a, b) for a in asked for b in found if a.kind is b.kind}


def _best_first(hit: Hit) -> tuple[float, float]:
    return -hit.score, -hit.memory.occurrences.last_seen.timestamp()


def _resolver_first(ranked: list[Hit]) -> list[Hit]:
    """Put each resolved failure right behind the success that resolved it, wherever it stood before it."""
    place = {hit.memory.number: position for position, hit in enumerate(ranked)}

    def order(hit: Hit) -> tuple[int, bool, int]:
        position = place[hit.memory.number]
        resolver = place.get(hit.memory.resolved_by or -1, -1)
        return max(position, resolver), resolver > position, position

    return sorted(ranked, key=order)


def _safe_first(ranked: list[Hit]) -> list[Hit]:
    """For a safety-critical task: proven ways first, failed dangerous attempts last."""
    return sorted(ranked, key=lambda hit: hit.memory.record.failed and _risky(hit.memory))


def _risky(memory: Memory) -> bool:
    return memory.record.action.dangerous or memory.record.execution_result.category is Category.BLOCKED
