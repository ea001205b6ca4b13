"""The outcome reader: what happened, why, and whether trying again would help."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import ToolMessage

from langchain_hermes_memory.action import read_action
from langchain_hermes_memory.errors import RuleError
from langchain_hermes_memory.outcome import OutcomeReader
from langchain_hermes_memory.outcome.model import load
from langchain_hermes_memory.outcome.zone import Zone
from langchain_hermes_memory.record import Category, Outcome, Status

READER = OutcomeReader()
RULES = load(None).rule


def read(output, *, tool="bash", command="run it", **given):
    return READER.read(tool=tool, command=command, output=output, **given)


@pytest.mark.parametrize(("rule", "text"), [(rule, text) for rule in RULES for text in rule.yes])
def test_rule_samples_match(rule, text):
    """What each rule is for."""
    assert Zone(text, load(None)).find(rule), rule.id


@pytest.mark.parametrize(("rule", "text"), [(rule, text) for rule in RULES for text in rule.no])
def test_rule_samples_that_must_not_match(rule, text):
    """What looks like it and is none."""
    assert not Zone(text, load(None)).find(rule), rule.id


def test_ids_are_unique():
    """Evidence names one rule."""
    assert len({rule.id for rule in RULES}) == len(RULES)


class TestFailures:
    """Why something failed."""

    @pytest.mark.parametrize(
        ("command", "output", "category"),
        [
            ("rm /srv/a", "rm: cannot remove '/srv/a': Permission denied", "permission"),
            ("cat b.txt", "cat: b.txt: No such file or directory", "not_found"),
            (
                "git push",
                "! [rejected] main -> main (fetch first)\nerror: failed to push some refs",
                "conflict",
            ),
            ("curl http://localhost:1", "curl: (7) Failed to connect to localhost port 1", "network"),
            ("docker pull x", "Error response from daemon: toomanyrequests: rate limit", "rate_limit"),
            ("psql -c 'select 1'", 'FATAL:  password authentication failed for user "app"', "authentication"),
            ("make", "cc1: out of memory allocating 65536 bytes", "resource_exhausted"),
            ("foo --bar", "bash: foo: command not found", "unavailable"),
            (
                "grep -Z",
                "grep: unrecognized option '-Z'\nUsage: grep [OPTION]... PATTERNS",
                "invalid_argument",
            ),
            ("run", "错误:连接超时", "timeout"),
            ("run", "操作失败:没有权限", "permission"),
        ],
    )
    def test_by_what_the_tool_says(self, command, output, category):
        """The tool's own words at the place of its verdict."""
        outcome = read(output, command=command)
        assert (outcome.status, outcome.category) == (Status.FAILURE, category)
        assert outcome.evidence
        assert outcome.error_code
        assert outcome.error_detail

    @pytest.mark.parametrize(
        ("error", "category"),
        [
            (PermissionError(13, "Permission denied", "/srv/a"), "permission"),
            (FileNotFoundError(2, "No such file or directory", "/srv/a"), "not_found"),
            (ConnectionRefusedError(111, "Connection refused"), "network"),
            (TimeoutError("timed out"), "timeout"),
            (OSError(28, "No space left on device"), "resource_exhausted"),
            (ValueError("bad date"), "invalid_argument"),
            (MemoryError(), "resource_exhausted"),
        ],
    )
    def test_by_the_exception(self, error, category):
        """Type and errno before any text."""
        outcome = read(None, error=error)
        assert (outcome.status, outcome.category) == (Status.FAILURE, category)
        assert outcome.evidence[0].source == "exception"

    @pytest.mark.parametrize(
        ("output", "category"),
        [
            ({"ok": False, "error": "channel_not_found"}, "not_found"),
            ({"isError": True, "content": [{"type": "text", "text": "timed out after 30 s"}]}, "timeout"),
            ({"status": 403, "message": "Forbidden"}, "permission"),
            ({"error": {"code": 429, "message": "slow down"}}, "rate_limit"),
            ({"errcode": 40001, "errmsg": "invalid credential"}, "authentication"),
            ({"exit_code": 1, "stderr": "cp: disk quota exceeded"}, "resource_exhausted"),
        ],
    )
    def test_by_structure(self, output, category):
        """Fields that say how it went, as an object or as text."""
        for given_as in (output, json.dumps(output)):
            outcome = read(given_as, tool="api")
            assert (outcome.status, outcome.category) == (Status.FAILURE, category), given_as

    def test_by_the_envelope(self):
        """The exit code that an agent's shell prints."""
        assert read("something\nExit code: 2").status is Status.FAILURE
        assert read("something\nExit code: 0").status is Status.SUCCESS

    def test_by_the_message(self):
        """A tool message that says that it is an error."""
        outcome = read(ToolMessage("no rows for that id", tool_call_id="1", status="error"), tool="lookup")
        assert outcome.status is Status.FAILURE


class TestNotFailures:
    """What mentions errors and is none."""

    @pytest.mark.parametrize(
        ("command", "output"),
        [
            ("make", "Build finished with 0 errors, 0 warnings"),
            ("grep -rn error src", "src/a.py:3:    raise ValueError('error')"),
            ("touch error.log", ""),
            ("ls", "error.log\nfailed_jobs.csv"),
            ("pytest -q", "12 passed in 0.31s"),
            ("cat app.log", "2026-01-02 ERROR db: connection refused\n2026-01-02 INFO ok"),
            ("git log --oneline", "a1b2c3d Fix error: permission denied on upload"),
        ],
    )
    def test_a_success(self, command, output):
        """Counts of zero, names, payloads, and what was searched for."""
        assert read(output, command=command).status in (Status.SUCCESS, Status.UNKNOWN)

    def test_a_page_does_not_decide(self):
        """What a page says about errors is the page's matter."""
        page = (
            "<h1>How to mend a web server</h1><p>When it says 500 Internal Server Error, look at its log.</p>"
        )
        assert read(page, tool="fetch_url", command="https://example.com").status is not Status.FAILURE


