"""The callback handler against real tools, a real `AgentExecutor` and a real `create_agent` agent."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

import pytest
from agents import (
    ANN,
    ASK,
    INPUT,
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
    executor,
    handled,
    lenient,
    mapping,
    start,
    text,
    unhandled,
)
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.tools import Tool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic import ValidationError

from langchain_hermes_memory.adapters.callback import HermesCallbackHandler
from langchain_hermes_memory.capture import CallLog
from langchain_hermes_memory.testing import ScriptedChatModel


@pytest.fixture
def engine():
    return RecordingEngine()


@pytest.fixture
def handler(engine):
    return HermesCallbackHandler(CallLog(engine), namespace=ANN, session_id="bound")


def config(handler, **values):
    return {"callbacks": [handler], **values}


RETURNS = [
    # a tool; what a direct call and AgentExecutor report; content, status and artifact in create_agent
    (text, "r1", ("r1", "success", None)),
    (mapping, {"value": 1}, ('{"value": 1}', "success", None)),
    (artifact, "c1", ("c1", "success", {"raw": 1})),
    (handled, "path not found", ("path not found", "error", None)),
]
returning = pytest.mark.parametrize("case", [pytest.param(case, id=case[0].name) for case in RETURNS])
kinds = pytest.mark.parametrize("kind", ["executor", "agent"])
modes = pytest.mark.parametrize("mode", MODES)


class TestMatrix:
    """Every row and column of what LangChain reports of a tool run."""

    @returning
    def test_a_direct_call_is_recorded_with_what_it_returned(self, engine, handler, case):
        """A tool invoked by itself is recorded, without an intent and in the handler's session."""
        subject, plain, _ = case
        subject.invoke({"x": 1}, config(handler))
        (seen,) = engine.calls
        assert (seen.tool, seen.tool_input, seen.output) == (subject.name, {"x": 1}, plain)
        assert (seen.intent, seen.session_id, seen.namespace) == ("", "bound", ANN)

    @modes
    @returning
    def test_an_executor_reports_plain_values(self, engine, handler, case, mode):
        """What a tool returns in an AgentExecutor is recorded as it is, with the id that the action tells."""
        subject, plain, _ = case
        drive(executor([call(subject.name), "done"], [subject]), INPUT, config(handler), mode)
        (seen,) = engine.calls
        assert (seen.output, seen.error, seen.tool_call_id) == (plain, None, "c1")
        assert (seen.intent, seen.tool_input) == ("tidy up /srv/data", {"x": 1})

    @modes
    @returning
    def test_create_agent_reports_tool_messages(self, engine, handler, case, mode):
        """What a tool returns in create_agent is recorded as a tool message with status and artifact."""
        subject, _, message = case
        runnable, _ = agent([call(subject.name), "done"], [subject])
        drive(runnable, ASK, config(handler), mode)
        (seen,) = engine.calls
        assert (seen.output.content, seen.output.status, seen.output.artifact) == message
        assert (seen.intent, seen.tool_call_id) == ("tidy up /srv/data", "c1")

    @modes
    def test_a_message_that_a_tool_returns_is_kept(self, engine, handler, mode):
        """A tool's own error message and a Command arrive as the objects that they are."""
        runnable, _ = agent(
            [[call("error_message"), call("command", "c2")], "done"], [error_message, command]
        )
        drive(runnable, ASK, config(handler), mode)
        seen = {each.tool_call_id: each.output for each in engine.calls}
        assert isinstance(seen["c1"], ToolMessage)
        assert seen["c1"].status == "error"
        assert isinstance(seen["c2"], Command)

    @modes
    @kinds
    def test_an_exception_is_recorded_and_still_raised(self, engine, handler, kind, mode):
        """An exception of a tool is recorded with its type, and the agent fails as it would have."""
        script = [call("unhandled"), "done"]
        runnable, inputs = start(kind, script, [unhandled])
        with pytest.raises(GateError):
            drive(runnable, inputs, config(handler), mode)
        (seen,) = engine.calls
        assert isinstance(seen.error, GateError)
        assert seen.output is None
        assert seen.tool_call_id == "c1"

    @modes
    def test_bad_arguments_are_recorded_as_validation_error(self, engine, handler, mode):
        """Arguments that do not fit are a failure of the call, after which create_agent goes on."""
        runnable, _ = agent([call("text", x="no number"), "done"], [text])
        drive(runnable, ASK, config(handler), mode)
        (seen,) = engine.calls
        assert isinstance(seen.error, ValidationError)
        assert seen.tool_input == {"x": "no number"}

    @modes
    def test_handled_bad_arguments_come_as_output(self, engine, handler, mode):
        """A tool that handles bad arguments itself returns a text in an AgentExecutor."""
        drive(executor([call("lenient", x="no number"), "done"], [lenient]), INPUT, config(handler), mode)
        (seen,) = engine.calls
        assert seen.error is None
        assert "validation" in seen.output

    @modes
    def test_an_unknown_tool_is_a_failure_of_the_tool_asked_for(self, engine, handler, mode):
        """AgentExecutor's stand-in is recorded under the name, input and id of the tool that is missing."""
        drive(executor([call("shred", path="/srv"), "done"], [text]), INPUT, config(handler), mode)
        (seen,) = engine.calls
        assert (seen.tool, seen.tool_input, seen.tool_call_id) == ("shred", {"path": "/srv"}, "c1")
        assert "not a valid tool" in seen.error

    @modes
    def test_an_unknown_tool_in_create_agent_is_found_in_the_messages(self, engine, handler, mode):
        """Where no event tells of it, the failed call is read off the conversation when the agent is done."""
        runnable, _ = agent([call("shred", path="/srv"), "done"], [text])
        drive(runnable, ASK, config(handler), mode)
        (seen,) = engine.calls
        assert (seen.tool, seen.tool_input, seen.tool_call_id) == ("shred", {"path": "/srv"}, "c1")
        assert (seen.output.status, seen.rejected, seen.intent) == ("error", False, "tidy up /srv/data")

    @modes
    def test_a_rejection_is_found_in_the_messages(self, engine, handler, mode):
        """A call that a human refused is recorded once, as refused, with the reason."""
        human = HumanInTheLoopMiddleware(interrupt_on={"text": True})
        runnable, _ = agent([call("text"), "ok"], [text], middleware=[human], checkpointer=InMemorySaver())
        settings = config(handler, configurable={"thread_id": "t1"})
        runnable.invoke(ASK, settings)
        reject = {"type": "reject", "message": "never touch that"}
        drive(runnable, Command(resume={"decisions": [reject]}), settings, mode)
        (seen,) = engine.calls
        assert (seen.rejected, seen.tool, seen.tool_input) == (True, "text", {"x": 1})
        assert "never touch that" in seen.output

    def test_a_reply_that_cannot_be_read_is_no_tool_run(self, engine, handler):
        """The stand-in that AgentExecutor runs for an unreadable reply is not recorded."""
        from langchain_classic.agents import create_react_agent
        from langchain_classic.agents.agent import AgentExecutor
        from langchain_core.prompts import PromptTemplate

        model = ScriptedChatModel(script=["gibberish", "Thought: done\nFinal Answer: ok"])
        prompt = PromptTemplate.from_template("{tools} {tool_names} {input} {agent_scratchpad}")
        react = create_react_agent(model, [text], prompt)
        AgentExecutor(agent=react, tools=[text], handle_parsing_errors=True).invoke(INPUT, config(handler))
        assert engine.calls == []
        assert [turn.assistant for turn in engine.turns] == ["ok"]

    def test_an_interrupt_is_no_failure_and_its_resumption_is_recorded(self, engine, handler):
        """A tool that pauses for a human is recorded once, when it has run, with the request it serves."""
        runnable, _ = agent([call("asking"), "done"], [asking], checkpointer=InMemorySaver())
        settings = config(handler, configurable={"thread_id": "t1"})
        runnable.invoke(ASK, settings)
        assert (engine.calls, engine.turns) == ([], [])
        runnable.invoke(Command(resume="yes"), settings)
        (seen,) = engine.calls
        assert (seen.output.content, seen.attempt, seen.session_id) == ("answered yes", 1, "t1")
        (turn,) = engine.turns
        assert (turn.user, turn.assistant, turn.session_id) == ("tidy up /srv/data", "done", "t1")

    @kinds
    async def test_a_cancelled_tool_is_no_failure(self, engine, handler, kind):
        """A tool whose task is cancelled leaves no record."""
        script = [call("endless"), "done"]
        runnable, inputs = start(kind, script, [endless])
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(runnable.ainvoke(inputs, config(handler)), 0.3)
        assert engine.calls == []

    def test_a_plain_text_input_is_kept_as_text(self, engine, handler):
        """A tool that takes one text is recorded with that text."""
        shout = Tool(name="shout", description="Shout.", func=str.upper)
        shout.invoke("hello", config(handler))
        assert [(seen.tool_input, seen.output) for seen in engine.calls] == [("hello", "HELLO")]

    @pytest.mark.parametrize("error", [KeyboardInterrupt(), GeneratorExit()])
    def test_stopping_the_program_is_no_failure(self, engine, handler, error):
        """Neither Ctrl-C nor a generator that is closed makes a failed call."""

        @tool
        def stopped() -> str:
            """Be stopped."""
            raise error

        with pytest.raises(type(error)):
            stopped.invoke({}, config(handler))
        assert engine.calls == []


