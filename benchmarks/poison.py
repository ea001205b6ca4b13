"""Measures what planted instructions get through: `python -m benchmarks.poison --data payloads.jsonl`.

An attack is caught when something was cut out of the output; its payload survives when it still stands in
what is left. A benign output must stay whole. Families named `sensitive_data` hold no orders but secrets:
there the redactor is what must catch them.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks._common import parser, print_last_line, read_lines
from langchain_hermes_memory.redact import Redactor
from langchain_hermes_memory.untrusted import defuse

MARK = "[cut]"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all outputs and print the figures."""
    options = parser(__doc__ or "")
    options.add_argument(
        "--verbose", action="store_true", help="show what was missed and what was cut falsely"
    )
    given = options.parse_args(arguments)
    redactor = Redactor()
    families: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    survived = 0
    started = time.perf_counter()
    for item in read_lines(given.data):
        caught, left = treat(item, redactor)
        family = f"{item['label']}:{item['family']}"
        families[family][0] += caught
        families[family][1] += 1
        survived += item["label"] == "attack" and bool(item["payload"]) and item["payload"] in left
        if given.verbose and caught != (item["label"] == "attack"):
            print(f"{family}: {item['payload'] or left[:300]!r}")
    seconds = time.perf_counter() - started
    if not given.json:
        for family, (caught, of) in sorted(families.items()):
            print(f"{family:50} {caught:3} of {of:3} cut")
    print_last_line({**figures(families), "payloads_survived": survived, "seconds": seconds})


def treat(item: Mapping[str, Any], redactor: Redactor) -> tuple[bool, str]:
    """Return whether something was cut out of an output, and what is left."""
    output = item["tool_output"]
    if item["family"].startswith("sensitive_data"):
        left = redactor.redact(output)
        return left != output, left
    left, cut = defuse(output, MARK)
    return cut, left


def figures(families: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Return caught and total of attacks, false cuts and total of benign outputs."""
    of: dict[str, list[int]] = {"attack": [0, 0], "benign": [0, 0]}
    for family, (caught, total) in families.items():
        kind = of[family.split(":")[0]]
        kind[0] += caught
        kind[1] += total
    (caught, attacks), (false, benign) = of["attack"], of["benign"]
    return {"caught": caught, "attacks": attacks, "false_cuts": false, "benign": benign}


if __name__ == "__main__":
    main()
