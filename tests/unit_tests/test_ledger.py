"""The ledger: what goes in comes out, folds, resolves, is found by words, and survives what is done to it."""

from __future__ import annotations

import itertools
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from langchain_hermes_memory.errors import (
    ConfigurationError,
    SchemaVersionError,
    StoreClosedError,
    StoreDamagedError,
    StoreError,
    StoreLockedError,
)
from langchain_hermes_memory.ledger import Filters, Ledger
from langchain_hermes_memory.record import (
    Action,
    Category,
    Context,
    ExecutionResult,
    Lifecycle,
    Memory,
    Namespace,
    Reason,
    Record,
    RecordType,
    Status,
    Target,
    TargetKind,
)
from langchain_hermes_memory.score import History
from langchain_hermes_memory.words import terms

START = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
MINE = Namespace(user="ann", agent="ops")
OTHER = Namespace(user="bob", agent="ops")

_count = itertools.count()


def record(
    *,
    minute: float = 0,
    status: Status = Status.FAILURE,
    key: str = "copy",
    namespace: Namespace = MINE,
    description: str = "copy the archive to the mirror",
    targets: tuple[str, ...] = (),
    session: str = "s1",
    call: str = "",
    tags: tuple[str, ...] = (),
    category: Category | None = None,
    code: str = "",
    tool: str = "shell",
    importance: int = 50,
    kind: RecordType = RecordType.TOOL,
    intent: str = "",
    command: str = "cp a b",
    record_id: str = "",
) -> Record:
    return Record(
        id=record_id or f"id-{next(_count)}",
        namespace=namespace,
        type=kind,
        tool_name=tool,
        timestamp=START + timedelta(minutes=minute),
        original_command=command,
        execution_result=ExecutionResult(status=status, category=category, error_code=code),
        context=Context(session_id=session, tool_call_id=call, user_intent=intent),
        action=Action(
            operation="cp",
            key=key,
            family="cp",
            targets=tuple(Target(kind=TargetKind.PATH, value=t) for t in targets),
        ),
        importance_score=importance,
        tags=tags,
        description=description,
    )


def put(ledger: Ledger, new: Record, *, admitted: bool = True) -> int:
    """Add a record as the engine does: one memory for each action and outcome."""
    return ledger.add(new, fold_key=f"{new.action.key}|{new.execution_result.status}", admitted=admitted)


def one(ledger: Ledger, number: int, namespace: Namespace = MINE) -> Memory:
    return ledger.memories(namespace, [number])[0]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "ledger.db") as opened:
        yield opened


# ---------------------------------------------------------------------- round trip

_texts = st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=40)
_names = st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=300)
_times = st.datetimes(
    min_value=datetime(1990, 1, 1),
    max_value=datetime(2100, 1, 1),
    timezones=st.integers(-12 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes))),
)
_records = st.builds(
    Record,
    id=st.uuids().map(str),
    namespace=st.builds(Namespace, user=_names, agent=_names),
    type=st.sampled_from(RecordType),
    tool_name=_texts,
    timestamp=_times,
    original_command=_texts,
    execution_result=st.builds(
        ExecutionResult,
        status=st.sampled_from(Status),
        category=st.none() | st.sampled_from(Category),
        error_code=_texts,
        output=_texts,
        transient=st.none() | st.booleans(),
        evidence=st.just(()),
    ),
    context=st.builds(
        Context,
        user_intent=_texts,
        session_id=_names,
        tool_call_id=_names,
        duration_ms=st.none() | st.floats(0, 1e9),
    ),
    action=st.builds(
        Action,
        operation=_texts,
        key=_names,
        family=_texts,
        targets=st.lists(st.builds(Target, kind=st.sampled_from(TargetKind), value=_names), max_size=4).map(
            tuple
        ),
        dangers=st.just(()),
    ),
    importance_score=st.integers(0, 100),
    importance_reasons=st.lists(
        st.builds(Reason, rule=_texts, points=st.floats(allow_nan=False, allow_infinity=False)), max_size=2
    ).map(tuple),
    tags=st.lists(_texts, max_size=3).map(tuple),
    description=_texts,
    pinned=st.booleans(),
)


@settings(max_examples=60, deadline=None)
@given(_records)
def test_a_record_comes_back_as_it_went_in(new: Record) -> None:
    """Whatever texts and names a record has, the ledger gives it back unchanged, by memory and by session."""
    with Ledger.open(":memory:") as ledger:
        number = ledger.add(new, fold_key=new.action.key, admitted=True)
        assert one(ledger, number, new.namespace).record == new
        assert ledger.by_session(new.namespace, new.context.session_id, 5) == [new]
        assert ledger.namespaces() == [new.namespace]
        assert ledger.by_action(new.namespace, new.action.key) == [number]


