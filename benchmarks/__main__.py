"""`make bench`: every measurement, as a table of ratios with their targets."""

from __future__ import annotations

import sys
from types import ModuleType

from benchmarks import book, capture, exchange, fast, orders, receive, replay, replayer, sbe, start, trust, wire
from benchmarks.measure import Result

SUITES: dict[str, ModuleType] = {
    "sbe": sbe,
    "fast": fast,
    "book": book,
    "capture": capture,
    "exchange": exchange,
    "orders": orders,
    "replay": replay,
    "receive": receive,
    "replayer": replayer,
    "start": start,
    "trust": trust,
    "wire": wire,
}


def main(names: list[str]) -> int:
    unknown = set(names) - SUITES.keys()
    if unknown:
        print(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}", file=sys.stderr)
        return 2
    missed_targets = 0
    print(f"{'what':<42} {'ratio':>8}  {'of what':<22} {'target':>8}      figure")
    for name in names or SUITES:
        for result in SUITES[name].run():
            print(_line(result), flush=True)
            missed_targets += not result.met
    print(f"{missed_targets} missed" if missed_targets else "all targets met")
    return 0


def _line(result: Result) -> str:
    target = "" if result.target is None else f"{'≥' if result.at_least else '≤'} {result.target:g}"
    mark = "  " if result.target is None else "✓ " if result.met else "✗ "
    return f"{result.name:<42} {result.ratio:>8.2f}  {result.unit:<22} {target:>8}  {mark}  {result.figure}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
