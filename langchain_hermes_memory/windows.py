"""Time windows: notices that an action fails at certain hours or on certain days only.

A window is claimed on evidence alone: failures on at least `LEAST_FAILURES` days, all within one span of the
clock or on one weekday; between the first and the last of them at least `LEAST_OUTSIDE` successes outside, so
that it is not simply that it failed at first and works since; inside, at most a quarter of successes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, time, timedelta

from langchain_hermes_memory.record import Window

LEAST_FAILURES = 3
LEAST_OUTSIDE = 2
SPAN_PER_FAILURE = timedelta(minutes=50)
LONGEST_SPAN = timedelta(hours=4)
"""Failures that lie further apart on the clock are not bound to an hour; few must lie closer together."""
MARGIN = timedelta(minutes=45)
"""How far beside the failures the window still reaches: nobody has seen its exact edges."""
MOST_WORKED_INSIDE = 0.25

_DAY = timedelta(days=1)


def find_window(failures: Sequence[datetime], successes: Sequence[datetime], at: datetime) -> Window | None:
    """Return the window to which an action's failures are bound, or None.

    Args:
        failures: Times of all failures of one kind, timezone-aware.
        successes: Times of all successes of the same action.
        at: The present; its zone is the one in which hours and weekdays are read.
    """
    failed = [each.astimezone(at.tzinfo) for each in failures]
    worked = [each.astimezone(at.tzinfo) for each in successes]
    if len({each.date() for each in failed}) < LEAST_FAILURES:
        return None
    start, span = _tightest_span([_clock(each) for each in failed])
    hours = span <= min(LONGEST_SPAN, len(failed) * SPAN_PER_FAILURE)
    days = {each.weekday() for each in failed}
    weekdays = tuple(days) if len(days) == 1 else ()
    for with_hours, with_days in ((True, False), (True, True), (False, True)):
        if (with_hours and not hours) or (with_days and not weekdays):
            continue
        inside = _membership(start if with_hours else None, span, weekdays if with_days else ())
        outside = sum(not inside(each) for each in worked)
        within = len(worked) - outside
        between = sum(min(failed) < each < max(failed) and not inside(each) for each in worked)
        if between >= LEAST_OUTSIDE and within <= MOST_WORKED_INSIDE * (within + len(failed)):
            return Window(
                start=_time(start) if with_hours else time.min,
                end=_time(start + span) if with_hours else time.max,
                weekdays=weekdays if with_days else (),
                failures=len(failed),
                worked_outside=outside,
                inside=inside(at),
            )
    return None


def _membership(
    start: timedelta | None, span: timedelta, weekdays: Sequence[int]
) -> Callable[[datetime], bool]:
    def inside(moment: datetime) -> bool:
        if weekdays and moment.weekday() not in weekdays:
            return False
        return start is None or (_clock(moment) - start + MARGIN) % _DAY <= span + 2 * MARGIN

    return inside


def _tightest_span(clocks: Sequence[timedelta]) -> tuple[timedelta, timedelta]:
    """Return start and length of the shortest arc of the clock that holds all times, also across midnight."""
    ordered = sorted(clocks)
    following = [*ordered[1:], ordered[0] + _DAY]
    widest = max(range(len(ordered)), key=lambda number: following[number] - ordered[number])
    start = following[widest] % _DAY
    return start, (ordered[widest] - start) % _DAY


def _clock(moment: datetime) -> timedelta:
    return timedelta(hours=moment.hour, minutes=moment.minute, seconds=moment.second)


def _time(clock: timedelta) -> time:
    minutes = int(clock.total_seconds() // 60) % (24 * 60)
    return time(minutes // 60, minutes % 60)