def test_half_characters_do_not_break_a_write(ledger: Ledger) -> None:
    """Halves of surrogate pairs and NULs in any text are replaced or kept, never refused."""
    broken = record(
        description="copy \ud83d failed\0here",
        targets=("/srv/\udc00x",),
        session="s\ud800",
        command="cp \ud800\0",
    )
    number = put(ledger, broken)
    assert one(ledger, number).record.action.key == "copy"
    assert [found for found, _ in ledger.search_words(MINE, terms("failed"), 5)] == [number]


def test_namespaces_may_be_called_anything(ledger: Ledger) -> None:
    """Namespaces with strange, long and nearly equal names stay apart."""
    names = [
        "",
        "a",
        "a/b",
        "a.b",
        "张三",
        "🙂",
        "x" * 5_000,
        "x" * 5_001,
        "a\0",
        "\x01",
        "'; --",
        "a\ud800",
        "a\ud801",
    ]
    spaces = [Namespace(user=name, agent="b") for name in names] + [Namespace(user="a", agent="/bb")]
    numbers = [put(ledger, record(namespace=space)) for space in spaces]
    for space, number in zip(spaces, numbers, strict=True):
        assert ledger.select(space) == [number]


# ---------------------------------------------------------------------- folding


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(Status)), min_size=1, max_size=30))
def test_every_record_is_counted_once(runs: list[tuple[int, Status]]) -> None:
    """Over all memories, the times add up to the number of records."""
    with Ledger.open(":memory:") as ledger:
        numbers = {put(ledger, record(key=f"k{key}", status=status)) for key, status in runs}
        memories = ledger.memories(MINE, numbers)
        assert sum(memory.occurrences.times for memory in memories) == len(runs)
        assert len(memories) == len(set(runs))
        assert ledger.counts()["records"] == len(runs)


def test_equal_records_are_counted_not_repeated(ledger: Ledger) -> None:
    """A memory tells how often, since when, and shows the newest of its records."""
    ids = [f"r{n}" for n in range(3)]
    numbers = {put(ledger, record(minute=n, record_id=ids[n], importance=50 + n)) for n in (1, 2, 0)}
    memory = one(ledger, *numbers)
    assert memory.occurrences.times == 3
    assert memory.occurrences.first_seen == START
    assert memory.occurrences.last_seen == START + timedelta(minutes=2)
    assert memory.occurrences.record_ids == ("r2", "r1", "r0")
    assert memory.record.importance_score == 52


def test_a_record_id_counts_once(ledger: Ledger) -> None:
    """Adding the same record again, as an import may, changes nothing."""
    new = record()
    assert put(ledger, new) == put(ledger, new)
    assert one(ledger, 1).occurrences.times == 1


def test_the_newest_ids_are_kept_to_a_bound(ledger: Ledger) -> None:
    """A memory of many records names the newest 200, in order."""
    for n in range(230):
        number = put(ledger, record(minute=n, record_id=f"r{n:03}"))
    assert one(ledger, number).occurrences.record_ids == tuple(f"r{n:03}" for n in range(229, 29, -1))
    assert one(ledger, number).occurrences.times == 230


def test_a_memory_that_is_in_stays_in(ledger: Ledger) -> None:
    """Admission is never taken back by a later record."""
    number = put(ledger, record(minute=0), admitted=False)
    assert ledger.select(MINE) == []
    put(ledger, record(minute=1), admitted=True)
    put(ledger, record(minute=2), admitted=False)
    assert ledger.select(MINE) == [number]


# ---------------------------------------------------------------------- lifecycle


def test_a_later_success_resolves_a_failure(ledger: Ledger) -> None:
    """Resolved means: the same action succeeded after the last failure; the first such success is named."""
    put(ledger, record(minute=0, status=Status.SUCCESS))
    failure = put(ledger, record(minute=10))
    success = put(ledger, record(minute=20, status=Status.SUCCESS))
    put(ledger, record(minute=30, status=Status.SUCCESS))
    memory = one(ledger, failure)
    assert memory.lifecycle is Lifecycle.RESOLVED
    assert memory.resolved_at == START + timedelta(minutes=20)
    assert memory.resolved_by == success
    assert memory.worked_until == START
    assert memory.occurrences.action_times == 4


def test_a_failure_after_the_success_opens_it_again(ledger: Ledger) -> None:
    """A failure that came back after its success is open."""
    failure = put(ledger, record(minute=0))
    put(ledger, record(minute=5, status=Status.SUCCESS))
    put(ledger, record(minute=9))
    assert one(ledger, failure).lifecycle is Lifecycle.OPEN


@pytest.mark.parametrize("other", [{"key": "other"}, {"namespace": OTHER}, {"status": Status.UNKNOWN}])
def test_nothing_else_resolves_a_failure(ledger: Ledger, other: dict[str, object]) -> None:
    """Another action, another namespace, an outcome that is no success: none resolves."""
    failure = put(ledger, record(minute=0))
    put(ledger, record(minute=5, **{"status": Status.SUCCESS, **other}))  # type: ignore[arg-type]
    assert one(ledger, failure).lifecycle is Lifecycle.OPEN


