"""Importance by a language model, within bounds that the rules set; off unless it is asked for.

Slow, so it runs behind: a record is stored with the score of the rules and scored again later.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import OrderedDict
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.output_parsers import PydanticOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable, RunnableConfig
from pydantic import BaseModel, Field

from langchain_hermes_memory._text import one_line, say, shorten, shorten_middle
from langchain_hermes_memory.record import Category, Reason, Record
from langchain_hermes_memory.score import Importance, RuleScorer, ScoreInput, Scorer

logger = logging.getLogger(__name__)

MAX_SHIFT = 25
"""Points by which a model may move the score of the rules: it refines anchors, and overturns none."""
MAX_CALLS = 1_000
MAX_CACHED = 2_000
MAX_CHARS = 1_200
MAX_WHY = 160


class Judgement(BaseModel):
    """What the model is asked for."""

    score: int = Field(ge=0, le=100, description="Importance, 0 to 100.")
    why: str = Field(default="", description="One short sentence.")


class LLMScorer:
    """Scores records with a chat model, and falls back to the rules.

    Records of one action with one outcome are judged once. Dangerous actions that were blocked keep the score
    of the rules. What a tool printed is given to the model as quoted data, and whatever it says there, the
    score stays within `max_shift` points of the rules'.

    Args:
        model: Any chat model.
        rules: What it starts from and falls back to.
        max_calls: Calls of the model in the life of this object; after that the rules serve.
        max_shift: Points by which the model may move a score, 0 to 100.
    """

    def __init__(
        self,
        model: BaseChatModel,
        *,
        rules: Scorer | None = None,
        max_calls: int = MAX_CALLS,
        max_shift: int = MAX_SHIFT,
    ) -> None:
        self._rules = rules or RuleScorer()
        self._chain = _chain(model)
        self._max_shift = max_shift
        self._calls_left = max_calls
        self._known: OrderedDict[tuple[str, ...], Judgement | None] = OrderedDict()
        self._lock = threading.Lock()

    def score(self, given: ScoreInput) -> Importance:
        """Return the importance of a record; never raises for what the model does."""
        by_rules = self._rules.score(given)
        if _is_safety(given.record):
            return by_rules
        judged = self._judged(given, by_rules)
        if judged is None:
            return by_rules
        low, high = by_rules.score - self._max_shift, by_rules.score + self._max_shift
        score = max(0, min(100, low if judged.score < low else min(judged.score, high)))
        why = shorten(one_line(judged.why), MAX_WHY)
        shift = Reason(rule="llm", points=score - by_rules.score, detail=why)
        return Importance(score, (*by_rules.reasons, shift))

    def _judged(self, given: ScoreInput, by_rules: Importance) -> Judgement | None:
        key = _kind(given)
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key]
            if self._calls_left <= 0:
                return None
            self._calls_left -= 1
        judged = self._ask(given, by_rules)
        with self._lock:
            self._known[key] = judged
            if len(self._known) > MAX_CACHED:
                self._known.popitem(last=False)
        return judged

    def _ask(self, given: ScoreInput, by_rules: Importance) -> Judgement | None:
        record = given.record
        # Without callbacks of its own: a memory must not record the call that judges its records.
        config = RunnableConfig(callbacks=[])
        try:
            found = self._chain.invoke(
                {
                    "system": say(record.lang, "score_prompt.system"),
                    "request": say(
                        record.lang, "score_prompt.request", record=_as_data(record), score=by_rules.score
                    ),
                },
                config,
            )
            return Judgement.model_validate(found)
        except Exception:  # models fail in many ways, and the rules always serve
            logger.warning("The model gave no score; the rules' score is kept", exc_info=True)
            return None


def _chain(model: BaseChatModel) -> Runnable[Any, Any]:
    """Ask for structured output where the model has it, else for JSON."""
    prompt = ChatPromptTemplate.from_messages([("system", "{system}"), ("human", "{request}")])
    try:
        return prompt | model.with_structured_output(Judgement)
    except NotImplementedError:
        return prompt | model | PydanticOutputParser(pydantic_object=Judgement)


def _is_safety(record: Record) -> bool:
    return record.action.dangerous and record.execution_result.category is Category.BLOCKED


def _kind(given: ScoreInput) -> tuple[str, ...]:
    result = given.record.execution_result
    return given.record.action.key, result.status, result.category or "", result.error_code, given.act


def _as_data(record: Record) -> str:
    result = record.execution_result
    data = {
        "type": record.type,
        "tool": record.tool_name,
        "command": shorten_middle(record.original_command, MAX_CHARS // 3),
        "request": record.context.user_intent,
        "status": result.status,
        "category": result.category,
        "error": result.error_detail,
        "output": shorten_middle(result.output, MAX_CHARS // 3),
        "transient": result.transient,
        "dangerous": record.action.dangerous,
    }
    return json.dumps(data, ensure_ascii=False)
