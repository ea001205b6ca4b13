"""The classic memory in a real `AgentExecutor`, with and without the callback handler."""

import subprocess
import sys

import pytest
from agents import ANN, INPUT, MODES, RecordingEngine, call, drive, executor, text, unhandled
from langchain_classic.agents import AgentExecutor, create_tool_calling_agent
from langchain_classic.base_memory import BaseMemory
from langchain_classic.memory import SimpleMemory
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda

from langchain_hermes_memory.adapters.callback import HermesCallbackHandler
from langchain_hermes_memory.adapters.classic import HermesBaseMemory, attach
from langchain_hermes_memory.capture import CallLog
from langchain_hermes_memory.errors import ConfigurationError
from langchain_hermes_memory.record import RecallFilter
from langchain_hermes_memory.testing import ScriptedChatModel

REQUEST = "tidy up /srv/data"
PROMPT = ChatPromptTemplate.from_messages(
    [("system", "BASE {memory} / {history}"), ("human", "{input}"), ("placeholder", "{agent_scratchpad}")]
)
modes = pytest.mark.parametrize("mode", MODES)


@pytest.fixture
def engine():
    return RecordingEngine()


@pytest.fixture
def log(engine):
    return CallLog(engine)


@pytest.fixture
def memory(engine, log):
    return HermesBaseMemory(engine=engine, log=log, namespace=ANN)


@pytest.fixture
def handler(log):
    return HermesCallbackHandler(log, namespace=ANN)


class TestVariables:
    """The two prompt variables."""

    def test_it_is_a_base_memory(self, memory):
        """An AgentExecutor accepts nothing else."""
        assert isinstance(memory, BaseMemory)
        assert memory.memory_variables == ["memory", "history"]

    @modes
    def test_both_variables_are_filled(self, memory, mode):
        """The model reads the context block and the last turns of the session."""
        model = ScriptedChatModel(script=[call("text"), "done", "done again"])
        runnable = executor(model, [text], PROMPT, memory=memory)
        drive(runnable, INPUT, None, mode)
        drive(runnable, {"input": "more"}, None, mode)
        block = f"MEMORY[ann:{REQUEST}]"
        told = [seen[0].content for seen in model.seen]
        assert told == [f"BASE {block} / "] * 2 + [f"BASE MEMORY[ann:more] / {REQUEST}"]

    def test_the_keys_can_be_named(self, engine, log):
        """Names of the variables and of request and answer are the user's."""
        memory = HermesBaseMemory(
            engine=engine, log=log, memory_key="m", working_key=None, input_key="ask", output_key="say"
        )
        assert memory.memory_variables == ["m"]
        assert memory.load_memory_variables({"ask": "hi", "input": "no"}) == {"m": "MEMORY[default:hi]"}
        memory.save_context({"ask": "hi", "input": "no", "m": "block"}, {"say": "hello", "output": "no"})
        assert [(turn.user, turn.assistant) for turn in engine.turns] == [("hi", "hello")]

    def test_what_is_asked_for_reaches_the_engine(self, engine, log):
        """Number, budget and filters are passed on."""
        filters = RecallFilter(tools=("rm",))
        memory = HermesBaseMemory(
            engine=engine, log=log, namespace=ANN, k=2, budget_tokens=99, filters=filters
        )
        memory.load_memory_variables(INPUT)
        assert engine.queries == [
            (REQUEST, ANN, "default", {"k": 2, "budget_tokens": 99, "filters": filters})
        ]

    def test_its_own_variables_are_no_part_of_a_turn(self, engine, memory):
        """What the memory itself put into the inputs is not taken for the user's words."""
        inputs = {"topic": "cats", "memory": "a block", "history": "old turns", "session_id": "s9"}
        memory.save_context(inputs, {"text": "They purr."})
        (turn,) = engine.turns
        assert (turn.user, turn.assistant, turn.session_id) == ("cats", "They purr.", "s9")

    def test_clear_starts_a_new_window_and_deletes_nothing(self, engine, memory):
        """After `clear` the last turns are those since then; the ledger keeps the others."""
        memory.save_context({"input": "first"}, {"output": "1"})
        engine.clock.advance(minutes=1)
        memory.clear()
        assert memory.load_memory_variables(INPUT)["history"] == ""
        memory.save_context({"input": "second"}, {"output": "2"})
        assert memory.load_memory_variables(INPUT)["history"] == "second"
        assert [turn.user for turn in engine.turns] == ["first", "second"]

    @modes
    def test_a_broken_engine_never_breaks_the_agent(self, engine, memory, mode):
        """An engine that raises at everything leaves the variables empty."""
        engine.broken = True
        model = ScriptedChatModel(script=[call("text"), "all tidy"])
        runnable = executor(model, [text], PROMPT, memory=memory)
        assert "all tidy" in str(drive(runnable, INPUT, None, mode))
        assert [seen[0].content for seen in model.seen] == ["BASE  / "] * 2
        assert engine.counters["capture_errors"] == 3