def test_a_failure_that_keeps_coming_recurs(ledger: Ledger) -> None:
    """Recurring means: so many times within the window, which ends at the last of them or where asked."""
    for day in (0, 3, 6):
        failure = put(ledger, record(minute=day * 1440))
    week = timedelta(days=7)
    assert (
        ledger.memories(MINE, [failure], recurring_after=3, window=week)[0].lifecycle is Lifecycle.RECURRING
    )
    assert ledger.memories(MINE, [failure], recurring_after=4, window=week)[0].lifecycle is Lifecycle.OPEN
    assert ledger.memories(MINE, [failure], window=timedelta(days=5))[0].lifecycle is Lifecycle.OPEN
    later = START + timedelta(days=8)
    assert ledger.memories(MINE, [failure], at=later, window=week)[0].lifecycle is Lifecycle.OPEN


def test_what_is_no_failure_is_open(ledger: Ledger) -> None:
    """A success and a note neither recur nor are resolved."""
    (success,) = {put(ledger, record(minute=n, status=Status.SUCCESS)) for n in range(5)}
    note = put(ledger, record(minute=2, kind=RecordType.NOTE, status=Status.UNKNOWN))
    for memory in ledger.memories(MINE, [success, note]):
        assert memory.lifecycle is Lifecycle.OPEN
        assert memory.resolved_at is memory.resolved_by is memory.worked_until is None


_runs = st.lists(
    st.tuples(st.integers(0, 20_000), st.sampled_from([Status.SUCCESS, Status.FAILURE, Status.PARTIAL])),
    min_size=1,
    max_size=10,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_runs, st.randoms(use_true_random=False))
def test_the_order_of_arrival_does_not_matter(runs: list[tuple[int, Status]], random: object) -> None:
    """Records that arrive in any order make the same memories."""
    made = [
        record(minute=minute, status=status, record_id=f"r{n}", description=f"run {n}", tags=(f"t{n}",))
        for n, (minute, status) in enumerate(runs)
    ]
    shuffled = list(made)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert _state(made) == _state(shuffled)


def _state(made: list[Record]) -> list[object]:
    with Ledger.open(":memory:") as ledger:
        numbers = sorted({put(ledger, new) for new in made})
        memories = ledger.memories(MINE, numbers)
        status = {memory.number: memory.record.execution_result.status for memory in memories}
        words = {status[number]: round(score, 9) for number, score in ledger.search_words(MINE, ["run"], 9)}
        tags = {
            tag: [status[n] for n in ledger.select(MINE, Filters(tags=[tag]))] for tag in ("t0", "t1", "t2")
        }
        plain = [
            memory.model_copy(update={"number": 0, "resolved_by": status.get(memory.resolved_by or 0)})
            for memory in memories
        ]
        return [sorted(plain, key=lambda memory: memory.record.execution_result.status), words, tags]


def test_memories_come_in_the_order_asked_for(ledger: Ledger) -> None:
    """Numbers are answered in their order, unknown and foreign ones left out, each once."""
    mine = [put(ledger, record(key=f"k{n}")) for n in range(4)]
    foreign = put(ledger, record(namespace=OTHER))
    asked = [mine[2], 999, mine[0], foreign, mine[3], mine[0]]
    assert [memory.number for memory in ledger.memories(MINE, asked)] == [mine[2], mine[0], mine[3]]


# ---------------------------------------------------------------------- words


def test_look_alike_paths_are_told_apart(ledger: Ledger) -> None:
    """The memory of the very path stands before those of its look-alikes."""
    paths = ["/tmp/cache_backup", "/tmp/cache-old", "/tmp/cache", "/tmp/cache2"]
    numbers = {
        path: put(ledger, record(key=path, description=f"clean {path} failed", targets=(path,)))
        for path in paths
    }
    for path in paths:
        found = ledger.search_words(MINE, terms(f"clean {path}"), 5)
        assert found[0][0] == numbers[path]
        assert found[0][1] > found[1][1] > 0


def test_chinese_is_found(ledger: Ledger) -> None:
    """A Chinese query finds the Chinese memory that shares its words."""
    wanted = put(ledger, record(key="a", description="清理临时文件失败：路径不存在"))
    put(ledger, record(key="b", description="每周备份数据库成功"))
    assert [number for number, _ in ledger.search_words(MINE, terms("请帮我把临时文件清理一下"), 5)] == [
        wanted
    ]


def test_targets_codes_and_tools_are_words(ledger: Ledger) -> None:
    """What a description leaves out, a target, an error code or the tool's name, is still found."""
    number = put(
        ledger,
        record(description="it failed", targets=("/srv/media/film.mkv",), code="E_QUOTA", tool="mover"),
    )
    for query in ("/srv/media/film.mkv", "E_QUOTA", "mover"):
        assert [found for found, _ in ledger.search_words(MINE, terms(query), 5)] == [number]


