"""What a run was aimed at: operation, targets, danger, and which runs are the same action."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_hermes_memory.action import (
    TargetRelation,
    command_text,
    read_action,
    read_targets,
    target_relation,
)


def bash(command):
    return read_action("bash", command)


class TestSameAction:
    """Which runs are one action."""

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("rm -r  /tmp/cache", "rm -r /tmp/cache"),
            ('cat "a.txt"', "cat a.txt"),
            ("tar czf backup-20260301-0200.tgz /srv", "tar czf backup-20260308-0200.tgz /srv"),
            (
                "kubectl get pod web-7c9d8b6f5d-x2x4z",
                "kubectl get pod web-7c9d8b6f5d-x2x4z",
            ),
            (
                "curl -d id=3f2504e0-4f89-11d3-9a0c-0305e82c3301 https://api.example.com/x",
                "curl -d id=9f2504e0-4f89-11d3-9a0c-0305e82c3399 https://api.example.com/x",
            ),
        ],
    )
    def test_equal(self, one, other):
        """Spaces, quotes, timestamps and ids make no difference."""
        assert bash(one).key == bash(other).key

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("rm -r /tmp/cache", "rm -r /tmp/cache2"),
            ("rm -r /tmp/cache", "rm -r /var/tmp"),
            ("git push origin main", "git push origin dev"),
            ("git push", "git push --force"),
            ("psql -p 5432", "psql -p 6543"),
            ("SELECT 1", "SELECT 2"),
        ],
    )
    def test_different(self, one, other):
        """Another target, option or number is another action."""
        assert bash(one).key != bash(other).key

    def test_the_order_of_arguments_does_not_count(self):
        """An object is the same in any order."""
        one = read_action("send", {"to": "ann", "body": "hi"})
        assert one.key == read_action("send", {"body": "hi", "to": "ann"}).key
        assert one.key != read_action("send", {"body": "ann", "to": "hi"}).key

    def test_the_same_kind_on_another_target(self):
        """One family, two actions."""
        one, other = bash("rm -r /tmp/a"), bash("rm -r /tmp/b")
        assert one.family == other.family
        assert one.key != other.key


class TestDanger:
    """Danger is read off the structure, whatever the words."""

    @pytest.mark.parametrize(
        "command",
        [
            "rm -rf /",
            "sudo rm -rf /srv/data",
            "bash -c 'rm -rf /home/ann'",
            "find /srv -name '*.log' -delete",
            "git push --force origin main",
            "git reset --hard HEAD~3",
            "kubectl delete namespace prod",
            "dd if=/dev/zero of=/dev/sda",
            "mkfs.ext4 /dev/sdb1",
            "cat urls | xargs rm -rf /opt/x",
            "docker volume prune -f",
            "terraform destroy -auto-approve",
        ],
    )
    def test_dangerous_commands(self, command):
        """Also behind sudo, in a sub-shell or at the end of a pipe."""
        assert bash(command).dangerous

    @pytest.mark.parametrize(
        "command",
        [
            "echo rm -rf /",
            "grep -r 'rm -rf' scripts",
            "rm -rf /tmp/build",
            "git push origin main",
            "kubectl get pods",
            "ls /srv # rm -rf /srv",
            "git log --grep 'reset --hard'",
            "docker ps",
        ],
    )
    def test_harmless_commands(self, command):
        """Text about a deletion is none, and a temporary place may be emptied."""
        assert not bash(command).dangerous

    @pytest.mark.parametrize(
        ("statement", "dangerous"),
        [
            ("DROP TABLE users", True),
            ("DELETE FROM orders", True),
            ("TRUNCATE orders", True),
            ("UPDATE users SET admin = true", True),
            ("SELECT * FROM users", False),
            ("SELECT 'DROP TABLE users'", False),
        ],
    )
    def test_sql(self, statement, dangerous):
        """A statement without a condition, not one that mentions it."""
        assert read_action("sql_query", {"query": statement}).dangerous is dangerous


class TestTargets:
    """What was aimed at, and how far one is from another."""

    def test_kinds(self):
        """Paths, addresses and tables."""
        assert [(t.kind, t.value) for t in bash("rm /srv/a.txt").targets] == [("path", "/srv/a.txt")]
        assert "orders" in [t.value for t in read_action("sql", {"query": "SELECT * FROM orders"}).targets]
        assert any("api.example.com" in t.value for t in bash("curl https://api.example.com/v1").targets)

    @pytest.mark.parametrize(
        ("path", "place"),
        [("/etc/passwd", "system"), ("/tmp/x", "temporary"), ("/home/ann/letter.txt", "user_data")],
    )
    def test_places(self, path, place):
        """How much harm a mistake would do there."""
        assert read_targets(f"look at {path}")[0].target_class == place

    @pytest.mark.parametrize(
        ("one", "other", "relation"),
        [
            ("/tmp/cache", "/tmp/cache", TargetRelation.SAME),
            ("/tmp/cache/", "/tmp/cache", TargetRelation.SAME),
            ("/tmp/cache/a", "/tmp/cache", TargetRelation.INSIDE),
            ("/tmp", "/tmp/cache", TargetRelation.CONTAINS),
        ],
    )
    def test_relations(self, one, other, relation):
        """The same, inside, around."""
        (first,), (second,) = read_targets(one), read_targets(other)
        assert target_relation(first, second) is relation

    def test_a_look_alike_is_another_target(self):
        """A name that merely begins the same."""
        (first,), (second,) = read_targets("/tmp/cache"), read_targets("/tmp/cache_backup")
        near = {TargetRelation.SAME, TargetRelation.INSIDE, TargetRelation.CONTAINS}
        assert target_relation(first, second) not in near

    def test_in_a_chinese_sentence(self):
        """A path between Chinese characters."""
        assert [target.value for target in read_targets("请清理/tmp/缓存目录下的文件")]
        assert read_targets("清理 /tmp/backup 目录")[0].value == "/tmp/backup"


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=40)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.one_of(st.text(max_size=200), st.dictionaries(st.text(max_size=8), values, max_size=4)))
def test_any_input_is_an_action(tool_input):
    """Never raises, and says the same each time."""
    for tool in ("bash", "sql", "http", "python", "mcp__files__write"):
        first = read_action(tool, tool_input)
        assert first == read_action(tool, tool_input)
        assert first.key
        assert first.dangerous == bool(first.dangers)
    assert isinstance(command_text(tool_input), str)


@pytest.mark.parametrize(
    "unit", ["rm ", "$(", "'", '"', "; ", "| ", "SELECT ", "(", "\\", " \n", "/a", "清理 "]
)
def test_hostile_repetition_is_finished(unit):
    """No reader runs away."""
    for tool in ("bash", "sql", "http"):
        read_action(tool, unit * 20_000)
    read_targets(unit * 20_000)
