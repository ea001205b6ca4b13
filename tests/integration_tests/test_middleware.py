"""The middleware in real agents of `create_agent`, alone and together with the callback handler."""

import asyncio
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
from agents import (
    ANN,
    ASK,
    MODES,
    GateError,
    RecordingEngine,
    agent,
    artifact,
    asking,
    call,
    command,
    drive,
    endless,
    error_message,
    handled,
    mapping,
    text,
    unhandled,
)
from langchain.agents.middleware import (
    HumanInTheLoopMiddleware,
    PIIMiddleware,
    ToolCallLimitMiddleware,
    ToolErrorMiddleware,
    ToolRetryMiddleware,
)
from langchain.agents.middleware.types import ToolCallRequest
from langchain_core.messages import SystemMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from langchain_hermes_memory.adapters.callback import HermesCallbackHandler
from langchain_hermes_memory.adapters.middleware import HermesMemoryMiddleware
from langchain_hermes_memory.capture import CallLog
from langchain_hermes_memory.record import Namespace, RecallFilter

REQUEST = "tidy up /srv/data"
BLOCK = f"MEMORY[ann:{REQUEST}]"
BOB = Namespace(user="bob")

modes = pytest.mark.parametrize("mode", MODES)


@pytest.fixture
def engine():
    return RecordingEngine()


@pytest.fixture
def log(engine):
    return CallLog(engine)


@pytest.fixture
def memory(engine, log):
    return HermesMemoryMiddleware(engine, log, namespace=ANN)


@pytest.fixture
def handler(log):
    return HermesCallbackHandler(log, namespace=ANN)