def test_the_package_loads_no_agent_framework():
    """The package, its callback handler and its retriever load neither langchain nor its classic part."""
    code = (
        "import sys, langchain_hermes_memory.adapters.callback, langchain_hermes_memory.adapters.retriever;"
        "print([m for m in ('langchain', 'langchain_classic', 'langgraph', 'chromadb') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


class TestAttach:
    """Handler and memory on one executor."""

    @modes
    @pytest.mark.parametrize("further", [False, True])
    def test_tools_and_turns_are_recorded_once(self, engine, handler, memory, further, mode):
        """An attached executor records each call and turn once in every mode, however it is configured on."""
        runnable = attach(executor([call("text"), "all tidy"], [text], PROMPT), handler, memory)
        if further:
            runnable = runnable.with_config(tags=["t"])
        drive(runnable, INPUT, {"metadata": {"session_id": "s1"}}, mode)
        assert [(seen.tool, seen.session_id) for seen in engine.calls] == [("text", "s1")]
        assert [(turn.user, turn.assistant, turn.session_id) for turn in engine.turns] == [
            (REQUEST, "all tidy", "s1")
        ]

    @modes
    def test_a_turn_said_twice_is_two_turns(self, engine, handler, memory, mode):
        """The same words and the same answer later in the session are another turn."""
        runnable = attach(executor(["hello", "hello"], [text], PROMPT), handler, memory)
        for _ in range(2):
            drive(runnable, {"input": "hi"}, None, mode)
        assert [turn.user for turn in engine.turns] == ["hi", "hi"]

    @modes
    def test_the_input_can_name_the_session(self, engine, handler, memory, mode):
        """A `session_id` beside the request is the session for tools, turns and the prompt variables."""
        runnable = attach(executor([call("text"), "done"], [text], PROMPT), handler, memory)
        drive(runnable, {**INPUT, "session_id": "s7"}, None, mode)
        assert {each.session_id for each in [*engine.calls, *engine.turns]} == {"s7"}
        assert {session for _, _, session, _ in engine.queries} == {"s7"}

    @modes
    def test_a_longer_chain_around_the_executor_makes_one_turn(self, engine, handler, memory, mode):
        """A chain that rewords the answer is one turn, with the answer that the user gets."""
        inner = attach(executor([call("text"), "done"], [text], PROMPT), handler, memory)
        chain = inner | RunnableLambda(lambda out: out["output"].upper())
        drive(chain, INPUT, {"callbacks": [handler]}, mode)
        assert [(turn.user, turn.assistant) for turn in engine.turns] == [(REQUEST, "DONE")]

    def test_the_turn_survives_a_failure_after_it(self, engine, handler, memory):
        """When the chain around an executor fails after the answer, the turn is kept all the same."""

        def fail(_):
            raise LookupError

        chain = attach(executor(["done"], [text], PROMPT), handler, memory) | RunnableLambda(fail)
        with pytest.raises(LookupError):
            chain.invoke(INPUT, {"callbacks": [handler]})
        assert [(turn.user, turn.assistant) for turn in engine.turns] == [(REQUEST, "done")]

    def test_a_failed_tool_is_recorded_though_the_memory_is_not_asked(self, engine, handler, memory):
        """A tool that aborts the executor is remembered, although `save_context` never runs."""
        runnable = attach(executor([call("unhandled"), "done"], [unhandled], PROMPT), handler, memory)
        with pytest.raises(ValueError, match="gate is shut"):
            runnable.invoke(INPUT)
        assert len(engine.calls) == 1

    def test_the_given_executor_is_left_alone(self, engine, log, handler, memory):
        """One executor can be attached for several users, whose memories do not meet."""
        plain = executor(["a", "b"], [text], PROMPT)
        bob = memory.namespace.model_copy(update={"user": "bob"})
        his = HermesBaseMemory(engine=engine, log=log, namespace=bob)
        attach(plain, handler, memory).invoke(INPUT)
        attach(plain, HermesCallbackHandler(log, namespace=bob), his).invoke(INPUT)
        assert plain.memory is None
        assert [turn.namespace.user for turn in engine.turns] == ["ann", "bob"]

    def test_the_executors_attributes_stay_in_reach(self, handler, memory):
        """What is attached still answers for its tools and its memory."""
        runnable = attach(executor([], [text], PROMPT), handler, memory)
        assert [each.name for each in runnable.tools] == ["text"]
        assert runnable.memory is memory

    def test_another_memory_is_never_replaced_in_silence(self, handler, memory):
        """An executor that has a memory, or a runnable that takes none, is a clear error."""
        taken = executor([], [text], PROMPT, memory=SimpleMemory(memories={}))
        with pytest.raises(ConfigurationError, match="CombinedMemory"):
            attach(taken, handler, memory)
        with pytest.raises(ConfigurationError, match="takes no memory"):
            attach(RunnableLambda(str), handler, memory)

    def test_the_documented_agent_takes_three_more_lines(self, engine, log):
        """The usual tool-calling agent gains a memory by a prompt variable, a handler and one call."""
        model = ScriptedChatModel(script=[call("text", x=3), "The answer is r3."])
        prompt = ChatPromptTemplate.from_messages(
            [
                ("system", "You are a helpful assistant."),
                ("system", "{memory}"),  # added
                ("placeholder", "{chat_history}"),
                ("human", "{input}"),
                ("placeholder", "{agent_scratchpad}"),
            ]
        )
        agent = create_tool_calling_agent(model, [text], prompt)
        agent_executor = AgentExecutor(agent=agent, tools=[text])
        memory = HermesBaseMemory(engine=engine, log=log)  # added
        agent_executor = attach(agent_executor, HermesCallbackHandler(log), memory)  # added
        assert agent_executor.invoke({"input": "what is three?"})["output"] == "The answer is r3."
        assert model.seen[0][1].content == "MEMORY[default:what is three?]"
        assert [(seen.tool_input, seen.output) for seen in engine.calls] == [({"x": 3}, "r3")]