def test_words_follow_the_newest_record(ledger: Ledger) -> None:
    """A memory is found by its newest description, no more by an older one."""
    number = put(ledger, record(minute=0, description="copy to alpha"))
    put(ledger, record(minute=5, description="copy to beta"))
    put(ledger, record(minute=3, description="copy to gamma"))
    assert [found for found, _ in ledger.search_words(MINE, ["beta"], 5)] == [number]
    assert ledger.search_words(MINE, ["alpha"], 5) == ledger.search_words(MINE, ["gamma"], 5) == []


def test_what_is_not_admitted_is_found_where_asked_for(ledger: Ledger) -> None:
    """Words find long-term memories, others only by number or on request."""
    number = put(ledger, record(), admitted=False)
    assert ledger.search_words(MINE, ["archiv"], 5) == []
    assert [found for found, _ in ledger.search_words(MINE, ["archiv"], 5, also=[number])] == [number]
    assert [found for found, _ in ledger.search_words(MINE, ["archiv"], 5, admitted_only=False)] == [number]


def test_common_words_give_way_to_rare_ones(ledger: Ledger) -> None:
    """In a larger namespace a word that most memories have is not searched beside a rare one, but alone."""
    for n in range(80):
        put(ledger, record(key=f"k{n}", description=f"nightly backup number{n:03}x"))
    assert [found for found, _ in ledger.search_words(MINE, terms("nightly backup number007x"), 50)] == [8]
    assert len(ledger.search_words(MINE, terms("nightly backup"), 50)) == 50


def test_scores_do_not_depend_on_other_namespaces(ledger: Ledger) -> None:
    """However much others store, a namespace's scores stay what they were."""
    for n in range(5):
        put(ledger, record(key=f"k{n}", description=f"copy archive part{n}"))
    before = ledger.search_words(MINE, terms("archive part3"), 5)
    for n in range(60):
        put(ledger, record(key=f"k{n}", namespace=OTHER, description=f"copy archive part3 archive {n}"))
    assert ledger.search_words(MINE, terms("archive part3"), 5) == before


@pytest.mark.parametrize(
    "query", [[], [""], ['"'], ["*"], ["AND", "OR", "NOT"], ["a" * 10_000], ["terms:x"], ["\0"], ["'"]]
)
def test_no_query_breaks_the_search(ledger: Ledger, query: list[str]) -> None:
    """The syntax of the full-text engine has no power in a query."""
    put(ledger, record())
    assert ledger.search_words(MINE, query, 5) == []


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.sampled_from(Status)), min_size=1, max_size=15)
)
def test_two_namespaces_never_meet(runs: list[tuple[bool, int, Status]]) -> None:
    """No search, list or count of one namespace shows anything of another."""
    with Ledger.open(":memory:") as ledger:
        owned: dict[Namespace, set[int]] = {MINE: set(), OTHER: set()}
        for mine, key, status in runs:
            space = MINE if mine else OTHER
            owned[space].add(
                put(
                    ledger,
                    record(
                        key=f"k{key}", status=status, namespace=space, targets=("/a",), tags=("t",), call="c"
                    ),
                )
            )
        for space, numbers in owned.items():
            everything = sorted(owned[MINE] | owned[OTHER])
            assert set(ledger.select(space)) == numbers
            assert {
                number for number, _ in ledger.search_words(space, ["archiv"], 99, also=everything)
            } == numbers
            assert {memory.number for memory in ledger.memories(space, everything)} == numbers
            assert set(ledger.by_targets(space, ["/a"], 99)) == numbers
            assert set(itertools.chain(*(ledger.by_action(space, f"k{n}") for n in range(4)))) == numbers
            assert set(ledger.session_numbers(space, "s1", 99)) == numbers
            assert set(ledger.select(space, Filters(tags=["t"], session="s1"))) == numbers
            assert {found.namespace for found in ledger.by_session(space, "s1", 99)} <= {space}
            assert {
                failure.namespace for _, failure in ledger.unresolved_failures(space, "s1", START, 99)
            } <= {space}
            assert ledger.counts(space)["memories"] == len(numbers)
            assert ledger.recorded_calls(space, "s1", ["c"]) == ({"c"} if numbers else set())
        strangers = owned[OTHER] - owned[MINE]
        assert ledger.forget(MINE, strangers) == []
        assert not any(
            ledger.pin(MINE, number) or ledger.add_feedback(MINE, number, 1) for number in strangers
        )


# ---------------------------------------------------------------------- other ways to find


