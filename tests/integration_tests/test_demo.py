"""The demonstration runs without a network and shows every stage."""

import os
import subprocess
import sys


def test_the_demonstration_runs():
    """Record, explanation, what was recalled, the block of the model and that of a naive memory."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "langchain_hermes_memory.demo"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    for piece in (
        "scripted chat model",
        '"status": "failure"',
        "accident",
        "candidates for",
        "what the model saw",
        "a naive memory",
        "Solved since",
        "这是有意设置的限制",
        "still holds its 3 files",
        "-> ''",
    ):
        assert piece in done.stdout