def test_without_langchain_the_error_names_the_extra():
    """Where the optional package is missing, the error tells what to install."""
    code = (
        "import sys; sys.modules['langchain'] = None\n"
        "try: import langchain_hermes_memory.adapters.middleware\n"
        "except ImportError as error: print(type(error).__name__, error.extra, error)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("MissingDependencyError agents ")
    assert 'pip install "langchain-hermes-memory[agents]"' in run.stdout


class TestInject:
    """What the model is shown, and what stays as it was."""

    @modes
    def test_the_block_is_in_the_system_message_and_nowhere_else(self, memory, mode):
        """The model reads the block after its instructions; messages and checkpoints never hold it."""
        saver = InMemorySaver()
        runnable, model = agent(
            [call("text"), "done"], [text], system_prompt="BASE", middleware=[memory], checkpointer=saver
        )
        thread = {"configurable": {"thread_id": "t"}}
        output = drive(runnable, ASK, thread, mode)
        assert [seen[0].content for seen in model.seen] == [f"BASE\n\n{BLOCK}"] * 2
        assert "MEMORY[" not in str(output)
        assert "MEMORY[" not in str(list(saver.list(thread)))
        kinds = [message.type for message in runnable.get_state(thread).values["messages"]]
        assert kinds == ["human", "ai", "tool", "ai"]

    @pytest.mark.parametrize(
        ("prompt", "expected"),
        [
            (None, BLOCK),
            ("BASE", f"BASE\n\n{BLOCK}"),
            (
                SystemMessage([{"type": "text", "text": "BASE"}]),
                [{"type": "text", "text": "BASE"}, {"type": "text", "text": BLOCK}],
            ),
        ],
        ids=["none", "text", "blocks"],
    )
    def test_the_block_joins_any_system_message(self, memory, prompt, expected):
        """A missing system message, a text and a list of content blocks are all extended."""
        runnable, model = agent(["done"], [], system_prompt=prompt, middleware=[memory])
        runnable.invoke(ASK)
        assert model.seen[0][0].content == expected

    def test_the_memory_is_asked_once_per_user_message(self, engine, memory):
        """However many steps the agent takes, recall runs once, with the user's words alone."""
        script = [call("text", "c1"), call("text", "c2"), "done", "done again"]
        runnable, _ = agent(script, [text], middleware=[memory], checkpointer=InMemorySaver())
        thread = {"configurable": {"thread_id": "t"}}
        runnable.invoke(ASK, thread)
        runnable.invoke({"messages": [("user", "and /srv/old")]}, thread)
        assert [query for query, *_ in engine.queries] == [REQUEST, "and /srv/old"]

    def test_what_is_asked_for_reaches_the_engine(self, engine, log):
        """Number, budget, filters, namespace and session are passed on."""
        filters = RecallFilter(safety_critical=True)
        memory = HermesMemoryMiddleware(
            engine, log, namespace=ANN, session_id="s", k=2, budget_tokens=99, filters=filters
        )
        agent(["done"], [], middleware=[memory])[0].invoke(ASK)
        expected = {"k": 2, "budget_tokens": 99, "filters": filters}
        assert engine.queries == [(REQUEST, ANN, "s", expected)]

    def test_an_empty_block_leaves_the_request_alone(self, engine, memory, monkeypatch):
        """Where nothing relevant is known the system message is untouched."""
        monkeypatch.setattr(RecordingEngine, "context", lambda *_, **__: type("Empty", (), {"text": ""}))
        runnable, model = agent(["done"], [], system_prompt="BASE", middleware=[memory])
        runnable.invoke(ASK)
        assert model.seen[0][0].content == "BASE"

    def test_injection_can_be_switched_off(self, engine, log):
        """With `inject=False` the memory only records."""
        memory = HermesMemoryMiddleware(engine, log, namespace=ANN, inject=False)
        runnable, model = agent([call("text"), "done"], [text], middleware=[memory])
        runnable.invoke(ASK)
        assert [message.type for message in model.seen[0]] == ["human"]
        assert len(engine.calls) == 1

    def test_capture_can_be_switched_off(self, engine, log):
        """With `capture=False` the memory only shows."""
        memory = HermesMemoryMiddleware(engine, log, namespace=ANN, capture=False)
        runnable, model = agent([call("text"), "done"], [text], middleware=[memory])
        runnable.invoke(ASK)
        assert model.seen[0][0].content == BLOCK
        assert (engine.calls, engine.turns) == ([], [])


class TestCapture:
    """The callback matrix again, as the middleware sees it."""

    @modes
    @pytest.mark.parametrize(
        ("subject", "expected"),
        [
            (text, ("r1", "success", None)),
            (mapping, ('{"value": 1}', "success", None)),
            (artifact, ("c1", "success", {"raw": 1})),
            (handled, ("path not found", "error", None)),
            (error_message, ("gone", "error", None)),
        ],
        ids=["text", "mapping", "artifact", "handled", "error_message"],
    )
    def test_a_result_is_recorded_as_a_tool_message(self, engine, memory, subject, expected, mode):
        """What a tool returns is recorded with status and artifact, in the name of the request."""
        runnable, _ = agent([call(subject.name), "done"], [subject], middleware=[memory])
        drive(runnable, ASK, None, mode)
        (seen,) = engine.calls
        assert (seen.output.content, seen.output.status, seen.output.artifact) == expected
        assert (seen.tool, seen.intent, seen.tool_call_id) == (subject.name, REQUEST, "c1")

    @modes
    def test_a_command_is_recorded_as_it_is(self, engine, memory, mode):
        """A Command arrives as the object that it is."""
        drive(agent([call("command"), "done"], [command], middleware=[memory])[0], ASK, None, mode)
        assert [type(seen.output) for seen in engine.calls] == [Command]

    @modes
    def test_an_exception_is_recorded_and_still_raised(self, engine, memory, mode):
        """An exception of a tool is recorded with its type and aborts the agent as it would have."""
        runnable, _ = agent([call("unhandled"), "done"], [unhandled], middleware=[memory])
        with pytest.raises(GateError):
            drive(runnable, ASK, None, mode)
        assert [type(seen.error) for seen in engine.calls] == [GateError]

    @modes
    @pytest.mark.parametrize(
        "wrong",
        [call("text", x="no number"), call("shred", path="/srv")],
        ids=["bad_arguments", "unknown_tool"],
    )
    def test_a_call_that_no_tool_takes_is_recorded(self, engine, memory, wrong, mode):
        """Bad arguments and unknown tools, of which the model is told, are failures of the call."""
        drive(agent([wrong, "done"], [text], middleware=[memory])[0], ASK, None, mode)
        (seen,) = engine.calls
        assert (seen.tool, seen.tool_input, seen.output.status) == (wrong["name"], wrong["args"], "error")

    def test_an_interrupt_is_no_failure_and_its_resumption_is_recorded(self, engine, memory):
        """A tool that pauses for a human is recorded once, when it has run."""
        saver = InMemorySaver()
        runnable, _ = agent([call("asking"), "done"], [asking], middleware=[memory], checkpointer=saver)
        thread = {"configurable": {"thread_id": "t1"}}
        runnable.invoke(ASK, thread)
        assert (engine.calls, engine.turns) == ([], [])
        runnable.invoke(Command(resume="yes"), thread)
        (seen,) = engine.calls
        assert (seen.output.content, seen.session_id, seen.attempt) == ("answered yes", "t1", 1)
        assert [(turn.user, turn.assistant) for turn in engine.turns] == [(REQUEST, "done")]

    async def test_a_cancelled_tool_is_no_failure(self, engine, memory):
        """A tool whose task is cancelled leaves no record."""
        runnable, _ = agent([call("endless"), "done"], [endless], middleware=[memory])
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(runnable.ainvoke(ASK), 0.3)
        assert engine.calls == []

    def test_an_abandoned_call_can_be_closed(self, engine, memory):
        """A call whose coroutine is closed half-way leaves no record and no complaint."""

        async def forever(request):
            await asyncio.Future()

        async def abandon():
            runtime = SimpleNamespace(config={}, context=None)
            request = ToolCallRequest(tool_call=call("text"), tool=text, state={}, runtime=runtime)
            running = memory.awrap_tool_call(request, forever)
            running.send(None)
            running.close()

        asyncio.run(abandon())
        assert engine.calls == []

    @modes
    def test_a_turn_is_recorded_when_the_agent_is_done(self, engine, memory, mode):
        """One request and its answer make one turn."""
        drive(agent([call("text"), "all tidy"], [text], middleware=[memory])[0], ASK, None, mode)
        assert [(turn.user, turn.assistant, turn.namespace) for turn in engine.turns] == [
            (REQUEST, "all tidy", ANN)
        ]

    @modes
    def test_parallel_calls_are_recorded_each(self, engine, memory, mode):
        """Several calls in one reply are recorded with their own input and id."""
        calls = [call("text", f"c{n}", x=n) for n in range(4)]
        drive(agent([calls, "done"], [text], middleware=[memory])[0], ASK, None, mode)
        seen = sorted((each.tool_call_id, each.tool_input["x"]) for each in engine.calls)
        assert seen == [(f"c{n}", n) for n in range(4)]

    async def test_the_event_loop_is_never_blocked(self, engine, memory):
        """In an async agent the engine is called from worker threads only."""
        runnable, _ = agent([call("text"), "done"], [text], middleware=[memory])
        await runnable.ainvoke(ASK)
        assert engine.threads
        assert threading.current_thread().name not in engine.threads


class TestHumans:
    """Calls that a human decides on."""

    @modes
    @pytest.mark.parametrize("interrupt_mode", ["batched", "per_call"])
    def test_a_rejection_is_recorded_with_its_reason(self, engine, memory, interrupt_mode, mode):
        """A call that a human refuses never ran, but is remembered as refused."""
        human = HumanInTheLoopMiddleware(interrupt_on={"text": True}, interrupt_mode=interrupt_mode)
        runnable, _ = agent(
            [call("text"), "as you wish"], [text], middleware=[human, memory], checkpointer=InMemorySaver()
        )
        thread = {"configurable": {"thread_id": "t"}}
        first = runnable.invoke(ASK, thread)
        reject = {"type": "reject", "message": "never touch that"}
        if interrupt_mode == "batched":
            resume = {"decisions": [reject]}
        else:
            resume = {first["__interrupt__"][0].id: reject}
        drive(runnable, Command(resume=resume), thread, mode)
        (seen,) = engine.calls
        assert (seen.rejected, seen.tool, seen.tool_input) == (True, "text", {"x": 1})
        assert "never touch that" in seen.output
        assert (seen.intent, seen.session_id) == (REQUEST, "t")

    def test_a_call_over_the_limit_is_a_failure_but_no_rejection(self, engine, memory):
        """A call that other middleware refused is recorded with what the model was told."""
        limit = ToolCallLimitMiddleware(run_limit=1)
        script = [[call("text", "c1"), call("text", "c2")], "done"]
        agent(script, [text], middleware=[limit, memory])[0].invoke(ASK)
        seen = {each.tool_call_id: each for each in engine.calls}
        assert seen["c1"].output.status == "success"
        assert (seen["c2"].rejected, seen["c2"].output.status) == (False, "error")

    def test_a_rejection_is_recorded_once_in_a_long_thread(self, engine, memory):
        """Later turns of the thread do not record an earlier rejection again."""
        human = HumanInTheLoopMiddleware(interrupt_on={"text": True})
        runnable, _ = agent(
            [call("text"), "ok", "ok"], [text], middleware=[human, memory], checkpointer=InMemorySaver()
        )
        thread = {"configurable": {"thread_id": "t"}}
        runnable.invoke(ASK, thread)
        runnable.invoke(Command(resume={"decisions": [{"type": "reject"}]}), thread)
        runnable.invoke({"messages": [("user", "fine")]}, thread)
        assert len(engine.calls) == 1
        assert len(engine.turns) == 2


class TestCompany:
    """Together with other middleware, other instances and the callback handler."""

    @modes
    @pytest.mark.parametrize(
        "script_tool", [text, handled, mapping, command], ids=["text", "handled", "mapping", "command"]
    )
    def test_with_the_handler_each_call_is_recorded_once(self, engine, memory, handler, script_tool, mode):
        """Handler and middleware on one agent make one record of each call and of the turn."""
        calls = [call(script_tool.name, "c1"), call(script_tool.name, "c2")]
        runnable, _ = agent([calls, call("shred", "c3"), "done"], [script_tool], middleware=[memory])
        drive(runnable, ASK, {"callbacks": [handler]}, mode)
        assert sorted(seen.tool_call_id for seen in engine.calls) == ["c1", "c2", "c3"]
        assert len(engine.turns) == 1

    @modes
    def test_with_the_handler_a_rejection_is_recorded_once(self, engine, memory, handler, mode):
        """What both find in the messages is one record."""
        human = HumanInTheLoopMiddleware(interrupt_on={"text": True})
        runnable, _ = agent(
            [call("text"), "ok"], [text], middleware=[human, memory], checkpointer=InMemorySaver()
        )
        settings = {"callbacks": [handler], "configurable": {"thread_id": "t1"}}
        runnable.invoke(ASK, settings)
        drive(runnable, Command(resume={"decisions": [{"type": "reject"}]}), settings, mode)
        assert [seen.rejected for seen in engine.calls] == [True]
        assert len(engine.turns) == 1

    @modes
    def test_with_the_handler_a_redacted_request_makes_one_turn(self, engine, memory, handler, mode):
        """Where other middleware changes the user's words, handler and middleware still mean one turn."""
        pii = PIIMiddleware("email", apply_to_input=True)
        runnable, _ = agent(["done"], [], middleware=[pii, memory])
        drive(runnable, {"messages": [("user", "write to bob@example.com")]}, {"callbacks": [handler]}, mode)
        assert len(engine.turns) == 1

    @modes
    def test_with_the_handler_an_exception_is_recorded_once(self, engine, memory, handler, mode):
        """An exception that passes both is one failure."""
        runnable, _ = agent([call("unhandled"), "done"], [unhandled], middleware=[memory])
        with pytest.raises(GateError):
            drive(runnable, ASK, {"callbacks": [handler]}, mode)
        assert len(engine.calls) == 1

    def test_with_the_handler_of_another_memory_each_records_its_own(self, engine, memory):
        """Two memories on one agent do not take each other's records for theirs."""
        other = RecordingEngine()
        foreign = HermesCallbackHandler(CallLog(other), namespace=ANN)
        agent([call("text"), "done"], [text], middleware=[memory])[0].invoke(ASK, {"callbacks": [foreign]})
        assert (len(engine.calls), len(other.calls)) == (1, 1)
        assert (len(engine.turns), len(other.turns)) == (1, 1)

    @modes
    def test_with_the_handler_the_metadata_name_the_session_for_both(self, engine, memory, handler, mode):
        """Handler and middleware put a run into the same session."""
        runnable, _ = agent([call("text"), call("shred", "c2"), "done"], [text], middleware=[memory])
        drive(runnable, ASK, {"callbacks": [handler], "metadata": {"session_id": "s1"}}, mode)
        assert {each.session_id for each in [*engine.calls, *engine.turns]} == {"s1"}

    def test_two_instances_need_two_names(self, engine, log):
        """Instances with their own names work side by side, each on its own namespace."""
        mine = HermesMemoryMiddleware(engine, log, namespace=ANN, name="mine")
        team = HermesMemoryMiddleware(engine, log, namespace=BOB, name="team")
        runnable, model = agent([call("text"), "done"], [text], middleware=[mine, team])
        runnable.invoke(ASK)
        assert model.seen[0][0].content == f"{BLOCK}\n\nMEMORY[bob:{REQUEST}]"
        assert sorted(seen.namespace.user for seen in engine.calls) == ["ann", "bob"]
        assert sorted(turn.namespace.user for turn in engine.turns) == ["ann", "bob"]

    def test_two_instances_of_one_memory_record_once(self, engine, log):
        """The inner of two instances on one namespace records, the outer sees that it did."""
        both = [HermesMemoryMiddleware(engine, log, namespace=ANN, name=name) for name in ("a", "b")]
        agent([call("text"), "done"], [text], middleware=both)[0].invoke(ASK)
        assert len(engine.calls) == 1

    @pytest.mark.parametrize(
        "case",
        [(True, False, [1, 2, 3]), (False, False, [1]), (True, True, [1, 2, 3]), (False, True, [1, 2, 3])],
        ids=["inner", "outer", "inner_with_handler", "outer_with_handler"],
    )
    @modes
    def test_retries_are_counted_as_attempts(self, engine, memory, handler, case, mode):
        """Inside the retries each attempt is a record, outside the final result is; the handler sees all."""
        inner, with_handler, attempts = case
        retry = ToolRetryMiddleware(max_retries=2, initial_delay=0, jitter=False)
        order = [retry, memory] if inner else [memory, retry]
        runnable, _ = agent([call("unhandled"), "done"], [unhandled], middleware=order)
        drive(runnable, ASK, {"callbacks": [handler]} if with_handler else None, mode)
        assert [seen.attempt for seen in engine.calls] == attempts

    def test_inside_error_middleware_the_exception_is_seen(self, engine, memory):
        """Put last, the memory sees the exception that other middleware turns into a message."""
        errors = ToolErrorMiddleware(lambda error, request: f"sorry: {error}")
        agent([call("unhandled"), "done"], [unhandled], middleware=[errors, memory])[0].invoke(ASK)
        assert [type(seen.error) for seen in engine.calls] == [GateError]

    def test_other_middleware_does_not_redact_for_the_memory(self, engine, memory):
        """PIIMiddleware redacts what the model reads; what is captured is raw, so the engine must redact."""

        @tool
        def contact() -> str:
            """Tell an address."""
            return "ask bob@example.com"

        pii = PIIMiddleware("email", apply_to_tool_results=True)
        runnable, model = agent([call("contact"), "done"], [contact], middleware=[pii, memory])
        runnable.invoke(ASK)
        assert "bob@example.com" not in str(model.seen)
        assert engine.calls[0].output.content == "ask bob@example.com"


def by_context(runtime):
    """Tell the user from the context that the application gives; fails where it gives none."""
    if runtime.context is None:
        raise PermissionError
    return Namespace(user=runtime.context)


class TestUsers:
    """One compiled agent for many users."""

    def test_the_namespace_can_come_from_the_runtime(self, engine, log):
        """A function of the runtime tells whose memory is shown and written."""
        memory = HermesMemoryMiddleware(
            engine, log, namespace=lambda runtime: Namespace(user=runtime.context)
        )
        runnable, model = agent([call("text"), call("shred", "c2"), "done"] * 2, [text], middleware=[memory])
        for user in ("ann", "bob"):
            runnable.invoke(ASK, context=user)
        assert model.seen[0][0].content == BLOCK
        assert model.seen[3][0].content == f"MEMORY[bob:{REQUEST}]"
        assert [seen.namespace.user for seen in engine.calls] == ["ann", "ann", "bob", "bob"]
        assert [turn.namespace.user for turn in engine.turns] == ["ann", "bob"]

    @modes
    def test_an_unknown_user_has_no_memory(self, engine, log, mode):
        """Where the function raises, the agent works without a memory rather than with somebody else's."""
        memory = HermesMemoryMiddleware(engine, log, namespace=by_context)
        runnable, _ = agent([call("text"), "done"], [text], middleware=[memory])
        assert "done" in str(drive(runnable, ASK, None, mode))
        assert (engine.calls, engine.turns, engine.queries) == ([], [], [])
        assert engine.counters["capture_errors"] == 4

    @modes
    def test_a_broken_engine_never_breaks_the_agent(self, engine, memory, mode):
        """An engine that raises at everything is counted, and the agent's result is untouched."""
        engine.broken = True
        runnable, model = agent([call("text"), "all tidy"], [text], system_prompt="BASE", middleware=[memory])
        assert "all tidy" in str(drive(runnable, ASK, None, mode))
        assert model.seen[0][0].content == "BASE"
        assert engine.counters["capture_errors"] == 4