def test_targets_are_found_exactly(ledger: Ledger) -> None:
    """Memories of the very targets are found, those with most of them first, then the newest."""
    both = put(ledger, record(key="a", minute=0, targets=("/srv/a", "/srv/b")))
    old = put(ledger, record(key="b", minute=1, targets=("/srv/a",)))
    new = put(ledger, record(key="c", minute=2, targets=("/srv/b",)))
    put(ledger, record(key="d", minute=3, targets=("/srv/a/c", "/srv")))
    assert ledger.by_targets(MINE, ["/srv/a", "/srv/b"], 9) == [both, new, old]
    assert ledger.by_targets(MINE, ["/srv/a", "/srv/b"], 1) == [both]
    assert ledger.by_targets(MINE, [], 9) == []


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (Filters(), [2, 1, 0]),
        (Filters(status=[Status.SUCCESS]), [1]),
        (Filters(status=[Status.SUCCESS, Status.FAILURE]), [2, 1, 0]),
        (Filters(category=[Category.NETWORK]), [0]),
        (Filters(error_code="E1"), [0]),
        (Filters(tool="sql"), [2]),
        (Filters(tags=["x"]), [1, 0]),
        (Filters(tags=["x", "y"]), [0]),
        (Filters(since=START + timedelta(minutes=10)), [2, 1]),
        (Filters(until=START + timedelta(minutes=10)), [0]),
        (Filters(since=START + timedelta(minutes=5), until=START + timedelta(minutes=15)), [1]),
        (Filters(min_importance=60), [1]),
        (Filters(session="s2"), [2]),
        (Filters(type=RecordType.NOTE), [2]),
        (Filters(admitted=False), [3]),
        (Filters(admitted=None), [3, 2, 1, 0]),
        (Filters(status=[Status.FAILURE], tags=["x"], tool="shell"), [0]),
    ],
)
def test_memories_are_filtered(ledger: Ledger, filters: Filters, expected: list[int]) -> None:
    """Each filter narrows the list; together all must hold; the newest come first."""
    made = [
        record(key="0", minute=0, category=Category.NETWORK, code="E1", tags=("x", "y")),
        record(key="1", minute=10, status=Status.SUCCESS, tags=("x",), importance=70),
        record(key="2", minute=20, tool="sql", session="s2", kind=RecordType.NOTE),
        record(key="3", minute=30),
    ]
    numbers = [put(ledger, new, admitted=new.action.key != "3") for new in made]
    assert ledger.select(MINE, filters) == [numbers[n] for n in expected]


def test_lists_are_paged(ledger: Ledger) -> None:
    """Pages follow each other without gaps or repetitions."""
    numbers = [put(ledger, record(key=f"k{n}", minute=n)) for n in range(7)]
    pages = [ledger.select(MINE, limit=3, offset=offset) for offset in (0, 3, 6)]
    assert list(itertools.chain(*pages)) == numbers[::-1]


def test_the_history_of_an_action(ledger: Ledger) -> None:
    """Failures since a time and ever, successes ever and since the last failure; others not counted."""
    for minute, status in (
        (0, Status.FAILURE),
        (5, Status.FAILURE),
        (6, Status.SUCCESS),
        (7, Status.FAILURE),
    ):
        put(ledger, record(minute=minute, status=status), admitted=False)
    put(ledger, record(key="other", minute=9))
    put(ledger, record(minute=11, status=Status.SUCCESS))
    found = ledger.history(MINE, "copy", START + timedelta(minutes=5))
    assert found == History(failures=2, failures_ever=3, successes=2, successes_since_failure=1)
    assert ledger.history(MINE, "nothing", START) == History()


def test_the_runs_of_an_action(ledger: Ledger) -> None:
    """Every run with its memory and time, the newest first."""
    for minute, status in ((0, Status.FAILURE), (5, Status.SUCCESS)):
        put(ledger, record(minute=minute, status=status))
    put(ledger, record(key="other", minute=9))
    found = ledger.run_times(MINE, "copy")
    assert [(at, status) for _, at, status in found] == [
        (START + timedelta(minutes=5), Status.SUCCESS),
        (START, Status.FAILURE),
    ]


def test_a_session_shows_all_its_records(ledger: Ledger) -> None:
    """Working memory holds the newest records of the session, admitted or not, newest first."""
    made = [record(minute=n, session="s1" if n % 2 else "s2", kind=list(RecordType)[n % 3]) for n in range(8)]
    for new in made:
        put(ledger, new, admitted=False)
    assert ledger.by_session(MINE, "s1", 3) == [made[7], made[5], made[3]]
    assert ledger.by_session(MINE, "s1", 9, type=RecordType.CONVERSATION) == [made[7], made[1]]


def test_recorded_calls_are_known_by_session(ledger: Ledger) -> None:
    """A call counts as recorded in its own session only."""
    put(ledger, record(call="c1"))
    put(ledger, record(call="c2", session="s2"))
    assert ledger.recorded_calls(MINE, "s1", ["c1", "c2", "c3", ""]) == {"c1"}


def test_unresolved_failures_wait_for_a_solution(ledger: Ledger) -> None:
    """Failures of the session come newest first, without settled and older ones and those of others."""
    put(ledger, record(key="old", minute=-60))
    put(ledger, record(key="settled", minute=1))
    put(ledger, record(key="settled", minute=2, status=Status.SUCCESS))
    put(ledger, record(key="elsewhere", minute=3, session="s2"))
    linked = put(ledger, record(key="linked", minute=4))
    first = put(ledger, record(key="first", minute=5, intent="publish the site"))
    second = put(ledger, record(key="second", minute=6, status=Status.PARTIAL))
    way = put(ledger, record(key="way", minute=7, status=Status.SUCCESS, command="rsync a b"))
    assert ledger.link_solution(MINE, linked, way)
    found = ledger.unresolved_failures(MINE, "s1", START, 9)
    assert [number for number, _ in found] == [second, first]
    assert found[1][1].context.user_intent == "publish the site"
    assert one(ledger, linked).solution == way
    assert one(ledger, linked).solution_text == "rsync a b"


