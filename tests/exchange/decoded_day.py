"""A simulated day, decoded once for all tests that look at it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exchange.reference_client import Client, Op, messages_of, ops_of_fast, ops_of_sbe

from umdf.exchange.bulk.capture import Summary, write_capture
from umdf.exchange.bulk.settings import BulkSettings


@dataclass
class Day:
    directory: Path
    settings: BulkSettings
    summary: Summary
    protocol: str
    _messages: dict[tuple[str, str], list[Any]] = field(default_factory=dict)
    _decoded: dict[str, list[tuple[Any, list[Op]]]] = field(default_factory=dict)

    def messages(self, line: str = "A", stream: str = "incremental") -> list[Any]:
        if (stream, line) not in self._messages:
            self._messages[stream, line] = list(messages_of(self.directory, self.protocol, stream, line))
        return self._messages[stream, line]

    def decoded(self, stream: str = "incremental") -> list[tuple[Any, list[Op]]]:
        """Each message of line A, and what it does."""
        if stream not in self._decoded:
            ops_of = {"sbe": ops_of_sbe, "fast": ops_of_fast}[self.protocol]
            self._decoded[stream] = [(message, list(ops_of(message))) for message in self.messages(stream=stream)]
        return self._decoded[stream]

    def client(self) -> Client:
        client = Client(self.settings.generation == "position")
        for _, ops in self.decoded("instruments"):
            for op in ops:
                client.take(op, self.protocol)
        return client


def write(directory: Path, protocol: str, generation: str, **more: Any) -> Day:
    options: dict[str, Any] = {"messages": 8_000, "instruments": 24, "rate": 1_000, **more}
    settings = BulkSettings(protocol=protocol, generation=generation, **options)
    return Day(directory, settings, write_capture(settings, directory), protocol)