class TestCircumstances:
    """What is known of a call beside its input and output."""

    @modes
    @kinds
    def test_parallel_calls_keep_their_own_input_and_id(self, engine, handler, kind, mode):
        """Several calls in one reply are told apart, also where tool and input are the same."""
        calls = [call("text", "c1", x=1), call("text", "c2", x=2), call("text", "c3", x=2)]
        runnable, inputs = start(kind, [calls, "done"], [text])
        drive(runnable, inputs, config(handler), mode)
        seen = sorted((each.tool_call_id, each.tool_input["x"]) for each in engine.calls)
        assert seen == [("c1", 1), ("c2", 2), ("c3", 2)]
        assert len({each.run_id for each in engine.calls}) == 3
        assert len({each.parent_run_id for each in engine.calls}) == 1

    def test_the_session_comes_from_the_metadata_before_the_thread(self, engine, handler):
        """`session_id` in the metadata wins over `thread_id`, which wins over the bound session."""
        for values in (
            {"metadata": {"session_id": "s1"}, "configurable": {"thread_id": "t1"}},
            {"configurable": {"thread_id": "t1"}},
            {},
        ):
            runnable, _ = agent([call("text"), "done"], [text])
            runnable.invoke(ASK, config(handler, **values))
        assert [seen.session_id for seen in engine.calls] == ["s1", "t1", "bound"]
        assert [turn.session_id for turn in engine.turns] == ["s1", "t1", "bound"]

    def test_a_tool_by_itself_takes_the_session_of_its_metadata(self, engine, handler):
        """A direct call is put into the session that its own config names."""
        text.invoke({"x": 1}, config(handler, metadata={"session_id": "s1"}))
        assert [seen.session_id for seen in engine.calls] == ["s1"]

    def test_the_namespace_is_never_read_from_a_request(self, engine, handler):
        """Whatever user or namespace a run's metadata claim, the record goes to the bound one."""
        values = {"metadata": {"user": "eve", "namespace": "eve", "user_id": "eve"}}
        drive(executor([call("text"), "done"], [text]), INPUT, config(handler, **values))
        assert {each.namespace for each in [*engine.calls, *engine.turns]} == {ANN}

    @modes
    @pytest.mark.parametrize("kind", ["executor", "agent", "chain"])
    def test_a_turn_is_recorded_at_the_end_of_the_outermost_run(self, engine, handler, kind, mode):
        """One request and its answer make one turn, whatever runs inside."""
        script = [call("text"), "all tidy"]
        if kind == "chain":
            last = RunnableLambda(lambda out: out["output"])
            runnable, inputs = RunnablePassthrough() | executor(script, [text]) | last, INPUT
        else:
            runnable, inputs = start(kind, script, [text])
        drive(runnable, inputs, config(handler), mode)
        assert [(turn.user, turn.assistant) for turn in engine.turns] == [("tidy up /srv/data", "all tidy")]
        assert [seen.intent for seen in engine.calls] == ["tidy up /srv/data"]

    def test_the_request_is_read_from_content_blocks(self, engine, handler):
        """Of a message with an image only the text is the request."""
        blocks = [
            {"type": "text", "text": "what is this?"},
            {"type": "image", "base64": "AA==", "mime_type": "image/png"},
        ]
        runnable, _ = agent([call("text"), "a cat"], [text])
        runnable.invoke({"messages": [HumanMessage(blocks)]}, config(handler))
        assert engine.calls[0].intent == "what is this?"
        assert engine.turns[0].user == "what is this?"

    def test_an_agent_inside_a_tool_serves_the_request_of_the_outer_one(self, engine, handler):
        """Tools of a nested agent are recorded with the intent and the root of the whole run."""
        inner, _ = agent([call("text", "i1"), "inner done"], [text])

        @tool
        def delegate(task: str) -> str:
            """Let another agent do it."""
            return inner.invoke({"messages": [("user", task)]})["messages"][-1].content

        runnable, _ = agent([call("delegate", "o1", task="count"), "done"], [delegate])
        runnable.invoke(ASK, config(handler))
        assert {seen.tool: seen.intent for seen in engine.calls} == dict.fromkeys(
            ["text", "delegate"], "tidy up /srv/data"
        )
        assert len({seen.parent_run_id for seen in engine.calls}) == 1
        assert len(engine.turns) == 1

    def test_times_are_those_of_start_and_end(self, engine, handler):
        """A call carries the clock's time at its start and at its end."""

        @tool
        def slow() -> str:
            """Take a while."""
            engine.clock.advance(seconds=3)
            return "ok"

        slow.invoke({}, config(handler))
        (seen,) = engine.calls
        assert (seen.finished_at - seen.started_at).total_seconds() == 3


