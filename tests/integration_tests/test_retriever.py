"""The retriever and the context runnable in LCEL chains."""

import pytest
from agents import ANN, NOON, RecordingEngine
from langchain_core.messages import HumanMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough
from langchain_tests.integration_tests import RetrieversIntegrationTests

from langchain_hermes_memory.adapters.retriever import HermesRetriever, context_runnable
from langchain_hermes_memory.record import RecallFilter, Status
from langchain_hermes_memory.testing import ScriptedChatModel


@pytest.fixture
def engine():
    return RecordingEngine()


class TestStandard(RetrieversIntegrationTests):
    """LangChain's own tests of a retriever."""

    @property
    def retriever_constructor(self):
        return HermesRetriever

    @property
    def retriever_constructor_params(self):
        return {"engine": RecordingEngine()}

    @property
    def retriever_query_example(self):
        return "clean up /srv/data"


class TestRetriever:
    """What comes back, and what is asked for."""

    def test_a_document_tells_what_is_known(self, engine):
        """A document holds the description and, as plain metadata, outcome, lifecycle, times and score."""
        (document,) = HermesRetriever(engine=engine, k=1).invoke("clean up")
        assert document.id == "id-1"
        assert document.page_content == "rm /srv/data failed: permission"
        expected = {
            "handle": "M1",
            "status": "failure",
            "category": "permission",
            "error_code": "EACCES",
            "tool": "delete",
            "tags": ["failure"],
            "importance": 60,
            "lifecycle": "open",
            "times": 2,
            "timestamp": NOON.isoformat(),
            "score": 1.0,
        }
        assert expected.items() <= document.metadata.items()

    @pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
    async def test_a_call_can_override_number_and_filters(self, engine, mode):
        """`k` and `filters` of a call win over the fields; session and namespace are passed on."""
        mine, theirs = RecallFilter(tools=("rm",)), RecallFilter(statuses=(Status.FAILURE,))
        retriever = HermesRetriever(engine=engine, namespace=ANN, session_id="s", k=4, filters=mine)
        if mode == "invoke":
            retriever.invoke("x")
            retriever.invoke("x", {"metadata": {"session_id": "s2"}}, k=1, filters=theirs)
        else:
            await retriever.ainvoke("x")
            await retriever.ainvoke("x", {"metadata": {"session_id": "s2"}}, k=1, filters=theirs)
        assert engine.queries == [
            ("x", ANN, "s", {"k": 4, "filters": mine}),
            ("x", ANN, "s2", {"k": 1, "filters": theirs}),
        ]

    def test_it_is_loud(self, engine):
        """Unlike what stands in an agent, a retriever raises what goes wrong."""
        engine.broken = True
        with pytest.raises(OSError, match="No space"):
            HermesRetriever(engine=engine).invoke("x")


class TestContext:
    """The block as a prompt variable."""

    @pytest.mark.parametrize(
        "request_",
        ["hi", {"input": "hi"}, {"question": "hi"}, {"query": "hi"}, {"messages": [HumanMessage("hi")]}],
    )
    @pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
    async def test_it_takes_a_request_in_any_form(self, engine, request_, mode):
        """A text, or a mapping that holds one under a usual key, is looked up."""
        runnable = context_runnable(engine, namespace=ANN)
        block = runnable.invoke(request_) if mode == "invoke" else await runnable.ainvoke(request_)
        assert block == "MEMORY[ann:hi]"

    def test_it_fills_a_variable_of_a_chain(self, engine):
        """In `RunnablePassthrough.assign` it gives the prompt its block."""
        model = ScriptedChatModel(script=["done"])
        prompt = ChatPromptTemplate.from_messages([("system", "BASE {memory}"), ("human", "{question}")])
        assigned = RunnablePassthrough.assign(memory=context_runnable(engine, k=2, budget_tokens=99))
        (assigned | prompt | model).invoke({"question": "hi"}, {"metadata": {"session_id": "s3"}})
        assert model.seen[0][0].content == "BASE MEMORY[default:hi]"
        ((_, _, session, options),) = engine.queries
        assert (session, options) == ("s3", {"k": 2, "budget_tokens": 99, "filters": None})

    def test_without_a_request_the_block_is_empty(self, engine):
        """A mapping without a usual key asks nothing of the memory."""
        assert context_runnable(engine).invoke({"topic": "cats"}) == ""
        assert engine.queries == []
