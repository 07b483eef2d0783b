"""An arbiter for tests: units go in, and what it did comes back as short texts."""

from __future__ import annotations

from dataclasses import dataclass, field

from sync.arbitration_lines import VERSION, A, Unit, data
from sync.arbitration_streams import MS, raw_units

from umdf.sync.arbitration.arbiter import ArbitrationResult, LineArbiter, StepKind


@dataclass
class Feed:
    """An arbiter and all its results as short values."""

    arbiter: LineArbiter
    results: list[ArbitrationResult] = field(default_factory=list)

    def add(self, *units: Unit, now: float | None = None) -> list[str]:
        self.results.append(self.arbiter.arbitrate(raw_units(list(units)), int((now or units[-1].ts_recv / MS) * MS)))
        return self.log()

    def finish(self) -> list[str]:
        self.results.append(self.arbiter.finish())
        return self.log()

    def log(self) -> list[str]:
        """Of the last call: "x5" is a unit, "x5*" a late one, "GAP 6-7" a step."""
        result, found = self.results[-1], []
        steps = list(result.steps)
        for row in range(len(result.units) + 1):
            while steps and steps[0].before_row == row:
                step = steps.pop(0)
                where = f"{step.first}" if step.first == step.last else f"{step.first}-{step.last}"
                of = f" of {step.epoch}" if step.kind == StepKind.EPOCH else ""
                found.append(f"{step.kind.name} {where}{of}")
            if row < len(result.units):
                content = result.units.buffer[result.units.start[row] : result.units.end[row]].tobytes().decode()
                found.append(content + "*" * bool(result.is_late[row]))
        return found

    def total(self, name: str) -> int:
        return sum(getattr(result.counts, name) for result in self.results)


def many(first: int, last: int, ms: float, line: int = A, epoch: int = VERSION, name: str = "x") -> list[Unit]:
    return [data(number, ms, line, epoch, name) for number in range(first, last + 1)]
