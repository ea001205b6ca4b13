"""What all benchmarks share: their options, reading JSON lines, and the last line."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def parser(description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that every benchmark has: `--data` and `--json`."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--data", type=Path, help="file with the labelled cases (JSON lines)")
    options.add_argument("--json", action="store_true", help="print nothing but the last line")
    return options


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file of JSON lines."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def print_last_line(figures: Mapping[str, Any]) -> None:
    """Print the figures as one line of JSON, floats to four places."""
    print(json.dumps(_rounded(figures), ensure_ascii=False))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    return value
