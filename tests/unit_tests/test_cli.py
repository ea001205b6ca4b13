"""The command line, on a real store."""

import pytest
from typer.testing import CliRunner

from langchain_hermes_memory import HermesMemory
from langchain_hermes_memory.cli import app

runner = CliRunner()


@pytest.fixture
def store(tmp_path, offline_embeddings):
    with HermesMemory(tmp_path / "store", embeddings=offline_embeddings) as memory:
        memory.remember("the orders database listens on port 6543")
    return str(tmp_path / "store")


def test_stats(store):
    """Numbers by kind."""
    result = runner.invoke(app, ["stats", store])
    assert result.exit_code == 0, result.output
    assert "type.note" in result.output


def test_recall(store):
    """The block, or a line that says that there is none."""
    assert "6543" in runner.invoke(app, ["recall", store, "which port do orders use"]).output
    assert "Nothing relevant" in runner.invoke(app, ["recall", store, "thanks!"]).output
    assert "6543" not in runner.invoke(app, ["recall", store, "which port", "--user", "bob"]).output


def test_explain(store):
    """Every candidate with its reasons; a memory by its handle."""
    assert "candidates for" in runner.invoke(app, ["recall", store, "which port", "--explain"]).output
    assert "importance" in runner.invoke(app, ["recall", store, "M1", "--explain"]).output


def test_recent(store):
    """The newest records of a session; for a session without any, a line that says so."""
    shown = runner.invoke(app, ["recent", store])
    assert shown.exit_code == 0, shown.output
    assert "6543" in shown.output
    assert (
        "no record of session 'other'" in runner.invoke(app, ["recent", store, "--session", "other"]).output
    )
    assert "6543" not in runner.invoke(app, ["recent", store, "--user", "bob"]).output


def test_text_of_records_is_no_markup(tmp_path, offline_embeddings):
    """What looks like markup of the console is shown as it is."""
    with HermesMemory(tmp_path, embeddings=offline_embeddings) as memory:
        memory.remember("the log says [/red] at the end")
    assert "[/red]" in runner.invoke(app, ["recent", str(tmp_path)]).output


def test_reembed(store):
    """The number of memories is told."""
    result = runner.invoke(app, ["reembed", store])
    assert "1 memories are indexed" in result.output


@pytest.mark.parametrize("command", [["stats"], ["recall", "x"], ["recent"], ["reembed"]])
def test_errors_are_one_line(tmp_path, command):
    """No traceback, exit code 1."""
    result = runner.invoke(app, [command[0], str(tmp_path / "none"), *command[1:]])
    assert result.exit_code == 1
    assert "Traceback" not in result.output
    assert "Error:" in result.output


@pytest.mark.parametrize("command", [["stats"], ["recall", "x"], ["recent"], ["reembed"]])
def test_a_bad_setting_is_one_line(store, command, monkeypatch):
    """Whichever command reads it."""
    monkeypatch.setenv("HERMES_MEMORY_INDEX_BATCH", "many")
    result = runner.invoke(app, [command[0], store, *command[1:]])
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert result.output.count("\n") == 1


def test_an_unknown_handle_is_one_line(store):
    """Asked for by --explain."""
    result = runner.invoke(app, ["recall", store, "M99", "--explain"])
    assert result.exit_code == 1
    assert "no memory 'M99'" in result.output
