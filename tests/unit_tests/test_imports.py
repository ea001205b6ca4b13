"""What importing costs, and what the wheel holds."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "langchain_community", "langchain_classic", "chromadb", "langgraph", "sqlglot", "tiktoken")


def loaded_by(code):
    """Return which heavy packages a piece of code loads."""
    ask = f"{code}\nimport sys; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout.strip()


def test_the_package_alone_loads_nothing_heavy():
    """Public names come on first use."""
    assert loaded_by("import langchain_hermes_memory") == "[]"


def test_the_facade_loads_no_framework():
    """Agents' frameworks and Chroma come with the adapter or the store that needs them."""
    assert loaded_by("from langchain_hermes_memory import HermesMemory") == "[]"


def test_public_names_are_there():
    """All that the package lists, and an error for what it does not."""
    import langchain_hermes_memory as package

    for name in package.__all__:
        assert getattr(package, name).__name__ == name
    assert dir(package) == package.__all__
    assert not hasattr(package, "nonsense")


def test_the_wheel_holds_the_data(tmp_path):
    """Rules, texts and the mark for type checkers."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, check=True, cwd=ROOT, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = {
        name.removeprefix("langchain_hermes_memory/")
        for name in zipfile.ZipFile(wheel).namelist()
        if name.startswith("langchain_hermes_memory/")
    }
    package = ROOT / "langchain_hermes_memory"
    data = {f"{file.parent.name}/{file.name}" for file in package.glob("*/*.toml")}
    assert data | {"py.typed"} <= names
    assert not any(name.startswith(("tests/", "benchmarks/")) for name in zipfile.ZipFile(wheel).namelist())
