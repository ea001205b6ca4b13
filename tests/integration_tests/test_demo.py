"""The demonstration runs without a network and shows every stage."""

import io
import os
import string
import subprocess
import sys

import pytest
from rich.console import Console

from langchain_hermes_memory.demo import Demo, Disk, play, words
from langchain_hermes_memory.testing import ScriptedChatModel

SHOWN = {
    "en": (
        "scripted chat model",
        '"status": "failure"',
        "-22 accident",
        "3 of 3 candidates for: clean up the temporary files",
        "the block that the model saw",
        "what a naive memory would have given",
        "an accident: it can work next time",
        "+21 blocked_dangerous",
        "Solved since",
        "这是有意设置的限制",
        "(nothing: an empty block)",
    ),
    "zh": (
        "按脚本回答的聊天模型",
        '"status": "failure"',
        "-22 accident",
        "模型看到的内容",
        "普通记忆会给出的内容",
        "下次也许就好",
        "+21 blocked_dangerous",
        "\uff08没有内容\uff1a空\uff09",
    ),
}


def run(*arguments):
    command = [sys.executable, "-m", "langchain_hermes_memory.demo", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "118"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def flat(text):
    """Return a text without frames and line breaks: what matters is what is said, not where it wraps."""
    return " ".join(text.translate(str.maketrans("│┃", "  ")).split())


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_demonstration_runs(lang):
    """Record, score, what was recalled, the block of the model and that of a naive memory."""
    done = run("--lang", lang)
    assert done.returncode == 0, done.stderr
    assert "The memory failed" not in done.stderr
    assert [piece for piece in SHOWN[lang] if piece not in flat(done.stdout)] == []
    assert done.stdout.count("/srv/reports: 3 files" if lang == "en" else "/srv/reports\uff1a3 个文件") == 5


def test_a_model_that_cannot_be_had_is_one_line():
    """Exit code 1 and what to do, no traceback."""
    done = run("--model", "nobody:nothing")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("Error: The model 'nobody:nothing' cannot be used:")
    assert done.stderr.count("\n") == 1


def test_a_planner_may_call_no_tool(tmp_path):
    """A real model decides for itself; the demonstration goes on."""
    console = Console(file=io.StringIO(), width=118)
    demo = Demo(tmp_path, lambda _: ScriptedChatModel(script=["I would rather not."]), words("en"), console)
    play(demo)
    demo.memory.close()
    assert console.file.getvalue().count("called no tool") == 2


def test_both_languages_say_the_same():
    """The same keys with the same fields."""
    fields = [
        {
            key: {name for _, name, _, _ in string.Formatter().parse(text) if name}
            for key, text in words(lang).items()
        }
        for lang in ("en", "zh")
    ]
    assert fields[0] == fields[1]


def test_no_tool_leaves_the_scratch_folder(tmp_path):
    """A real model may give any path; what lies outside stays as it is."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "letter.txt").write_text("dear", "utf-8")
    disk = Disk(tmp_path / "disk")
    disk.fill("/tmp/cache")
    (tmp_path / "disk" / "tmp" / "link").symlink_to(tmp_path / "outside")
    tools = {tool.name: tool for tool in disk.tools()}
    for path in ("../outside", "/tmp/../../outside", "/tmp/link", str(tmp_path / "outside"), "/srv/reports"):
        assert tools["clean_folder"].invoke({"path": path}).startswith("ERROR"), path
        assert "letter" not in tools["list_folder"].invoke({"path": path}), path
        assert "ERROR" in tools["run_command"].invoke({"command": f"rm -rf {path}"}), path
    assert tools["clean_folder"].invoke({"path": "/tmp/cache"}).startswith("SUCCESS")
    assert (tmp_path / "outside" / "letter.txt").read_text("utf-8") == "dear"
