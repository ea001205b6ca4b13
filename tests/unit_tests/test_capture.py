"""The call log: starts and ends become calls and turns, once each, within bounds."""

import logging
import threading
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage, messages_to_dict

from langchain_hermes_memory._messages import answer_text, is_rejection, last_human, request_text, text_of
from langchain_hermes_memory.capture import CHAINS_PER_CALL, CallLog, Run, Watch, is_failure
from langchain_hermes_memory.record import Namespace, Turn
from langchain_hermes_memory.settings import Settings
from langchain_hermes_memory.testing import FrozenClock

ANN, BOB = Namespace(user="ann"), Namespace(user="bob")
NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


@dataclass
class Notes:
    """An engine that keeps what it is told."""

    settings: Settings = field(default_factory=lambda: Settings(max_open_runs=10))
    clock: FrozenClock = field(default_factory=lambda: FrozenClock(NOON))
    calls: list = field(default_factory=list)
    turns: list = field(default_factory=list)
    counters: Counter = field(default_factory=Counter)

    def observe(self, call):
        self.calls.append(call)

    def observe_turn(self, turn):
        self.turns.append(turn)

    def recorded_calls(self, namespace, session_id, tool_call_ids):
        return {call.tool_call_id for call in self.calls}

    def count(self, counter, n=1):
        self.counters[counter] += n


@pytest.fixture
def notes():
    return Notes()


@pytest.fixture
def log(notes):
    return CallLog(notes)


def run(run_id, parent="", namespace=ANN, **values):
    return Run(namespace=namespace, run_id=run_id, parent_run_id=parent, **values)


def turn(user="hi", assistant="hello", namespace=ANN, session_id="default"):
    return Turn(user=user, assistant=assistant, at=NOON, namespace=namespace, session_id=session_id)


class TestPairing:
    """Starts and ends."""

    def test_an_end_without_a_start_is_ignored(self, notes, log):
        """A log that was attached in the middle of a run records nothing of which it lacks the start."""
        log.call_ended(run("t1"), "out")
        log.chain_ended(run("c1"), {"output": "done"})
        assert (notes.calls, notes.turns) == ([], [])

    def test_a_call_ends_once(self, notes, log):
        """A second end of the same run changes nothing."""
        log.call_started(run("t1"), "ls", {"path": "/"})
        log.call_ended(run("t1"), "out")
        log.call_failed(run("t1"), OSError())
        assert [call.output for call in notes.calls] == ["out"]

    def test_runs_of_two_namespaces_never_meet(self, notes, log):
        """Two handlers on one run keep their own books."""
        log.call_started(run("t1"), "ls", "a")
        log.call_started(run("t1", namespace=BOB), "ls", "b")
        log.call_ended(run("t1", namespace=BOB), "out")
        assert [(call.namespace, call.tool_input) for call in notes.calls] == [(BOB, "b")]

    def test_open_runs_are_bounded(self, notes, log, caplog):
        """Of more open runs than the setting allows the oldest are dropped, counted and logged."""
        with caplog.at_level(logging.WARNING):
            for number in range(15):
                log.call_started(run(f"t{number}"), "ls", "")
        for number in range(15):
            log.call_ended(run(f"t{number}"), number)
        assert [call.output for call in notes.calls] == list(range(5, 15))
        assert notes.counters["dropped_runs"] == 5
        assert caplog.records[0].max_open_runs == 10

    def test_open_chains_are_bounded(self, notes, log):
        """Chains that never end are dropped, too."""
        most = CHAINS_PER_CALL * notes.settings.max_open_runs
        for number in range(most + 3):
            log.chain_started(run(f"c{number}"), {"input": "hi"})
        assert notes.counters["dropped_runs"] == 3

    def test_a_finished_run_leaves_nothing_behind(self, notes, log):
        """What has ended takes no room: any number of runs can follow each other."""
        for number in range(200):
            log.chain_started(run(f"c{number}"), {"input": "hi"})
            log.call_started(run(f"t{number}", f"c{number}"), "ls", "")
            log.call_ended(run(f"t{number}", f"c{number}"), "out")
            log.chain_failed(run(f"c{number}"))
        assert len(notes.calls) == 200
        assert notes.counters["dropped_runs"] == 0

    def test_threads_do_not_disturb_each_other(self, notes, log):
        """Events of many threads are paired by run."""

        def work(name):
            for number in range(50):
                log.call_started(run(f"{name}-{number}"), name, {"n": number})
                log.call_ended(run(f"{name}-{number}"), (name, number))

        threads = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(notes.calls) == 400
        assert all(call.output == (call.tool, call.tool_input["n"]) for call in notes.calls)