# ---------------------------------------------------------------------- changes


def test_users_marks_are_kept(ledger: Ledger) -> None:
    """Feedback adds up; withdrawing and pinning can be taken back; unknown numbers are told."""
    number = put(ledger, record())
    assert ledger.add_feedback(MINE, number, 1)
    assert ledger.add_feedback(MINE, number, -3)
    assert ledger.set_obsolete(MINE, number)
    assert ledger.pin(MINE, number)
    put(ledger, record(minute=5))
    memory = one(ledger, number)
    assert (memory.feedback, memory.obsolete, memory.record.pinned) == (-2, True, True)
    assert ledger.select(MINE, Filters(obsolete=False)) == []
    ledger.set_obsolete(MINE, number, obsolete=False)
    ledger.pin(MINE, number, pinned=False)
    assert (one(ledger, number).obsolete, one(ledger, number).record.pinned) == (False, False)
    assert not ledger.pin(MINE, 999)
    assert not ledger.link_solution(MINE, number, 999)


def test_a_forgotten_memory_is_gone_everywhere(ledger: Ledger, tmp_path: Path) -> None:
    """Forgetting removes records, words, marks and links; the number never comes back."""
    way = put(ledger, record(key="way", status=Status.SUCCESS))
    number = put(ledger, record(description="secret plan", targets=("/srv/plan",), tags=("t",)))
    failure = put(ledger, record(key="other"))
    ledger.link_solution(MINE, failure, way)
    assert ledger.forget(MINE, [number, way, 999]) == [way, number]
    assert ledger.memories(MINE, [number]) == ledger.search_words(MINE, terms("secret plan"), 5) == []
    assert ledger.by_targets(MINE, ["/srv/plan"], 5) == ledger.select(MINE, Filters(tags=["t"])) == []
    assert ledger.by_session(MINE, "s1", 9)[0].action.key == "other"
    assert one(ledger, failure).solution is None
    assert put(ledger, record()) > failure


def test_forgetting_a_record_counts_its_memory_anew(ledger: Ledger) -> None:
    """A memory that has records left is what it would be without the forgotten one."""
    for n, text in enumerate(("alpha", "beta", "gamma")):
        number = put(ledger, record(minute=n, record_id=f"r{n}", description=text, targets=(f"/{text}",)))
    assert ledger.forget_records(MINE, ["r2", "unknown"]) == []
    memory = one(ledger, number)
    assert memory.record.description == "beta"
    assert memory.occurrences.times == 2
    assert memory.occurrences.last_seen == START + timedelta(minutes=1)
    assert ledger.search_words(MINE, ["gamma"], 5) == ledger.by_targets(MINE, ["/gamma"], 5) == []
    assert [found for found, _ in ledger.search_words(MINE, ["beta"], 5)] == [number]
    assert ledger.forget_records(MINE, ["r0", "r1"]) == [number]
    assert ledger.counts()["memories"] == 0


# ---------------------------------------------------------------------- the queue of the index


def test_the_ledger_is_the_queue(ledger: Ledger) -> None:
    """Admitted memories wait, oldest first, until they are marked; a mere repetition does not wait."""
    first = put(ledger, record(key="a", description="one"))
    put(ledger, record(key="b"), admitted=False)
    second = put(ledger, record(key="c", namespace=OTHER, description="two"))
    waiting = ledger.pending(9)
    assert [(item.number, item.namespace, item.description) for item in waiting] == [
        (first, MINE, "one"),
        (second, OTHER, "two"),
    ]
    assert [item.number for item in ledger.pending(1)] == [first]
    ledger.mark_indexed((item.number, item.revision) for item in waiting)
    put(ledger, record(key="a", minute=1, description="one"))
    assert ledger.pending_count() == 0


def test_a_change_during_indexing_stays_pending(ledger: Ledger) -> None:
    """What changed after it was taken from the queue is indexed again."""
    number = put(ledger, record(description="one"))
    taken = ledger.pending(9)
    put(ledger, record(minute=1, description="two"))
    ledger.mark_indexed((item.number, item.revision) for item in taken)
    assert [(item.number, item.description) for item in ledger.pending(9)] == [(number, "two")]


def test_a_late_admission_is_indexed(ledger: Ledger) -> None:
    """A memory that is admitted by a repetition waits from then on."""
    put(ledger, record(), admitted=False)
    assert ledger.pending_count() == 0
    put(ledger, record(minute=1))
    assert ledger.pending_count() == 1


