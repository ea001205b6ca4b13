"""Encode: turns a call, a turn or a note into a structured record."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from langchain_hermes_memory._rules import rules_digest
from langchain_hermes_memory._text import detect_lang, one_line, say, shorten, shorten_middle
from langchain_hermes_memory.action import command_text, purpose_text, read_action, read_targets
from langchain_hermes_memory.outcome import OutcomeReader, text_of
from langchain_hermes_memory.record import (
    Action,
    Category,
    Context,
    Environment,
    ExecutionResult,
    Namespace,
    Outcome,
    Record,
    RecordType,
    Status,
    ToolCall,
    Turn,
    new_id,
)
from langchain_hermes_memory.redact import Redactor
from langchain_hermes_memory.score import History, RuleScorer, ScoreInput, Scorer, SpeechActs
from langchain_hermes_memory.settings import Settings

logger = logging.getLogger(__name__)

DETAIL_CHARS = 120
"""Length to which an error's text is shortened in what is embedded: more of it hides what was wanted."""
INTENT_CHARS = 120
"""The same for the user's request: a pasted plan of which a call is one step would hide the call."""
RULE_FILES = ("actions", "importance", "outcomes", "turns")
"""Rule files whose digest is kept with each record."""

HistoryOf = Callable[[Namespace, str], History]
"""How an action (by its key) went before, in a namespace."""


class Encoded(NamedTuple):
    """A record and where it belongs."""

    record: Record
    fold_key: str
    """Digest under which equal records are counted as one memory."""
    admitted: bool
    """Whether it is important enough for long-term memory."""
    scored: ScoreInput
    """What its importance was read off; holds the record with its score."""