class TestAttempts:
    """The same tool call, again."""

    def test_repeated_runs_of_a_call_are_numbered(self, notes, log):
        """Each finished run of one tool call within a request is another attempt."""
        log.chain_started(run("root"), {"input": "hi"})
        for name in ("t1", "t2"):
            log.call_started(run(name, "root"), "ls", "", "c1")
            log.call_failed(run(name, "root"), OSError())
        assert [call.attempt for call in notes.calls] == [1, 2]

    def test_an_id_that_comes_again_in_the_next_request_starts_anew(self, notes, log):
        """Models that number their calls from one in each request do not make attempts of them."""
        for root in ("r1", "r2"):
            log.chain_started(run(root), {"input": "hi"})
            log.call_started(run(f"t-{root}", root), "ls", "", "c1")
            log.call_ended(run(f"t-{root}", root), "out")
        assert [call.attempt for call in notes.calls] == [1, 1]

    def test_a_call_without_an_id_is_a_first_attempt(self, notes, log):
        """Where nothing identifies the call, nothing is counted."""
        for name in ("t1", "t2"):
            log.call_started(run(name), "ls", "")
            log.call_ended(run(name), "out")
        assert [call.attempt for call in notes.calls] == [1, 1]


class TestPlanned:
    """Ids that an executor tells before the call."""

    def start(self, log, name, tool, tool_input):
        log.call_started(run(name, "root"), tool, tool_input)
        log.call_ended(run(name, "root"), "out")

    @pytest.mark.parametrize("order", [(1, 2), (2, 1)])
    def test_the_id_is_found_by_tool_and_input(self, notes, log, order):
        """Announced calls are matched by what they are, not by their order."""
        log.chain_started(run("root"), {"input": "hi"})
        for number in (1, 2):
            log.call_planned(run("root"), "ls", {"n": number}, f"c{number}")
        for number in order:
            self.start(log, f"t{number}", "ls", {"n": number})
        assert [(call.tool_input["n"], call.tool_call_id) for call in notes.calls] == [
            (number, f"c{number}") for number in order
        ]

    def test_a_changed_input_is_matched_by_the_tool_if_there_is_but_one(self, notes, log):
        """A tool's schema may change the arguments; the only announced call of the tool is meant."""
        log.chain_started(run("root"), {"input": "hi"})
        log.call_planned(run("root"), "ls", {"n": "1"}, "c1")
        self.start(log, "t1", "ls", {"n": 1})
        assert notes.calls[0].tool_call_id == "c1"

    def test_where_several_could_be_meant_none_is(self, notes, log):
        """A wrong id is worse than none."""
        log.chain_started(run("root"), {"input": "hi"})
        log.call_planned(run("root"), "ls", {"n": "1"}, "c1")
        log.call_planned(run("root"), "ls", {"n": "2"}, "c2")
        self.start(log, "t1", "ls", {"n": 1})
        assert notes.calls[0].tool_call_id == ""


