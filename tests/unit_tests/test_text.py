"""Texts: both languages say the same, and what is shortened is never cut inside a path."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_hermes_memory._text import (
    detect_lang,
    one_line,
    say,
    shorten,
    shorten_middle,
    texts,
    without_unseen,
)
from langchain_hermes_memory.outcome.model import load
from langchain_hermes_memory.record import Category, Status


def fields(text):
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def test_both_languages_have_the_same_texts():
    """The same keys, with the same fields."""
    english, chinese = texts("en"), texts("zh")
    assert english.keys() == chinese.keys()
    assert {key: fields(text) for key, text in english.items()} == {
        key: fields(text) for key, text in chinese.items()
    }


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_status_category_and_advice_has_its_words(lang):
    """Whatever an outcome may be."""
    rules = load(None)
    advice = {*rules.advice.values(), *(rule.advice for rule in rules.rule if rule.advice)}
    for key in [
        *(f"status.{status}" for status in Status),
        *(f"category.{category}" for category in Category),
        *(f"advice.{each}" for each in advice | {"already_gone", "ask_user"}),
    ]:
        assert say(lang, key)


def test_no_advice_is_left_over():
    """Every advice that there are words for can be given."""
    rules = load(None)
    advice = {*rules.advice.values(), *(rule.advice for rule in rules.rule if rule.advice)}
    worded = {key.removeprefix("advice.") for key in texts("en") if key.startswith("advice.")}
    assert worded == advice | {"already_gone", "ask_user"}


@pytest.mark.parametrize(
    ("text", "lang"),
    [
        ("clean up /tmp", "en"),
        ("清理 /tmp/cache", "zh"),
        ("请用 git push 推送", "zh"),
        ("", "en"),
        ("what does 好 mean in English", "en"),
    ],
)
def test_the_language_is_that_of_most_words(text, lang):
    """A path or a command in a Chinese sentence does not make it English."""
    assert detect_lang(text) == lang


def test_a_path_is_kept_whole_or_left_out():
    """Half a path is another path."""
    text = "cannot remove /srv/data/archive/2024 because it is busy"
    assert shorten(text, 30) == "cannot remove…"
    assert "/srv/data/archive/2024" in shorten_middle("x " * 50 + text, 60) or "/srv" not in shorten_middle(
        "x " * 50 + text, 60
    )


@given(st.text(max_size=400), st.integers(2, 200))
def test_nothing_is_longer_than_its_limit(text, limit):
    """Whatever the text; a short one comes back unchanged."""
    for short in (shorten(text, limit), shorten_middle(text, limit)):
        assert len(short) <= limit
        assert short == text or len(text) > limit


@given(st.text())
def test_one_line_has_one_line(text):
    """No breaks, no control characters, no invisible marks."""
    line = one_line(text)
    assert line.splitlines() in ([], [line])
    assert line == without_unseen(line)
    assert not any(ord(sign) < 32 or ord(sign) in (0x7F, 0x200B, 0x202E, 0xFEFF) for sign in line)
