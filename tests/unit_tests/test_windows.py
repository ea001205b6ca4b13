"""Time windows: when failures are bound to hours or days, and when that would be claiming too much."""

from datetime import UTC, datetime, time, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from langchain_hermes_memory.windows import find_window

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)


def on(day, hour, minute=0):
    return MONDAY + timedelta(days=day, hours=hour, minutes=minute)


def test_failures_at_the_same_hour_make_a_window():
    """What fails each night and works each morning fails at night."""
    nights = [on(day, 2, 10 + day) for day in range(4)]
    mornings = [on(day, 8) for day in range(4)]
    window = find_window(nights, mornings, on(5, 2, 20))
    assert (window.start, window.end) == (time(2, 10), time(2, 13))
    assert (window.failures, window.worked_outside, window.weekdays) == (4, 4, ())
    assert window.inside
    assert not find_window(nights, mornings, on(5, 9)).inside


def test_a_window_may_lie_across_midnight():
    """The clock is a circle."""
    window = find_window([on(0, 23, 50), on(2, 0, 20), on(4, 23, 40)], [on(1, 12), on(3, 12)], on(6, 0, 5))
    assert (window.start, window.end) == (time(23, 40), time(0, 20))
    assert window.inside


def test_a_weekday_narrows_the_hours():
    """Where the same hour works on other days, the day is part of the window."""
    wednesdays = [on(2 + 7 * week, 15) for week in range(3)]
    others = [on(day + 7 * week, 15) for week in range(3) for day in (0, 1, 3)]
    window = find_window(wednesdays, others, on(23, 15))
    assert window.weekdays == (2,)
    assert window.inside
    assert not find_window(wednesdays, others, on(24, 15)).inside


def test_a_weekday_alone_is_a_window():
    """Failures all over one day of the week, successes on the others."""
    sundays = [on(6, 3), on(13, 12), on(20, 21)]
    window = find_window(sundays, [on(day, hour) for day in (1, 8, 15) for hour in (3, 12, 21)], on(27, 9))
    assert window.weekdays == (6,)
    assert (window.start, window.end) == (time.min, time.max)


def test_hours_are_read_in_the_zone_of_the_request():
    """The same instants lie at another hour elsewhere."""
    shanghai = timezone(timedelta(hours=8))
    nights = [on(day, 18) for day in range(3)]
    window = find_window(nights, [on(day, 6) for day in range(3)], on(9, 18).astimezone(shanghai))
    assert window.start == time(2, 0)


def test_what_failed_first_and_works_since_is_no_window():
    """All successes after all failures: it was mended."""
    assert find_window([on(day, 2) for day in range(3)], [on(day, 9) for day in (4, 5, 6)], on(8, 2)) is None


def test_several_failures_of_one_day_are_no_window():
    """They are one incident."""
    assert find_window([on(2, 2, n) for n in (0, 9, 20)], [on(1, 9), on(3, 9)], on(5, 2)) is None


def test_too_little_evidence_makes_no_window():
    """Two failures, no success outside, or successes inside: nothing is claimed."""
    nights = [on(day, 2) for day in range(3)]
    assert find_window(nights[:2], [on(1, 9), on(2, 9)], on(5, 2)) is None
    assert find_window(nights, [on(1, 9)], on(5, 2)) is None
    assert find_window(nights, [on(day, 2, 5) for day in range(7)], on(9, 2)) is None
    scattered = [on(0, 2), on(1, 10), on(2, 18)]
    assert find_window(scattered, [on(3, 2), on(4, 10)], on(5, 2)) is None


moments = st.lists(
    st.datetimes(datetime(2025, 1, 1), datetime(2026, 1, 1), timezones=st.just(UTC)), max_size=12
)


@given(moments, moments, st.datetimes(timezones=st.just(UTC)))
def test_what_is_claimed_holds(failures, successes, at):
    """Whatever the times: a window holds every failure, and what it counts is there."""
    window = find_window(failures, successes, at)
    if window is not None:
        assert window.failures == len(failures)
        assert 2 <= window.worked_outside <= len(successes)
        for failure in failures:
            assert find_window(failures, successes, failure).inside
