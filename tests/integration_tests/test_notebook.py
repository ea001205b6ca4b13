"""The quickstart notebook runs from top to bottom and shows what it promises."""

from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "quickstart.ipynb"


def test_the_quickstart_runs(tmp_path):
    """Blocks in both languages, and tables for the explanations."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = "\n".join(str(cell.get("outputs", "")) for cell in notebook.cells)
    assert "Lessons from failures" in shown
    assert "Solved since" in shown
    assert "以往执行的记忆" in shown
    assert shown.count("<table>") == 2


def test_the_notebook_is_kept_without_outputs():
    """Nothing of the machine that it last ran on."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)
