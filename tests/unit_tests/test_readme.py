"""The README tells the truth: its settings are those that there are, its code runs."""

import re
from pathlib import Path

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool

from langchain_hermes_memory import HermesMemory
from langchain_hermes_memory.settings import Settings
from langchain_hermes_memory.testing import ScriptedChatModel

README = Path(__file__).parents[2] / "README.md"
TEXT = README.read_text("utf-8")
RULES = (README.parent / "docs" / "outcome-rules.md").read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT + RULES, re.MULTILINE | re.DOTALL)
OWN_RULES = re.findall(r"^```toml\n(.*?)^```", RULES, re.MULTILINE | re.DOTALL)


@tool
def clean_folder(path: str) -> str:
    """Delete all files in a folder."""
    return f"SUCCESS: cleaned {path}"


def settings_table():
    """The settings as a table of Markdown."""
    rows = ["| setting | default | allowed | meaning |", "|---|---|---|---|"]
    for row in Settings.describe():
        cells = (f"`{row.name}`", f"`{row.default}`", row.allowed, row.meaning)
        rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(rows)


def test_the_settings_are_listed():
    """With default, range and meaning, as the model has them."""
    found = re.search(r"<!-- settings -->\n(.*?)\n?<!-- /settings -->", TEXT, re.DOTALL)
    assert found[1] == settings_table(), f"the table should be:\n{settings_table()}"


def told(embeddings, clock):
    """What a model is told after an accident, and after the same action has worked."""
    answers = (
        "ERROR: failed to clean /tmp/cache: path does not exist",
        "SUCCESS: cleaned /tmp/cache, 3 files removed",
    )
    call = {"name": "clean_folder", "args": {"path": "/tmp/cache"}}
    with HermesMemory(embeddings=embeddings, clock=clock) as memory:
        for answer in answers:
            cleaning = clean_folder.model_copy(update={"func": lambda path, answer=answer: answer})
            model = ScriptedChatModel(script=[call, "Done."])
            agent = create_agent(model, [cleaning], middleware=[memory.middleware()])
            agent.invoke({"messages": [("user", "clean up /tmp/cache")]})
            clock.advance(minutes=2)
            yield f"```text\n{memory.context('clean up the temporary files')}\n```"


def test_the_blocks_are_real(offline_embeddings, clock):
    """What the README shows is what a model is told, letter by letter."""
    blocks = "\n\n".join(told(offline_embeddings, clock))
    found = re.search(r"<!-- blocks -->\n(.*?)\n?<!-- /blocks -->", TEXT, re.DOTALL)
    assert found[1] == blocks, f"the blocks should be:\n{blocks}"


@pytest.mark.parametrize("code", BLOCKS, ids=range(len(BLOCKS)))
def test_the_examples_run(code, tmp_path, monkeypatch):
    """Each by itself, with a scripted model in place of a real one."""
    monkeypatch.chdir(tmp_path)
    call = {"name": "clean_folder", "args": {"path": "/tmp/cache"}}
    (tmp_path / "own.toml").write_text(OWN_RULES[0], "utf-8")
    scope = {"model": ScriptedChatModel(script=[call, "Done."]), "tools": [clean_folder]}
    exec(compile(code, str(README), "exec"), scope)
    for value in scope.values():
        if type(value).__name__ == "HermesMemory":
            value.close()
    assert {child.name for child in tmp_path.iterdir()} == {"memory", "own.toml"}