class TestPartial:
    """Some of it was done."""

    @pytest.mark.parametrize(
        ("command", "output"),
        [
            ("send all", "Sent 47 of 50 messages, 3 failed"),
            ("pytest -q", "FAILED tests/a.py::test_x\n2 failed, 10 passed in 1.20s"),
            ("导入", "导入完成:成功 1180 行,失败 4 行"),
        ],
    )
    def test_counts(self, command, output):
        """Parts that worked and parts that did not."""
        assert read(output, command=command).status is Status.PARTIAL

    def test_no_failed_part_is_a_success(self):
        """All of it."""
        assert read("发送完成:共 23 封,成功 23 封,失败 0 封").status is Status.SUCCESS
        assert read("Sent 50 of 50 messages, 0 failed").status is Status.SUCCESS


class TestTransience:
    """Whether the same call may work later."""

    def test_a_path_that_vanished_during_a_clean_up(self):
        """Somebody was faster; what to do is to look, not to take another path."""
        action = read_action("bash", "rm -r /tmp/cache")
        outcome = read(
            "rm: cannot remove '/tmp/cache': No such file or directory",
            command="rm -r /tmp/cache",
            targets=action.targets,
        )
        assert outcome.transient is True
        assert outcome.suggested_action == "already_gone"

    def test_a_path_that_is_not_there(self):
        """Elsewhere a missing path stays missing."""
        assert (
            read("cat: /etc/app.toml: No such file or directory", command="cat /etc/app.toml").transient
            is False
        )

    def test_a_timeout_and_a_permission(self):
        """The one may pass, the other will not."""
        assert read("Operation timed out").transient is True
        assert read("bash: x: Permission denied").transient is False


class TestRefusals:
    """Refused or stopped is not failed by itself."""

    def test_by_a_human(self):
        """A category of its own, with the reason."""
        outcome = read("not on a Friday", rejected=True)
        assert (outcome.category, outcome.error_code) == (Category.BLOCKED, "REJECTED")
        assert "not on a Friday" in outcome.error_detail

    def test_by_a_policy(self):
        """As by a human."""
        assert read("command blocked by policy no-force-push", command="git push -f").category == "blocked"


class TestOwnReaders:
    """What users add."""

    def test_a_function(self):
        """By name pattern; where it has nothing to say, the rules go on; where it raises, too."""

        def robot(tool, command, output):
            if output == "bang":
                raise RuntimeError(output)
            return Outcome(status=Status.FAILURE, category=Category.CONFLICT) if "E42" in output else None

        reader = OutcomeReader(readers={"robot_*": robot})
        assert reader.read(tool="robot_arm", command="", output="E42").category == "conflict"
        assert (
            reader.read(tool="robot_arm", command="", output="arm: Permission denied").category
            == "permission"
        )
        assert reader.read(tool="robot_arm", command="", output="bang").status is not None
        assert reader.read(tool="other", command="", output="E42").category is None

    def test_a_file(self, tmp_path):
        """Tried before the packaged rules."""
        file = tmp_path / "own.toml"
        file.write_text(
            '[[rule]]\nid = "own"\nkind = "reader"\nphrases = ["gripper jammed"]\ncategory = "unavailable"\n'
            'error_code = "JAM"\nyes = ["gripper jammed"]\n',
            "utf-8",
        )
        outcome = OutcomeReader(rules_file=file).read(tool="arm", command="", output="gripper jammed")
        assert (outcome.category, outcome.error_code) == ("unavailable", "JAM")

    def test_a_bad_file(self, tmp_path):
        """Named, with what is wrong."""
        file = tmp_path / "own.toml"
        file.write_text('[[rule]]\nid = "own"\nkind = "reader"\npattern = "("\n', "utf-8")
        with pytest.raises(RuleError, match="own"):
            OutcomeReader(rules_file=file)


values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=30), st.binary(max_size=20)
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["error", "ok", "code", "status", "data", "msg"]), inner, max_size=3),
    ),
    max_leaves=8,
)


@given(values, st.text(max_size=40), st.text(max_size=12))
@settings(max_examples=200, deadline=None)
def test_anything_can_be_read(output, command, tool):
    """Never raises, and says the same each time."""
    first, second = (READER.read(tool=tool, command=command, output=output) for _ in range(2))
    assert first == second
    assert (first.category is None) == (first.status not in (Status.FAILURE, Status.PARTIAL))


@pytest.mark.parametrize(
    "unit",
    [
        "\u3000\n",
        " ",
        "\t\n",
        "\n",
        "error ",
        "a",
        "(",
        "[",
        "{",
        '{"a":',
        "failed: ",
        " \n",
        "错误",
        "0 errors ",
        "\\",
        "<a>",
        "Traceback ",
    ],
)
def test_hostile_repetition_is_finished(unit):
    """No pattern runs away on a megabyte."""
    READER.read(tool="bash", command=unit * 2_000, output=unit * (1_000_000 // len(unit)))