class TestIsolation:
    """The memory's troubles stay its own."""

    @modes
    @kinds
    def test_a_broken_engine_never_breaks_the_agent(self, engine, handler, kind, mode, caplog):
        """An engine that raises at everything is logged and counted, and the agent's result is untouched."""
        engine.broken = True
        script = [call("text"), "all tidy"]
        runnable, inputs = start(kind, script, [text])
        with caplog.at_level(logging.ERROR, "langchain_hermes_memory"):
            result = drive(runnable, inputs, config(handler), mode)
        assert "all tidy" in str(result)
        assert engine.counters["capture_errors"] == 2
        assert {record.step for record in caplog.records} == {"tool_end", "chain_end"}

    def test_two_hundred_concurrent_runs_are_not_mixed_up(self, engine, handler):
        """Each of many runs on one handler is recorded with its own request, input and output."""

        def work(number):
            runnable = executor([call("text", x=number), f"answer {number}"], [text])
            runnable.invoke({"input": f"request {number}"}, config(handler))

        with ThreadPoolExecutor(32) as pool:
            list(pool.map(work, range(200)))
        assert len(engine.calls) == len(engine.turns) == 200
        for seen in engine.calls:
            number = seen.tool_input["x"]
            assert (seen.intent, seen.output) == (f"request {number}", f"r{number}")
        assert {(turn.user[8:], turn.assistant[7:]) for turn in engine.turns} == {
            (str(n),) * 2 for n in range(200)
        }

    async def test_two_hundred_concurrent_tasks_are_not_mixed_up(self, engine, handler):
        """The same holds for tasks of one event loop."""

        async def work(number):
            runnable, _ = agent([call("text", x=number), f"answer {number}"], [text])
            await runnable.ainvoke({"messages": [("user", f"request {number}")]}, config(handler))

        await asyncio.gather(*(work(number) for number in range(200)))
        assert len(engine.calls) == len(engine.turns) == 200
        for seen in engine.calls:
            assert seen.intent == f"request {seen.tool_input['x']}"

    def test_the_handler_given_twice_records_once(self, engine, handler):
        """Two handlers of one memory on the same run make one record; one of another memory its own."""
        again = HermesCallbackHandler(handler._log, namespace=ANN)
        other = HermesCallbackHandler(handler._log, namespace=ANN.model_copy(update={"user": "bob"}))
        text.invoke({"x": 1}, {"callbacks": [handler, again, other]})
        assert sorted(seen.namespace.user for seen in engine.calls) == ["ann", "bob"]