class TestTurns:
    """A turn that is seen by a callback and reported by a memory."""

    def test_reported_before_the_end_it_counts_once(self, notes, log):
        """The callback's turn counts: it knows the session."""
        log.chain_started(run("root", session_id="s1"), {"input": "hi"})
        log.turn_reported(turn())
        log.chain_ended(run("root"), {"output": "hello"})
        assert [each.session_id for each in notes.turns] == ["s1"]

    def test_reported_after_the_end_it_counts_once(self, notes, log):
        """A memory that is saved after the run brings nothing new."""
        log.chain_started(run("root", session_id="s1"), {"input": "hi"})
        log.chain_ended(run("root"), {"output": "hello"})
        log.turn_reported(turn())
        assert [each.session_id for each in notes.turns] == ["s1"]

    def test_reported_alone_it_counts_each_time(self, notes, log):
        """Without a callback every report is a turn, also of the same words."""
        log.turn_reported(turn())
        log.turn_reported(turn())
        assert len(notes.turns) == 2

    def test_a_turn_that_was_reported_is_not_awaited_again(self, notes, log):
        """The same words later, which only a memory sees, are another turn."""
        log.chain_started(run("root"), {"input": "hi"})
        log.turn_reported(turn())
        log.chain_ended(run("root"), {"output": "hello"})
        log.turn_reported(turn())
        assert len(notes.turns) == 2

    def test_another_namespace_is_another_turn(self, notes, log):
        """The same words of two users are two turns."""
        log.chain_started(run("root", namespace=BOB), {"input": "hi"})
        log.turn_reported(turn())
        log.chain_ended(run("root", namespace=BOB), {"output": "hello"})
        assert [each.namespace for each in notes.turns] == [ANN, BOB]

    def test_where_the_root_has_no_answer_the_report_has(self, notes, log):
        """A root whose output cannot be read ends with the answer that the memory saw."""
        log.chain_started(run("root"), {"input": "hi"})
        log.turn_reported(turn())
        log.chain_ended(run("root"), {"rows": 3})
        assert [(each.user, each.assistant) for each in notes.turns] == [("hi", "hello")]

    @pytest.mark.parametrize(
        "outputs",
        [{"messages": [AIMessage("I look", tool_calls=[{"name": "ls", "args": {}, "id": "c"}])]}, None, {}],
    )
    def test_without_an_answer_there_is_no_turn(self, notes, log, outputs):
        """An interrupted agent has not answered yet."""
        log.chain_started(run("root"), {"input": "hi"})
        log.chain_ended(run("root"), outputs)
        assert notes.turns == []

    def test_an_input_known_only_at_the_end_is_read_then(self, notes, log):
        """A streamed sequence tells its input when it ends."""
        log.chain_started(run("root"), {"input": ""})
        log.chain_ended(run("root"), "hello", {"input": "hi"})
        assert [(each.user, each.assistant) for each in notes.turns] == [("hi", "hello")]


class TestSweep:
    """Calls that only the conversation shows."""

    CONVERSATION = (
        HumanMessage("old"),
        AIMessage("", tool_calls=[{"name": "rm", "args": {}, "id": "c0"}]),
        ToolMessage("gone", tool_call_id="c0", status="error"),
        HumanMessage("hi"),
        AIMessage("", tool_calls=[{"name": "ls", "args": {"n": n}, "id": f"c{n}"} for n in (1, 2, 3)]),
        ToolMessage("fine", tool_call_id="c1"),
        ToolMessage("no such tool", tool_call_id="c2", status="error"),
        ToolMessage("User rejected the tool call for `ls`", tool_call_id="c3", status="error"),
        AIMessage("done"),
    )

    def sweep(self, log):
        log.sweep(self.CONVERSATION, namespace=ANN, session_id="s", intent="hi", task_id="r")

    def test_failed_calls_of_this_request_are_recorded(self, notes, log):
        """Errors since the user's last message are calls, told from refusals; successes and older are not."""
        self.sweep(log)
        assert [(call.tool, call.tool_input, call.rejected) for call in notes.calls] == [
            ("ls", {"n": 2}, False),
            ("ls", {"n": 3}, True),
        ]

    def test_known_calls_are_not_recorded_again(self, notes, log):
        """A second sweep finds nothing new."""
        self.sweep(log)
        self.sweep(log)
        assert len(notes.calls) == 2


