"""Importance: the anchors hold, the reasons add up, whatever the record."""

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from langchain_hermes_memory._rules import load_rules
from langchain_hermes_memory.encode import Encoder
from langchain_hermes_memory.outcome import OutcomeReader
from langchain_hermes_memory.record import ToolCall, Turn
from langchain_hermes_memory.score import Acts, History, RuleScorer, SpeechActs, rule_ids
from langchain_hermes_memory.settings import Settings

READER = OutcomeReader()
ACTS = load_rules("turns", Acts).act


@pytest.fixture
def encode(clock):
    """Encode a tool run, with the history that the test says."""

    def encode_call(tool, tool_input, output="", *, history=None, critical=(), **fields):
        encoder = Encoder(Settings(critical_tools=critical), reader=READER, redactor=None)
        call = ToolCall(tool=tool, tool_input=tool_input, output=output, finished_at=clock.now, **fields)
        return encoder.encode_call(call, lambda *_: history or History())

    return encode_call


@pytest.fixture
def say_turn(clock):
    encoder = Encoder(Settings(), reader=READER, redactor=None)
    return lambda words: encoder.encode_turn(Turn(user=words, assistant="ok", at=clock.now))


class TestAnchors:
    """How much the typical cases matter."""

    @pytest.mark.parametrize(
        ("command", "output"),
        [
            ("curl https://example.com/feed", "curl: (28) Operation timed out after 30000 milliseconds"),
            ("curl https://example.cn/feed", "ERROR: 网络超时,请稍后重试"),
        ],
    )
    def test_an_accidental_timeout_matters_little(self, encode, command, output):
        """Below 30, and not kept for long the first time."""
        encoded = encode("bash", command, output)
        assert encoded.record.importance_score < 30
        assert not encoded.admitted

    @pytest.mark.parametrize(
        "output",
        ["bash: /srv/data/report.csv: Permission denied", "ERROR: 写入失败:没有写入权限"],
    )
    def test_a_missing_permission_matters(self, encode, output):
        """40 to 69."""
        assert 40 <= encode("bash", "cp report.csv /srv/data/", output).record.importance_score <= 69

    def test_a_blocked_destructive_command_matters_most(self, encode):
        """90 and more."""
        encoded = encode("bash", "rm -rf /", "blocked by policy: refusing to run a destructive command")
        assert encoded.record.importance_score >= 90

    def test_a_weekly_backup_that_worked(self, encode):
        """40 to 69."""
        encoded = encode("backup", {"source": "/srv/data"}, "SUCCESS: backup of /srv/data, 48 GB in 21 min")
        assert 40 <= encoded.record.importance_score <= 69

    @pytest.mark.parametrize("words", ["Hello!", "good morning", "你好", "谢谢!"])
    def test_a_greeting_matters_not(self, say_turn, words):
        """Below 20."""
        assert say_turn(words).record.importance_score < 20

    @pytest.mark.parametrize(
        "words",
        [
            "I always want reports as PDF",
            "From now on, send one invoice per mail",
            "以后报告都用 PDF 格式",
            "No, that is wrong: the port is 6543",
            "不对,应该是王蕾",
        ],
    )
    def test_a_wish_or_correction_matters_much(self, say_turn, words):
        """70 and more."""
        assert say_turn(words).record.importance_score >= 70

    def test_a_critical_tool_that_worked(self, encode):
        """70 and more, by the names that the user calls critical."""
        encoded = encode("db_backup", {"source": "/srv"}, "SUCCESS: done", critical=("*backup",))
        assert encoded.record.importance_score >= 70

    def test_an_accident_again_and_again_is_none(self, encode):
        """Importance rises with each time within the window, and it is no longer called transient."""
        runs = [
            encode(
                "bash",
                "curl https://example.com/feed",
                "curl: (28) Operation timed out",
                history=History(failures=before, failures_ever=before),
            ).record
            for before in range(4)
        ]
        scores = [record.importance_score for record in runs]
        assert scores == sorted(scores)
        assert scores[0] < 30
        assert scores[-1] >= 40
        assert [record.execution_result.transient for record in runs] == [True, True, None, None]

    def test_seldom_but_again_and_again(self, encode):
        """Three times over months is worth keeping too."""
        encoded = encode(
            "bash", "curl https://x.example", "Operation timed out", history=History(failures_ever=2)
        )
        assert encoded.admitted

    def test_a_refusal_is_a_limit(self, encode):
        """What a person refused matters, and is no failure of the action."""
        encoded = encode("send_mail", {"to": "all"}, "not to all of them", rejected=True)
        assert encoded.record.importance_score >= 70
        assert "boundary" in encoded.record.tags


@pytest.mark.parametrize(("act", "words"), [(act.id, words) for act in ACTS for words in act.yes])
def test_each_act_is_recognised(act, words):
    """What each kind of utterance is for."""
    assert SpeechActs().read(words) == act


@pytest.mark.parametrize(("act", "words"), [(act.id, words) for act in ACTS for words in act.no])
def test_no_act_takes_what_is_none(act, words):
    """What looks like it and is none."""
    assert SpeechActs().read(words) != act


def test_every_reason_has_words():
    """In both languages; a reason of another scorer explains itself."""
    scorer = RuleScorer()
    for rule in scorer._rules.rule:
        assert rule.why.en
        assert rule.why.zh


@given(
    st.text(max_size=80),
    st.one_of(st.text(max_size=200), st.dictionaries(st.text(max_size=5), st.integers(), max_size=3)),
    st.builds(
        History,
        failures=st.integers(0, 50),
        failures_ever=st.integers(0, 90),
        successes=st.integers(0, 500),
        successes_since_failure=st.integers(0, 50),
    ),
)
@hypothesis_settings(max_examples=60, deadline=None)
def test_the_reasons_add_up(command, output, history):
    """The score is within its range, the sum of its reasons, and the same each time."""
    from datetime import UTC, datetime

    encoder = Encoder(Settings(), reader=READER, redactor=None)
    call = ToolCall(
        tool="bash", tool_input=command, output=output, finished_at=datetime(2026, 3, 1, tzinfo=UTC)
    )
    first, second = (encoder.encode_call(call, lambda *_: history).record for _ in range(2))
    assert 0 <= first.importance_score <= 100
    assert first.importance_score == sum(reason.points for reason in first.importance_reasons)
    assert first.importance_reasons == second.importance_reasons
    assert rule_ids(first.importance_reasons)[0] == "base"
