"""The parts for tests: a scripted chat model and a frozen clock."""

from datetime import UTC, datetime

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from langchain_hermes_memory.testing import FrozenClock, ScriptedChatModel


def merged(chunks):
    first, *rest = chunks
    for chunk in rest:
        first += chunk
    return first


def test_replies_follow_the_script():
    """A text, a tool call, several at once and a message are given in order, each to one call."""
    call = {"name": "ls", "args": {"path": "/"}}
    model = ScriptedChatModel(script=["hi", call, [call, {**call, "id": "mine"}], AIMessage("bye")])
    replies = [model.bind_tools([]).invoke(f"{n}") for n in range(4)]
    assert [reply.content for reply in replies] == ["hi", "", "", "bye"]
    assert [[each["id"] for each in reply.tool_calls] for reply in replies] == [
        [],
        ["call_1"],
        ["call_2", "mine"],
        [],
    ]
    assert [seen[0].content for seen in model.seen] == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    "reply",
    [
        "one  two\nthree ",
        "",
        {"name": "ls", "args": {"path": "/"}, "id": "c1"},
        AIMessage([{"type": "text", "text": "x"}]),
    ],
)
async def test_a_streamed_reply_is_the_reply(reply):
    """The chunks of a reply add up to it, in both modes."""
    whole = ScriptedChatModel(script=[reply]).invoke("x")
    streamed = merged(list(ScriptedChatModel(script=[reply]).stream("x")))
    astreamed = merged([chunk async for chunk in ScriptedChatModel(script=[reply]).astream("x")])
    for chunk in (streamed, astreamed):
        assert (chunk.text, chunk.tool_calls) == (whole.text, whole.tool_calls)


def test_a_script_that_is_too_short_says_so():
    """An agent that asks once too often is told how long the script is."""
    model = ScriptedChatModel(script=["hi"])
    model.invoke([HumanMessage("x")])
    with pytest.raises(IndexError, match="1 replies"):
        model.invoke([HumanMessage("x")])


def test_the_clock_moves_only_when_told():
    """A frozen clock shows its time until it is advanced."""
    clock = FrozenClock(datetime(2026, 3, 2, 12, 0, tzinfo=UTC))
    assert clock() == clock()
    assert clock.advance(days=1, minutes=5) == clock() == datetime(2026, 3, 3, 12, 5, tzinfo=UTC)