def test_everything_can_be_queued_again(ledger: Ledger) -> None:
    """For a rebuild all admitted memories wait again, of one namespace or of all."""
    put(ledger, record(key="a"))
    put(ledger, record(key="b"), admitted=False)
    put(ledger, record(namespace=OTHER))
    ledger.mark_indexed((item.number, item.revision) for item in ledger.pending(9))
    assert ledger.mark_all_pending(OTHER) == ledger.pending_count() == 1
    assert ledger.mark_all_pending() == ledger.pending_count() == 2
    assert ledger.mark_all_pending(Namespace(user="nobody")) == 0


# ---------------------------------------------------------------------- the store


def test_values_are_kept_with_the_store(tmp_path: Path) -> None:
    """Values and records outlive the process."""
    with Ledger.open(tmp_path / "deep" / "er" / "ledger.db") as ledger:
        ledger.set_meta("a", "1")
        ledger.set_meta("a", "二")
        number = put(ledger, record())
    with Ledger.open(tmp_path / "deep" / "er" / "ledger.db", durability="full") as ledger:
        assert ledger.get_meta("a") == "二"
        assert ledger.get_meta("b") is None
        assert one(ledger, number).record.description == "copy the archive to the mirror"


def test_counts_tell_what_there_is(ledger: Ledger) -> None:
    """Counts add up over records, memories and kinds."""
    put(ledger, record(category=Category.NETWORK))
    put(ledger, record(category=Category.NETWORK))
    put(ledger, record(status=Status.SUCCESS), admitted=False)
    put(ledger, record(namespace=OTHER))
    counts = ledger.counts(MINE)
    assert (counts["records"], counts["memories"], counts["admitted"], counts["pending"]) == (3, 2, 1, 1)
    assert (counts["status.failure"], counts["status.success"], counts["category.network"]) == (1, 1, 1)
    assert ledger.counts()["memories"] == 3
    assert ledger.counts(Namespace(user="nobody"))["memories"] == 0


def test_a_closed_ledger_says_so(tmp_path: Path) -> None:
    """Every call after `close` is refused."""
    ledger = Ledger.open(tmp_path / "ledger.db")
    ledger.close()
    ledger.close()
    for call in (
        lambda: put(ledger, record()),
        ledger.namespaces,
        lambda: ledger.get_meta("a"),
        ledger.pending_count,
    ):
        with pytest.raises(StoreClosedError):
            call()


@pytest.mark.parametrize(
    "content", [b"x", b"not a database at all" * 100, b"\0" * 5000, b"SQLite format 3\0" + b"\1" * 600]
)
def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path, content: bytes) -> None:
    """A damaged or foreign file is refused with advice and stays as it was."""
    path = tmp_path / "ledger.db"
    path.write_bytes(content)
    with pytest.raises(StoreDamagedError, match="backup"):
        Ledger.open(path)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_a_truncated_ledger_is_damaged(tmp_path: Path) -> None:
    """A ledger that lost its end is refused and stays as it was."""
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        for n in range(200):
            put(ledger, record(key=f"k{n}"))
    os.truncate(path, 20_000)
    before = path.read_bytes()
    with pytest.raises(StoreDamagedError), Ledger.open(path) as ledger:
        ledger.select(MINE)
    assert path.read_bytes() == before


def test_the_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    """A database with other tables is refused and stays as it was."""
    path = tmp_path / "ledger.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE albums (title TEXT)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        Ledger.open(path)
    assert path.read_bytes() == before


def test_a_newer_store_is_left_alone(tmp_path: Path) -> None:
    """A store of a later version is refused by name."""
    path = tmp_path / "ledger.db"
    Ledger.open(path).close()
    with sqlite3.connect(path) as raw:
        raw.execute("INSERT INTO schema_versions VALUES (99, 'later')")
    raw.close()
    with pytest.raises(SchemaVersionError, match="99"):
        Ledger.open(path)


