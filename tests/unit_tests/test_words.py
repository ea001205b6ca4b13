"""Search terms: whole identifiers beside their parts, stemmed words, pairs of CJK characters."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_hermes_memory.words import MAX_TERM_CHARS, MAX_TERMS, terms


@pytest.mark.parametrize(
    "identifier",
    [
        "/tmp/cache_backup",
        "/tmp/cache-old",
        "/tmp/cache2",
        "/etc/nginx/conf.d",
        "~/.ssh/id_rsa",
        "../shared/build",
        "c:\\users\\bob\\notes.txt",
        "https://api.example.com:8443/v1/users?id=12",
        "postgres://db.internal/orders",
        "db-01.internal",
        "localhost:5432",
        "path_not_found",
        "e-1234",
        "ora-00942",
        "snake_case_name",
        "pkg.module.attribute",
        "2.13.0",
        "ops@example.com",
        "404",
        "42",
        "src/app.py:17",
    ],
)
def test_an_identifier_is_one_whole_term(identifier: str) -> None:
    """Paths, URLs, hosts, codes, names, versions and numbers stay whole, in either case and amid Chinese."""
    for text in (
        f"see {identifier}, please",
        f"见{identifier}。",
        f"({identifier.upper()})",
        f"'{identifier}':",
    ):
        assert identifier in terms(text)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("/tmp/cache_backup", {"tmp", "cache_backup", "backup"}),
        ("https://api.example.com/v1/users", {"api.example.com", "/v1/users", "v1"}),
        ("FileNotFoundError", {"filenotfounderror", "file", "not", "found", "error"}),
        ("src/app.py:17", {"src/app.py", "app.py", "17"}),
        ("timeout=30&path=/srv/x1", {"timeout", "30", "/srv/x1"}),
    ],
)
def test_an_identifier_is_also_found_by_its_parts(text: str, parts: set[str]) -> None:
    """The parts of an identifier are terms beside the whole."""
    assert parts <= set(terms(text))


def test_a_code_in_capitals_is_found_in_small_letters() -> None:
    """A code of letters alone is a whole term, and meets the same word in small letters."""
    assert "econnrefused" in terms("ECONNREFUSED")
    assert set(terms("ECONNREFUSED")) & set(terms("econnrefused"))


def test_look_alike_paths_share_no_whole() -> None:
    """A path is no term of its look-alike."""
    assert "/tmp/cache" not in terms("rm -rf /tmp/cache_backup /tmp/cache-old /tmp/cache2")


def test_punctuation_does_not_change_an_identifier() -> None:
    """Quotes, full stops, brackets and a trailing slash do not belong to a path."""
    wanted = terms("/var/log/app")
    for text in (
        "/var/log/app/",
        "/var/log/app.",
        '"/var/log/app"',
        "(/var/log/app)",
        "`/var/log/app`,",
        "/var/log/app：",
    ):
        assert terms(text) == wanted


def test_inflected_words_meet() -> None:
    """English words are compared by their stems."""
    assert terms("Cleaning failed directories") == terms("cleaned fails directory")


def test_chinese_runs_as_pairs() -> None:
    """Chinese comes as overlapping pairs, cut at particles; a lone character stands for itself."""
    assert terms("清理临时文件") == ["清理", "理临", "临时", "时文", "文件"]
    assert terms("清理了缓存") == ["清理", "缓存"]
    assert terms("a 猫 b") == ["猫"]


def test_words_without_meaning_are_left_out() -> None:
    """Stop words yield no term, negations do."""
    assert terms("What is it that we should do about the") == []
    assert terms("我们可以") == []
    assert terms("not found") == ["not", "found"]


def test_full_width_forms_meet_plain_ones() -> None:
    """Compatibility forms are the characters that they stand for."""
    assert terms("ＡＢＣ１２３　ｅｒｒｏｒ") == terms("ABC123 error")


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=400))
def test_any_text_yields_clean_terms(text: str) -> None:
    """Whatever the text, terms come without raising, the same each time, short, without spaces and NUL."""
    found = terms(text)
    assert found == terms(text)
    for term in found:
        assert 0 < len(term) <= MAX_TERM_CHARS
        assert not any(char.isspace() or char == "\0" for char in term)
        term.encode()


@pytest.mark.parametrize(
    "unit", ["a", "中", "/tmp/", "http://", "a-", "x:", "Aa", "1.", "a b_c ", "\\", "?&="]
)
def test_a_huge_text_is_bounded(unit: str) -> None:
    """A megabyte of anything yields a bounded number of terms."""
    assert len(terms(unit * (1_000_000 // len(unit)))) <= MAX_TERMS


def test_long_identifiers_stay_apart() -> None:
    """Identifiers that differ only beyond the length of a term are different terms."""
    long = "/srv/" + "x" * 300
    assert terms(f"{long}/a1")[0] != terms(f"{long}/b1")[0]
    assert terms(f"{long}/a1") == terms(f"({long}/a1).")


def test_threads_do_not_disturb_each_other() -> None:
    """The stemmer keeps state; terms from many threads are those from one."""
    texts = [f"running jobs{n} failed connections timeouts{n} directories" for n in range(200)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(terms, texts)) == [terms(text) for text in texts]
