"""Secrets go, all else stays."""

import json
import logging
import random
import re
import string
import threading
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_hermes_memory._rules import load_rules
from langchain_hermes_memory.redact import Redactor, SecretRules

RULES = load_rules("secrets", SecretRules)
ALPHABETS = {
    "A": string.ascii_letters,
    "a": string.ascii_lowercase,
    "N": string.digits,
    "H": "0123456789abcdef",
    "K": string.ascii_uppercase + string.digits,
    "X": string.ascii_letters + string.digits,
    "B": string.ascii_letters + string.digits + "+/",
    "P": string.ascii_letters + string.digits,
}


def invent(kind: str, length: int, dice: random.Random) -> str:
    """Return a random value of a kind of the samples, certain to hold the characters that mark the kind."""
    if kind == "U":
        return str(uuid.UUID(int=dice.getrandbits(128)))
    value = "".join(dice.choices(ALPHABETS[kind], k=length))
    if kind == "P":
        return f"q7{value[2 : length // 2]}!{value[length // 2 + 1 :]}"
    if kind in "XBK" and length >= 6:
        return f"Q{value[1:-1]}7"
    if kind == "H" and length >= 16:
        return f"7a4f{value[4:]}"
    return value


def expand(sample: str, dice: random.Random) -> tuple[str, list[str]]:
    """Return a sample with invented values and the list of these."""
    values: list[str] = []

    def put(match: re.Match[str]) -> str:
        values.append(invent(match[1], int(match[2] or 0), dice))
        return values[-1]

    return re.sub(r"\{([AaNHKXBPU])(\d+)?\}", put, sample), values


@pytest.fixture(scope="module")
def redactor():
    return Redactor()


PASSWORD = "q7" + "Rt!x" + "Lm9"
KEY = "Q" + "x7Jm2LpWn8" * 3 + "7"


@pytest.mark.parametrize("pattern", RULES.pattern, ids=lambda pattern: pattern.id)
def test_every_pattern_finds_its_samples_and_leaves_the_others(pattern, redactor):
    """No invented value of a `yes` sample is left, a `no` sample stays as it is, and twice is once."""
    dice = random.Random(pattern.id)
    for sample in pattern.yes:
        for _ in range(5):
            text, values = expand(sample, dice)
            masked = redactor.redact(text)
            assert values
            assert not [value for value in values if value in masked], (text, masked)
            assert redactor.redact(masked) == masked
    for sample in pattern.no:
        assert redactor.redact(sample) == sample


def test_patterns_have_samples_and_lower_case_anchors():
    """A pattern without a sample is unproven; an anchor in capitals would never be found."""
    assert len({pattern.id for pattern in RULES.pattern}) == len(RULES.pattern)
    for pattern in RULES.pattern:
        assert pattern.yes
        assert all(anchor == anchor.lower() and anchor for anchor in pattern.anchors)


@pytest.mark.parametrize(
    "text",
    [
        "The token limit is 4096 tokens, of which prompt_tokens=120 were used",
        "Open the password reset page and follow the secret santa rules",
        "commit 3f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c4d3e2f1a (HEAD -> main)",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "request 123e4567-e89b-12d3-a456-426614174000 took 3 s",
        "ssh -i /home/u/.ssh/id_rsa -p 2222 u@host.example",
        "data:image/png;base64," + "iVBORw0KGgo" * 30,
        "git clone git@github.com:acme/app.git && cd /srv/tokens/secret-santa",
        "KeyError: 'api_key'\nmissing required argument: 'password'",
        "const token = await getToken(); if (token === expectedToken) { use(token) }",
        "token: ${{ secrets.GITHUB_TOKEN }}\npassword: ${DB_PASSWORD}",
        "Enter password: \nSorry, try again.",
        "kubectl get secret db-credentials-2 -n prod",
        "psql: FATAL: password authentication failed for user app1",
        "密码错误,请重新输入密码。密码长度至少为8位,令牌已过期",
        "cookie settings: accept all; session expired",
        '{"max_tokens": 512, "next_page_token": "abc", "token_type": "bearer"}',
    ],
)
def test_plain_words_hashes_and_paths_stay(text, redactor):
    """What only speaks of secrets, and what only looks random, is no secret."""
    assert redactor.redact(text) == text


def test_only_the_secret_goes(redactor):
    """Hosts, users and commands around a secret are what the memory is about."""
    masked = redactor.redact(
        f"psql 'postgresql://report:{PASSWORD}@pg.corp.example:5432/kpi?sslmode=require' -c x"
    )
    assert (
        masked
        == "psql 'postgresql://report:[REDACTED:password]@pg.corp.example:5432/kpi?sslmode=require' -c x"
    )


def test_a_secret_is_masked_in_all_texts_of_a_call(redactor):
    """A value that one text gives away as a secret is masked in the others, encoded or not."""
    encoded = PASSWORD.replace("!", "%21")
    texts = redactor.redact_all(
        f"mysql -uapp -p'{PASSWORD}' shop", f"cannot log in with {PASSWORD}", f"u={encoded};"
    )
    assert not [text for text in texts if PASSWORD in text or encoded in text]
    assert texts[2] == "u=[REDACTED:password];"