def test_an_older_store_is_brought_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps lead from the version of the store to the newest, once, and keep what is in it."""
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        number = put(ledger, record())
    step = lambda connection: connection.exec_driver_sql("CREATE TABLE added (x)")  # noqa: E731
    monkeypatch.setattr("langchain_hermes_memory.ledger.schema.UPGRADES", (step,))
    for _ in range(2):
        with Ledger.open(path) as ledger:
            assert ledger.select(MINE) == [number]
    monkeypatch.undo()
    with pytest.raises(SchemaVersionError):
        Ledger.open(path)


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """A folder in place of the file, or a file in place of the folder, is an error that names the place."""
    (tmp_path / "file").write_text("x")
    for place in (tmp_path, tmp_path / "file" / "ledger.db"):
        with pytest.raises(StoreError, match=tmp_path.name):
            Ledger.open(place)


def test_another_kind_of_database_is_refused() -> None:
    """A URL that is none, or of a database that is not served, is a clear error."""
    for url in ("mysql://host/db", "nothing://", "://"):
        with pytest.raises(ConfigurationError):
            Ledger.open(url)


def test_a_ledger_that_another_process_holds_is_told(tmp_path: Path) -> None:
    """Waiting for another writer ends in an error; reading goes on, and so does writing afterwards."""
    with Ledger.open(tmp_path / "ledger.db", busy_timeout=0.05) as ledger:
        number = put(ledger, record())
        other = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreLockedError, match="Another process"):
            put(ledger, record(minute=1))
        assert one(ledger, number).occurrences.times == 1
        other.execute("ROLLBACK")
        other.close()
        assert put(ledger, record(minute=1)) == number


def test_a_full_disk_is_told_and_changes_nothing(tmp_path: Path) -> None:
    """A write that finds no space is undone as a whole."""
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        put(ledger, record())
        with ledger._database.read() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count=1")
        with pytest.raises(StoreError, match="disk is full"):
            _fill(ledger)
        counts = ledger.counts()
        assert counts["records"] == counts["memories"] == len(ledger.search_words(MINE, terms("shell"), 999))


def _fill(ledger: Ledger) -> None:
    for n in range(200):
        put(ledger, record(key=f"k{n}", description="word " * 500))


def test_threads_lose_nothing(tmp_path: Path) -> None:
    """Records from many threads are all there, folded as from one, while others read."""
    with Ledger.open(tmp_path / "ledger.db") as ledger, ThreadPoolExecutor(16) as pool:
        made = [record(minute=n, key=f"k{n % 7}", record_id=f"r{n}") for n in range(210)]
        writes = [pool.submit(put, ledger, new) for new in made]
        reads = [pool.submit(ledger.search_words, MINE, ["archiv"], 9) for _ in range(60)]
        numbers = {write.result() for write in writes}
        assert all(read.result() is not None for read in reads)
        assert len(numbers) == 7
        assert [memory.occurrences.times for memory in ledger.memories(MINE, numbers)] == [30] * 7


def test_threads_share_an_in_memory_ledger() -> None:
    """The one connection of an in-memory ledger serves threads one after the other."""
    with Ledger.open(":memory:") as ledger, ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda n: (put(ledger, record(key=f"k{n % 3}", minute=n)), ledger.select(MINE)), range(90)
            )
        )
        assert ledger.counts()["records"] == 90


_WRITER = """
import sys
from datetime import datetime, UTC
from langchain_hermes_memory.ledger import Ledger
from langchain_hermes_memory.record import *
with Ledger.open(sys.argv[1], busy_timeout=60) as ledger:
    for n in range(100):
        ledger.add(Record(id=f"{sys.argv[2]}-{n}", type=RecordType.TOOL, timestamp=datetime.now(UTC),
            execution_result=ExecutionResult(status=Status.FAILURE),
            action=Action(operation="x", key="x", family="x"), importance_score=50,
            description=f"copy {n}"), fold_key=str(n % 5), admitted=True)
"""


def test_processes_lose_nothing(tmp_path: Path) -> None:
    """Several processes may create, open and write one ledger at once."""
    path = tmp_path / "ledger.db"
    writers = [subprocess.Popen([sys.executable, "-c", _WRITER, str(path), str(n)]) for n in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    with Ledger.open(path) as ledger:
        assert ledger.counts()["records"] == 300
        assert [memory.occurrences.times for memory in ledger.memories(Namespace(), range(1, 9))] == [60] * 5


def test_a_killed_process_loses_no_committed_record(tmp_path: Path) -> None:
    """What `add` returned for is there after a kill in the middle of writing."""
    path = tmp_path / "ledger.db"
    script = _WRITER.replace("range(100)", "range(10**6)").replace(
        "admitted=True)", "admitted=True), print(n, flush=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path), "0"], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            if int(line) >= 50:
                writer.kill()
                break
        committed = [int(line) for line in writer.stdout if line.strip()]
    with Ledger.open(path) as ledger:
        counts = ledger.counts()
        assert counts["records"] >= max([50, *committed]) + 1
        assert (
            sum(m.occurrences.times for m in ledger.memories(Namespace(), range(1, 9))) == counts["records"]
        )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_writes_through_its_own_connection(tmp_path: Path) -> None:
    """After a fork, parent and child both go on writing, also when other threads were writing meanwhile."""
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        put(ledger, record(minute=0))
        stop = threading.Event()

        def keep_writing() -> None:
            while not stop.is_set():
                put(ledger, record(minute=1, key="other"))

        writers = [threading.Thread(target=keep_writing) for _ in range(3)]
        for writer in writers:
            writer.start()
        children = []
        for n in range(5):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    put(ledger, record(minute=1, record_id=f"child{n}"))
                    code = 0
                finally:
                    os._exit(code)
            children.append(child)
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * 5
        stop.set()
        for writer in writers:
            writer.join()
        assert put(ledger, record(minute=2)) == 1
        assert one(ledger, 1).occurrences.times == 7


def test_a_copied_store_opens_elsewhere(tmp_path: Path) -> None:
    """A closed ledger is one file that can be copied."""
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        number = put(ledger, record())
    shutil.copy(tmp_path / "ledger.db", tmp_path / "copy.db")
    with Ledger.open(tmp_path / "copy.db") as ledger:
        assert ledger.select(MINE) == [number]