class Encoder:
    """Makes records out of what capture saw.

    Args:
        settings: Lengths, thresholds and switches.
        reader: Reads the outcome of a call.
        redactor: Cuts secrets out of every text, before anything else sees it; None: keep texts as they are.
        scorer: Scores records; the rules serve where it fails.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        reader: OutcomeReader,
        redactor: Redactor | None,
        scorer: Scorer | None = None,
    ) -> None:
        self._settings = settings
        self._reader = reader
        self._redactor = redactor
        self.rules = RuleScorer(settings.critical_tools)
        self._scorer: Scorer = scorer or self.rules
        self._acts = SpeechActs()
        self._rules_version = rules_digest(*RULE_FILES)

    def encode_call(self, call: ToolCall, history_of: HistoryOf) -> Encoded:
        """Encode a finished tool run.

        Args:
            call: What capture saw.
            history_of: Looks up how the same action went before.
        """
        tool_input = self._clean_value(call.tool_input)
        action = read_action(call.tool, tool_input)
        outcome = self._reader.read(
            tool=call.tool,
            command=command_text(tool_input),
            output=call.output,
            error=call.error,
            rejected=call.rejected,
            targets=action.targets,
        )
        history = history_of(call.namespace, action.key)
        outcome = self._weigh_repetition(outcome, history)
        raw_output = str(call.error) if call.error is not None else text_of(call.output)
        purpose = shorten(one_line(purpose_text(tool_input)), self._settings.max_intent_chars)
        command, output, intent, detail = self._clean(
            command_text(tool_input),
            shorten_middle(raw_output, 4 * self._settings.max_output_chars),
            call.intent,
            outcome.error_detail,
        )
        outcome = outcome.model_copy(
            update={"error_detail": detail, "evidence": self._clean_evidence(outcome)}
        )
        intent = shorten(one_line(intent), self._settings.max_intent_chars)
        lang = detect_lang(intent or command)
        started = call.started_at
        record = Record(
            id=new_id(call.finished_at),
            namespace=call.namespace,
            type=RecordType.TOOL,
            tool_name=call.tool,
            timestamp=call.finished_at,
            original_command=shorten_middle(command, self._settings.max_command_chars),
            execution_result=ExecutionResult(
                **outcome.model_dump(), output=shorten_middle(output, self._settings.max_output_chars)
            ),
            context=Context(
                user_intent=intent,
                purpose=purpose,
                trigger=call.trigger,
                session_id=call.session_id,
                run_id=call.run_id,
                parent_run_id=call.parent_run_id,
                tool_call_id=call.tool_call_id,
                attempt=call.attempt,
                duration_ms=None if started is None else (call.finished_at - started).total_seconds() * 1000,
                environment=self._environment(call.finished_at),
            ),
            action=action,
            importance_score=0,
            tags=_tags(call.tool, outcome, action),
            lang=lang,
            rules_version=self._rules_version,
        )
        record = record.model_copy(update={"description": self._describe(record)})
        fold_key = _digest(action.key, outcome.status, outcome.category or "", outcome.error_code)
        return self._score(
            record, ScoreInput(record=record, history=history, rejected=call.rejected), fold_key
        )

    def encode_turn(self, turn: Turn) -> Encoded:
        """Encode one exchange between user and agent."""
        user, assistant = self._clean(turn.user, turn.assistant)
        return self._encode_words(
            RecordType.CONVERSATION,
            words=user,
            answer=assistant,
            at=turn.at,
            namespace=turn.namespace,
            context=Context(
                session_id=turn.session_id, run_id=turn.run_id, environment=self._environment(turn.at)
            ),
        )

    def encode_note(
        self, text: str, *, at: datetime, namespace: Namespace, session_id: str, tags: tuple[str, ...] = ()
    ) -> Encoded:
        """Encode something that a user or program asked to be remembered."""
        (text,) = self._clean(text)
        context = Context(session_id=session_id, trigger="remember", environment=self._environment(at))
        return self._encode_words(
            RecordType.NOTE, words=text, answer="", at=at, namespace=namespace, context=context, tags=tags
        )

    def _encode_words(
        self,
        kind: RecordType,
        *,
        words: str,
        answer: str,
        at: datetime,
        namespace: Namespace,
        context: Context,
        tags: tuple[str, ...] = (),
    ) -> Encoded:
        act = self._acts.read(words)
        normal = " ".join(words.split()).casefold()
        lang = detect_lang(words)
        record = Record(
            id=new_id(at),
            namespace=namespace,
            type=kind,
            timestamp=at,
            original_command=shorten_middle(words, self._settings.max_command_chars),
            execution_result=ExecutionResult(
                status=Status.SUCCESS, output=shorten_middle(answer, self._settings.max_output_chars)
            ),
            context=context,
            action=Action(
                operation=kind.value,
                targets=read_targets(words),
                key=_digest(kind, normal, " ".join(answer.split()).casefold()),
                family=_digest(kind, act),
            ),
            importance_score=0,
            tags=tuple(dict.fromkeys(filter(None, (kind.value, act, *tags)))),
            description=shorten(
                one_line(f"{words} — {answer}" if answer else words), self._settings.max_description_chars
            ),
            lang=lang,
            untrusted=False,
            rules_version=self._rules_version,
        )
        return self._score(record, ScoreInput(record=record, act=act), record.action.key)

    def _score(self, record: Record, given: ScoreInput, fold_key: str) -> Encoded:
        try:
            importance = self._scorer.score(given)
        except Exception:  # a user's scorer may do anything; the rules cannot fail
            logger.exception("The scorer failed; the rules are used instead", extra={"record_id": record.id})
            importance = self.rules.score(given)
        record = record.model_copy(
            update={"importance_score": importance.score, "importance_reasons": importance.reasons}
        )
        admitted = importance.score >= self._settings.admit_importance
        return Encoded(record, fold_key, admitted, replace(given, record=record))

    def _weigh_repetition(self, outcome: Outcome, history: History) -> Outcome:
        """An accident that keeps coming back is none: it is no longer called transient."""
        recurring = (
            history.failures + 1 >= self._settings.recurring_after and not history.successes_since_failure
        )
        if outcome.transient and recurring:
            return outcome.model_copy(update={"transient": None})
        return outcome

    def _describe(self, record: Record) -> str:
        """The text that is embedded: what was wanted first, codes as words, in the request's language."""
        result = record.execution_result
        outcome = say(record.lang, f"status.{result.status}")
        if result.category is not None:
            category = say(record.lang, f"category.{result.category}")
            code = result.error_code.replace("_", " ").lower()
            cause = category if code in category else f"{category} {code}"
            outcome = f"{outcome}: {cause}: {shorten(one_line(result.error_detail), DETAIL_CHARS)}"
        command = shorten(
            one_line(_in_words(record.original_command)), self._settings.max_description_chars // 2
        )
        text = f"{command} ({record.tool_name}), {outcome}"
        wish = "; ".join(
            filter(None, (record.context.purpose, shorten(record.context.user_intent, INTENT_CHARS)))
        )
        if wish:
            text = f"{wish}: {text}"
        return shorten(one_line(text), self._settings.max_description_chars)

    def _environment(self, at: datetime) -> Environment:
        load = None
        if self._settings.record_load and hasattr(os, "getloadavg"):
            load = round(os.getloadavg()[0], 2)
        return Environment(time_of_day=f"{at:%H:%M}", weekday=f"{at:%A}", load=load)

    def _clean(self, *texts: str) -> tuple[str, ...]:
        return self._redactor.redact_all(*texts) if self._redactor else texts

    def _clean_value(self, value: str | Mapping[str, Any]) -> Any:
        if not self._redactor:
            return value
        return (
            self._redactor.redact(value)
            if isinstance(value, str)
            else self._redactor.redact_value(dict(value))
        )

    def _clean_evidence(self, outcome: Outcome) -> tuple[Any, ...]:
        quotes = self._clean(*(piece.quote for piece in outcome.evidence))
        return tuple(
            piece.model_copy(update={"quote": quote})
            for piece, quote in zip(outcome.evidence, quotes, strict=True)
        )


def _in_words(command: str) -> str:
    """Return a tool's arguments as words: models that embed sentences read no JSON."""
    try:
        arguments = json.loads(command) if command.startswith("{") else None
    except ValueError:
        return command
    if not isinstance(arguments, dict):
        return command
    if len(arguments) == 1:
        return str(next(iter(arguments.values())))
    return ", ".join(f"{name} {_in_words(str(value))}" for name, value in arguments.items())


def _tags(tool: str, outcome: Outcome, action: Action) -> tuple[str, ...]:
    tags = [tool, outcome.status.value]
    if outcome.category is not None:
        tags += [outcome.category.value, outcome.error_code.lower()]
    if outcome.transient and outcome.status is not Status.SUCCESS:
        tags.append("transient")
    if action.dangerous:
        tags.append("dangerous")
    if outcome.category is Category.BLOCKED:
        tags.append("boundary")
    tags += [target.target_class.value for target in action.targets]
    return tuple(dict.fromkeys(tag for tag in tags if tag))


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\x1f".join(parts).encode("utf-8", "replace"), digest_size=16).hexdigest()
