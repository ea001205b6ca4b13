"""Agents with the real memory, from their first run to what their model is shown in the next."""

import pytest
from agents import INPUT, PROMPT, executor
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import tool
from langchain_tests.integration_tests import RetrieversIntegrationTests
from langgraph.checkpoint.memory import InMemorySaver

from langchain_hermes_memory import HermesMemory
from langchain_hermes_memory.adapters.retriever import HermesRetriever
from langchain_hermes_memory.testing import ScriptedChatModel

WITH_MEMORY = ChatPromptTemplate.from_messages(
    [("system", "BASE\n{memory}"), ("human", "{input}"), ("placeholder", "{agent_scratchpad}")]
)


@tool
def tidy(path: str) -> str:
    """Tidy a folder."""
    return f"ERROR: {path}: Permission denied"


CALL = {"name": "tidy", "args": {"path": "/srv/data"}}


@pytest.fixture
def memory(tmp_path, offline_embeddings):
    with HermesMemory(tmp_path / "memory", embeddings=offline_embeddings) as opened:
        yield opened


class TestStandard(RetrieversIntegrationTests):
    """LangChain's own tests of a retriever, on a real store."""

    @pytest.fixture(autouse=True)
    def store(self, memory):
        for port in range(6000, 6012):
            memory.remember(f"the orders database number {port - 5999} listens on port {port}")
        type(self).memory = memory

    @property
    def retriever_constructor(self):
        return HermesRetriever

    @property
    def retriever_constructor_params(self):
        return {"engine": self.memory._engine}

    @property
    def retriever_query_example(self):
        return "on which port does the orders database listen"


def test_an_executor_learns(memory):
    """Three lines added: the next run's model sees what happened, and the run is recorded once."""
    executor([CALL, "No rights."], [tidy], PROMPT)  # works without a memory
    first = memory.attach(executor([CALL, "No rights."], [tidy], WITH_MEMORY), working_key=None)
    first.invoke(INPUT)
    model = ScriptedChatModel(script=["I will ask for the rights first."])
    second = memory.attach(executor(model, [tidy], WITH_MEMORY), working_key=None)
    second.invoke({"input": "tidy up /srv/data again"})
    shown = model.seen[0][0].content
    assert "Permission denied" in shown
    assert "check yours first" in shown
    assert sum(record.tool_name == "tidy" for record in memory.recent()) == 1


def test_a_graph_learns(memory):
    """The same for `create_agent`; what the model is shown never enters the conversation that is kept."""
    saver = InMemorySaver()
    script = [CALL, "No rights.", "I will ask for the rights first."]
    model = ScriptedChatModel(script=script)
    agent = create_agent(model, [tidy], middleware=[memory.middleware()], checkpointer=saver)
    config = {"configurable": {"thread_id": "t1"}}
    agent.invoke({"messages": [HumanMessage("tidy up /srv/data")]}, config)
    state = agent.invoke({"messages": [HumanMessage("tidy up /srv/data again")]}, config)
    assert "Permission denied" in model.seen[-1][0].content
    assert "What worked" not in str(state["messages"])
    assert "Memory of earlier runs" not in str(state["messages"])
    assert sum(record.tool_name == "tidy" for record in memory.scoped(session_id="t1").recent()) == 1


async def test_a_graph_learns_without_blocking(memory):
    """The asynchronous hooks do the same."""
    model = ScriptedChatModel(script=[CALL, "No rights.", "I will ask first."])
    agent = create_agent(model, [tidy], middleware=[memory.middleware()])
    await agent.ainvoke({"messages": [HumanMessage("tidy up /srv/data")]})
    await agent.ainvoke({"messages": [HumanMessage("tidy up /srv/data again")]})
    assert "Permission denied" in model.seen[-1][0].content


def test_one_agent_serves_many_users(memory):
    """Whose memory it is comes from the run's own context, and nothing crosses."""
    from langchain_hermes_memory import Namespace

    def owner(runtime):
        return Namespace(user=runtime.context["user"])

    model = ScriptedChatModel(script=[CALL, "No rights.", "Hello Bob.", "Hello Ann."])
    agent = create_agent(model, [tidy], middleware=[memory.middleware(namespace=owner)], context_schema=dict)
    for user in ("ann", "bob", "ann"):
        agent.invoke({"messages": [HumanMessage("tidy up /srv/data")]}, context={"user": user})
    bob, ann = (str(messages[0].content) for messages in model.seen[-2:])
    assert "Permission denied" not in bob
    assert "Permission denied" in ann