def test_a_password_that_is_a_word_is_masked_only_in_its_place(redactor):
    """`admin` as a password must not black out every `admin`."""
    masked = redactor.redact_all("curl -u root:admin http://h/x", "the admin page is up")
    assert masked == ("curl -u root:[REDACTED:password] http://h/x", "the admin page is up")


def test_values_under_sensitive_keys_are_masked_whatever_they_look_like(redactor):
    """In structured data the key decides."""
    value = {
        "password": "a",
        "headers": {"Authorization": "x", "Accept": "text/html"},
        "items": [{"api_key": "plain"}, {"name": "DB_PASSWORD", "value": "plain"}],
        "密码": "abc",
        "cookie": ["a", "b"],
        "max_tokens": 5,
        "password_hint": "",
        "pin": None,
    }
    masked = redactor.redact_value(value)
    assert masked == {
        "password": "[REDACTED:password]",
        "headers": {"Authorization": "[REDACTED:authorization]", "Accept": "text/html"},
        "items": [{"api_key": "[REDACTED:key]"}, {"name": "DB_PASSWORD", "value": "[REDACTED:password]"}],
        "密码": "[REDACTED:password]",
        "cookie": ["[REDACTED:cookie]", "[REDACTED:cookie]"],
        "max_tokens": 5,
        "password_hint": "",
        "pin": None,
    }
    assert redactor.redact_value(masked) == masked


def test_a_secret_of_the_input_is_masked_in_the_output(redactor):
    """Input as a dict and output as text are one call."""
    _, output = redactor.redact_values({"token": KEY}, f"401 for {KEY}")
    assert output == "401 for [REDACTED:token]"


def test_extra_masks_more_and_its_failure_is_logged_once(caplog):
    """A user's function adds to the masking; where it fails, the built-in masking stands."""
    assert Redactor(extra=lambda text: text.replace("ACME", "[x]")).redact("ACME runs") == "[x] runs"

    def broken(text: str) -> str:
        raise ValueError(text)

    failing = Redactor(extra=broken)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert failing.redact(f"password={PASSWORD}") == "password=[REDACTED:password]"
    assert len(caplog.records) == 1


def test_without_the_scanner_the_patterns_still_mask(monkeypatch, caplog):
    """A scanner that cannot be loaded is logged once and lets nothing through that the patterns know."""
    from langchain_hermes_memory import redact

    monkeypatch.setitem(__import__("sys").modules, "detect_secrets.plugins.aws", None)
    redact._plugin.cache_clear()
    key = "AKIA" + "Q7" * 8
    try:
        redactor = Redactor()
        with caplog.at_level(logging.WARNING):
            assert redactor.redact(f"aws key {key}") == "aws key [REDACTED:key]"
            redactor.redact(f"aws key {key}")
    finally:
        redact._plugin.cache_clear()
    assert len([record for record in caplog.records if "AWSKeyDetector" in record.getMessage()]) == 1


def test_the_scanner_knows_formats_that_no_pattern_has(redactor):
    """The maintained scanner's own detectors are in use."""
    key = "0123456789abcdef" * 2 + "-us" + "12"
    assert redactor.redact(f"mailchimp {key}") == "mailchimp [REDACTED:key]"


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "token",
        "eyJ",
        "password=",
        "://a:",
        "-----BEGIN PRIVATE KEY-----\n",
        'password="',
        "密码是",
        "/a",
        "aws key ",
    ],
)
def test_a_megabyte_of_anything_is_finished(unit, redactor):
    """No text makes the patterns explode: a crafted one of half a megabyte comes back."""
    assert redactor.redact(unit * (500_000 // len(unit)))


def test_threads_share_a_redactor(redactor):
    """Masking in many threads gives what masking in one gives."""
    texts = [f"run {n}: password={PASSWORD}{n}; token={KEY}{n}" for n in range(40)]
    alone = [redactor.redact(text) for text in texts]
    together: list[str] = [""] * len(texts)

    def work(n: int) -> None:
        together[n] = redactor.redact(texts[n])

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone


BITS = [
    "password",
    "密码",
    "token",
    "api_key",
    ": ",
    "=",
    "是",
    " ",
    '"',
    "'",
    "\\",
    "\n",
    "://u:",
    "@",
    "[REDACTED:",
    "]",
]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.one_of(st.sampled_from([*BITS, KEY, PASSWORD, "Bearer ", "-p", "mysql "]), st.text(max_size=8))
    )
)
def test_masking_is_total_and_idempotent(bits):
    """Any text comes back, and masking it again changes nothing."""
    redactor = Redactor()
    once = redactor.redact("".join(bits))
    assert redactor.redact(once) == once


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["a", "password", "名", "token", "value", "name"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(VALUES)
def test_values_keep_their_shape(value):
    """Masking replaces leaves and nothing else, and can be repeated."""
    redactor = Redactor()
    masked = redactor.redact_value(value)
    assert type(masked) is type(value) or isinstance(masked, str)
    assert redactor.redact_value(masked) == masked
    json.dumps(masked)