class TestWatch:
    """Calls in the hands of middleware."""

    def watch(self, log, **values):
        defaults = {"namespace": ANN, "session_id": "s", "tool": "ls", "tool_input": {}, "tool_call_id": "c1"}
        return Watch(log=log, **{**defaults, **values})

    def test_a_callback_inside_takes_over(self, notes, log):
        """What a callback records within a watch is not recorded again."""
        with self.watch(log) as watch:
            log.call_started(run("t1"), "ls", "", "c1")
            log.call_ended(run("t1"), "out")
        log.settle(watch)
        assert [call.run_id for call in notes.calls] == ["t1"]

    @pytest.mark.parametrize("other", [{"tool_call_id": "c2"}, {"namespace": BOB}])
    def test_a_callback_of_something_else_does_not(self, notes, log, other):
        """Another call, or another user's, leaves the watch to record its own."""
        with self.watch(log, **other) as watch:
            log.call_started(run("t1"), "ls", "", "c1")
            log.call_ended(run("t1"), "out")
        log.settle(watch)
        assert len(notes.calls) == 2

    def test_settling_twice_records_once(self, notes, log):
        """A watch is settled once."""
        with self.watch(log) as watch:
            watch.output = "out"
        log.settle(watch)
        log.settle(watch)
        assert [call.output for call in notes.calls] == ["out"]

    def test_an_exception_passes_and_is_recorded(self, notes, log):
        """A watch never swallows what the tool raises."""
        watch = self.watch(log)
        with pytest.raises(OSError, match="full"), watch:
            raise OSError("full")
        log.settle(watch)
        assert str(notes.calls[0].error) == "full"


class GraphBubbleUp(Exception):  # noqa: N818
    """Stands for langgraph's class of this name."""


class Paused(GraphBubbleUp):
    """An interrupt."""


class TestReading:
    """What counts as a failure, a request and an answer."""

    @pytest.mark.parametrize(
        ("error", "expected"),
        [
            (ValueError(), True),
            (TimeoutError(), True),
            (Paused(), False),
            (KeyboardInterrupt(), False),
            (GeneratorExit(), False),
            (SystemExit(), False),
        ],
        ids=repr,
    )
    def test_pauses_and_cancellations_are_no_failures(self, error, expected):
        """Only an ordinary exception says something about the tool."""
        assert is_failure(error) is expected

    @pytest.mark.parametrize(
        "value",
        [
            "hi",
            HumanMessage("hi"),
            {"input": "hi"},
            {"question": "", "query": "hi"},
            {"messages": [("user", "hi")]},
            {"messages": [{"role": "user", "content": "hi"}, AIMessage("hello")]},
            {"input": [{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": "x"}]},
            [HumanMessage("hi"), HumanMessage("summary", additional_kwargs={"lc_source": "summarization"})],
        ],
    )
    def test_the_request_is_found_in_every_form(self, value):
        """Texts, messages, tuples, dicts and content blocks hold the user's words; notices do not."""
        assert request_text(value) == "hi"

    @pytest.mark.parametrize(
        "value",
        [
            "hello",
            AIMessage("hello"),
            {"output": "hello"},
            {"output": [{"type": "text", "text": "hello"}]},
            {"answer": "hello", "context": ["doc"]},
            {"messages": [HumanMessage("hi"), AIMessage([{"type": "text", "text": "hello"}])]},
        ],
    )
    def test_the_answer_is_found_in_every_form(self, value):
        """Texts, messages, executors' and graphs' outputs hold the answer."""
        assert answer_text(value) == "hello"

    @pytest.mark.parametrize(
        ("message", "expected"),
        [
            (ToolMessage("User rejected the tool call for `ls`", tool_call_id="c", status="error"), True),
            (ToolMessage("limit exceeded", tool_call_id="c", status="error"), False),
            (ToolMessage("User rejected the tool call", tool_call_id="c", status="success"), False),
            ("User rejected the tool call", False),
        ],
    )
    def test_a_rejection_is_an_error_message_of_the_middleware(self, message, expected):
        """A refusal is told from other errors, with or without the mark of newer versions."""
        assert is_rejection(message) is expected

    @settings(deadline=None)
    @given(
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.text() | st.binary(),
            lambda inner: (
                st.lists(inner)
                | st.dictionaries(
                    st.sampled_from(["input", "output", "messages", "role", "type", "content", "text"]), inner
                )
            ),
        )
    )
    def test_any_value_can_be_read(self, value):
        """Whatever a chain is given or returns, reading it yields a text."""
        assert isinstance(request_text(value), str)
        assert isinstance(answer_text(value), str)
        assert isinstance(text_of(value), str)

    def test_serialised_messages_are_read(self):
        """The last message that the user typed is found among dicts."""
        found = last_human([{"type": "human", "content": "hi"}, {"role": "assistant", "content": "hello"}])
        assert found is not None
        assert found.content == "hi"
        assert last_human(messages_to_dict([AIMessage("hello")])) is None
