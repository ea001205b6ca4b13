"""Every rule in `rules/actions.toml` says by samples what it must and must not match."""

import pytest

from langchain_hermes_memory._rules import load_rules
from langchain_hermes_memory.action import read_action, read_targets
from langchain_hermes_memory.action_rules import ActionRules, Rule, action_rules
from langchain_hermes_memory.steps import word_target
from langchain_hermes_memory.targets import table_target

RULES = action_rules()
TOOL_OF = {
    "command": "bash",
    "sql": "sql_query",
    "http": "http",
    "code": "python_repl",
    "words": "assistant_task",
}


def _samples(*sections: str) -> list[object]:
    return [
        pytest.param(section, rule, sample, expected, id=f"{rule.id}-{sample}-{expected}")
        for section in sections
        for rule in getattr(RULES, section)
        for expected, samples in ((True, rule.yes), (False, rule.no))
        for sample in samples
    ]


@pytest.mark.parametrize(
    ("section", "rule", "sample", "expected"), _samples("command", "sql", "http", "code", "tool", "words")
)
def test_danger_samples(section: str, rule: Rule, sample: str, expected: bool):
    """A danger rule meets its `yes` samples and leaves its `no` samples alone."""
    tool, text = sample.split(" | ") if section == "tool" else (TOOL_OF[section], sample)
    dangers = read_action(tool, text).dangers
    if expected and section == "code" and rule.opens:
        assert dangers
    else:
        assert (rule.id in dangers) is expected, dangers


@pytest.mark.parametrize(
    ("section", "rule", "sample", "expected"), _samples("command", "sql", "http", "code", "tool", "words")
)
def test_harmless_samples_meet_no_rule(section: str, rule: Rule, sample: str, expected: bool):
    """What one rule calls harmless, no other rule calls dangerous."""
    tool, text = sample.split(" | ") if section == "tool" else (TOOL_OF[section], sample)
    assert read_action(tool, text).dangerous is expected


@pytest.mark.parametrize(("section", "rule", "sample", "expected"), _samples("place"))
def test_place_samples(section: str, rule: Rule, sample: str, expected: bool):
    """A place rule is the first that matches its `yes` samples, and not for its `no` samples."""
    target = word_target(sample, is_path=True)
    assert target is not None
    first = next((other.id for other in RULES.place if other.pattern.search(_plain(sample))), "")
    assert (first == rule.id) is expected
    if expected:
        assert target.target_class is rule.target_class


def _plain(sample: str) -> str:
    from langchain_hermes_memory.targets import path_target

    return sample if any(mark in sample for mark in "*?[") else path_target(sample).value


@pytest.mark.parametrize(("section", "rule", "sample", "expected"), _samples("table_place"))
def test_table_place_samples(section: str, rule: Rule, sample: str, expected: bool):
    """A table rule decides the class of its `yes` samples and not of its `no` samples."""
    assert (table_target(sample).target_class is rule.target_class) is expected


@pytest.mark.parametrize(("section", "rule", "sample", "expected"), _samples("named"))
def test_named_samples(section: str, rule: Rule, sample: str, expected: bool):
    """A naming rule finds something of its kind in its `yes` samples and nothing in its `no` samples."""
    found = [target for target in read_targets(sample) if target.kind == rule.kind]
    assert bool(found) is expected, found


@pytest.mark.parametrize("rule", RULES.masks.rule, ids=lambda rule: rule.id)
def test_mask_samples(rule: Rule):
    """A mask makes its `yes` pairs equal and leaves its `no` pairs apart."""
    for expected, pairs in ((True, rule.yes), (False, rule.no)):
        for pair in pairs:
            one, other = pair.split(" ~ ")
            assert (read_action("bash", one).key == read_action("bash", other).key) is expected, pair


def test_ids_are_unique():
    """No two rules share an id, so that a record tells which rule spoke."""
    sections = ("place", "table_place", "named", "command", "sql", "http", "code", "tool", "words")
    ids = [rule.id for section in sections for rule in getattr(load_rules("actions", ActionRules), section)]
    assert len(ids) == len(set(ids))
