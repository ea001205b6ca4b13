"""Links: tells which later success in the same task was the way out of an earlier failure.

That the same action worked later is read off the ledger; what is linked here is another way that worked.
"""

from __future__ import annotations

from datetime import timedelta

from langchain_hermes_memory.caveats import is_about_others
from langchain_hermes_memory.ledger import Ledger
from langchain_hermes_memory.record import Category, Record, Status
from langchain_hermes_memory.words import terms

SAME_TASK = timedelta(hours=2)
"""Time within which a success can be the way out of a failure in the same session."""
MOST_FAILURES = 5
"""Open failures that are looked at."""
ALIKE = 0.5
"""Share of common words from which two commands are versions of each other."""


def link_solutions(ledger: Ledger, record: Record, number: int) -> list[int]:
    """Link the open failures of a task to the success that is another way to do the same.

    Another way is a success, on the same targets, of the same operation or of a command of the same tool
    that shares at least half of its words with the failed one. A success on another target is no way out: to
    delete a look-alike folder because the right one could not be deleted is the very mistake to prevent.

    Args:
        ledger: Where the failures are.
        record: What has just been stored.
        number: Number of its memory.

    Returns:
        The numbers of the failures that were linked.
    """
    if record.execution_result.status is not Status.SUCCESS:
        return []
    open_failures = ledger.unresolved_failures(
        record.namespace, record.context.session_id, record.timestamp - SAME_TASK, MOST_FAILURES
    )
    solved = [failure for failure, failed in open_failures if _is_other_way(failed, record)]
    return [failure for failure in solved if ledger.link_solution(record.namespace, failure, number)]


def _is_other_way(failed: Record, worked: Record) -> bool:
    if failed.action.key == worked.action.key or failed.execution_result.category is Category.BLOCKED:
        return False
    if failed.context.user_intent != worked.context.user_intent or failed.timestamp > worked.timestamp:
        return False
    if is_about_others(failed.action, worked.action.targets):
        return False
    if failed.action.family == worked.action.family:
        return True
    return failed.tool_name == worked.tool_name and _likeness(failed, worked) >= ALIKE


def _likeness(one: Record, other: Record) -> float:
    """Jaccard index of the words of two commands."""
    words, others = set(terms(one.original_command)), set(terms(other.original_command))
    return len(words & others) / len(words | others) if words | others else 0.0
