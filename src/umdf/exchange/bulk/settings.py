"""The settings of a bulk capture, checked before anything is written."""

from __future__ import annotations

from dataclasses import dataclass

from umdf.errors import UsageError, one_of
from umdf.exchange.publish.channel_settings import FAST, POSITION, PRIORITY, SBE, ChannelSettings

BOTH = "both"
MIN_INSTRUMENTS, MAX_INSTRUMENTS, MIN_MESSAGES_PER_INSTRUMENT = 10, 60_000, 40
SECOND_NS = 1_000_000_000
TRADING_DATE = 20_770  # days since 1970: 2026-11-13, a Friday
DAY_NS = 86_400 * SECOND_NS
HEARTBEAT_MS = 1_000  # of both protocols: a day is short


@dataclass(frozen=True)
class BulkSettings:
    messages: int  # of the incremental stream, as Binary counts them; the day's fixed messages come on top
    instruments: int = 5_000
    protocol: str = SBE
    generation: str = PRIORITY
    lines: str = "AB"
    loss: float = 0.0  # fraction of incremental packets lost on each line; some are lost on both
    seed: int = 1
    channel: int = 72
    channel_reset: bool = False
    real_time: bool = False
    rate: int = 5_000  # average messages per simulated second
    roll_bytes: int = 256 << 20
    roll_s: int = 600  # of the simulated clock
    trading_date: int = TRADING_DATE
    snapshot_loops: int = 12  # of the day, if it has enough messages

    def __post_init__(self) -> None:
        _require_choice("--protocol", self.protocol, (SBE, FAST, BOTH))
        _require_choice("--generation", self.generation, (PRIORITY, POSITION))
        _require_choice("--lines", self.lines, ("A", "AB"))
        _require_range("--instruments", self.instruments, MIN_INSTRUMENTS, MAX_INSTRUMENTS)
        _require_range("--loss", self.loss, 0, 0.5)
        _require_range("--seed", self.seed, 0, (1 << 63) - 1)
        _require_range("--rate", self.rate, 10, 1_000_000)
        _require_range("--channel", self.channel, 1, 255)
        _require_range("--roll-bytes", self.roll_bytes, 1, 1 << 40)
        _require_range("--roll-s", self.roll_s, 1, 86_400)
        _require_range("--snapshot-loops", self.snapshot_loops, 1, 86_400)
        minimum = MIN_MESSAGES_PER_INSTRUMENT * self.instruments
        if self.messages < minimum:
            hint = f"use at least {minimum}, or fewer instruments"
            raise UsageError(f"too few messages for {self.instruments} instruments: {self.messages}", hint)

    @property
    def protocols(self) -> tuple[str, ...]:
        return (SBE, FAST) if self.protocol == BOTH else (self.protocol,)

    def channel_settings(self, protocol: str) -> ChannelSettings:
        return ChannelSettings(self.channel, protocol, self.generation, lines=self.lines, heartbeat_ms=HEARTBEAT_MS)

    @property
    def midnight_ns(self) -> int:
        return self.trading_date * DAY_NS


def _require_choice(option: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UsageError(f"invalid {option}: {value}", f"use {one_of(choices)}")


def _require_range(option: str, value: float, minimum: float, maximum: float) -> None:
    if not minimum <= value <= maximum:
        raise UsageError(f"{option} out of range: {value}", f"use {minimum} to {maximum}")
