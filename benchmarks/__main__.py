"""`make bench`: every measurement, as a table of ratios with their targets."""

from __future__ import annotations

import sys
from types import ModuleType

from benchmarks import book, capture, exchange, fast, replay, sbe, start
from benchmarks.measure import Result

ROOMS: dict[str, ModuleType] = {
    "sbe": sbe,
    "fast": fast,
    "book": book,
    "capture": capture,
    "exchange": exchange,
    "replay": replay,
    "start": start,
}


def main(wanted: list[str]) -> int:
    unknown = set(wanted) - ROOMS.keys()
    if unknown:
        print(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(ROOMS)}", file=sys.stderr)
        return 2
    missed = 0
    print(f"{'what':<42} {'ratio':>8}  {'of what':<22} {'target':>8}      figure")
    for name in wanted or ROOMS:
        for result in ROOMS[name].run():
            print(_line(result), flush=True)
            missed += not result.met
    print(f"{missed} missed" if missed else "all targets met")
    return 0


def _line(result: Result) -> str:
    target = "" if result.target is None else f"{'≥' if result.at_least else '≤'} {result.target:g}"
    mark = "  " if result.target is None else "✓ " if result.met else "✗ "
    return f"{result.name:<42} {result.ratio:>8.2f}  {result.unit:<22} {target:>8}  {mark}  {result.figure}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
