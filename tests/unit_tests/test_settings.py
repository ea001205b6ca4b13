"""Settings: where they come from, which wins, and what a mistake says."""

import pytest

from langchain_hermes_memory.errors import ConfigurationError
from langchain_hermes_memory.settings import Settings


def test_arguments_beat_environment_beats_file_beats_default(tmp_path, monkeypatch):
    """The order of precedence."""
    file = tmp_path / "hermes.toml"
    file.write_text("k = 7\nfetch_k = 70\nbudget_tokens = 700\n", "utf-8")
    monkeypatch.setenv("HERMES_MEMORY_K", "8")
    monkeypatch.setenv("HERMES_MEMORY_FETCH_K", "80")
    settings = Settings.load(file, k=9)
    assert (settings.k, settings.fetch_k, settings.budget_tokens, settings.half_life_days) == (9, 80, 700, 60)


def test_a_table_of_a_larger_file(tmp_path):
    """Only the table of that name is read."""
    file = tmp_path / "app.toml"
    file.write_text("[other]\nk = 'x'\n[hermes_memory]\nk = 3\n", "utf-8")
    assert Settings.load(file).k == 3


@pytest.mark.parametrize("value", ["backup,pay_*", '["backup", "pay_*"]'])
def test_a_list_in_the_environment(monkeypatch, value):
    """With commas or as JSON."""
    monkeypatch.setenv("HERMES_MEMORY_CRITICAL_TOOLS", value)
    assert Settings().critical_tools == ("backup", "pay_*")


@pytest.mark.parametrize(
    ("values", "said"),
    [({"k": 0}, "k"), ({"tone": "loud"}, "tone"), ({"budget_tokens": "many"}, "budget_tokens")],
)
def test_a_bad_value_is_named(values, said):
    """With the setting that has it."""
    with pytest.raises(ConfigurationError, match=said):
        Settings(**values)


def test_a_mistyped_name_gets_a_suggestion():
    """The nearest name there is."""
    with pytest.raises(ConfigurationError, match="budget_tokens"):
        Settings(budget_token=5)


@pytest.mark.parametrize("content", ["k = ", "hermes_memory = 3\n", "k = 0\n"])
def test_a_bad_file_is_named(tmp_path, content):
    """With its path."""
    file = tmp_path / "bad.toml"
    file.write_text(content, "utf-8")
    with pytest.raises(ConfigurationError, match=r"bad\.toml"):
        Settings.load(file)


def test_a_missing_file_is_named(tmp_path):
    """No silent defaults."""
    with pytest.raises(ConfigurationError, match=r"none\.toml"):
        Settings.load(tmp_path / "none.toml")


def test_a_bad_variable_is_named(monkeypatch):
    """As the variable that it is."""
    monkeypatch.setenv("HERMES_MEMORY_K", "many")
    with pytest.raises(ConfigurationError, match="HERMES_MEMORY_K"):
        Settings()


def test_every_setting_is_described():
    """Default, allowed values and meaning."""
    rows = Settings.describe()
    assert {row.name for row in rows} == set(Settings.model_fields)
    assert all(row.allowed and row.meaning for row in rows)
