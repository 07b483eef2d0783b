"""[replayer] and [historical_replayer] of `exchange.toml`.

[replayer]
address = "127.0.0.1:30001"
comp_id = "REPLAYER"           # its SenderCompID
clients = ["CLIENT"]           # CompIDs that may log on; absent: everyone
retention = "session"          # session, week or two-days (5.2 items 1 and 2; certification D3.4)
available_after_ms = 25        # after publication
"""

from __future__ import annotations

from typing import Any

from umdf.errors import ConfigError
from umdf.exchange.replayer.retention import SESSION, WEEK, Profile
from umdf.exchange.replayer.server import ReplayerSettings
from umdf.exchange.replayer.service import AVAILABLE_AFTER_MS
from umdf.transport.channels_file import HISTORICAL_REPLAYER, REPLAYER, ReplayerAddresses

DEFAULT_RETENTION = {REPLAYER: SESSION, HISTORICAL_REPLAYER: WEEK}
TYPES: dict[str, type | tuple[type, ...]] = {
    "address": str, "comp_id": str, "clients": list, "retention": str, "available_after_ms": int,
}  # fmt: skip
ANY_CLIENT = "CLIENT"  # what a client of a replayer that knows none may call itself


def replayer_settings(name: str, table: dict[str, Any]) -> ReplayerSettings:
    """The settings of a replayer, whose types have been checked."""
    for key in ("address", "comp_id"):
        if not table.get(key):
            raise ConfigError(f"{name} has no {key}", f'add {key} = "{"127.0.0.1:30001" if key == "address" else "R"}"')
    host, _, port = table["address"].rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise ConfigError(f"{name}.address: not an address: {table['address']}", 'write "127.0.0.1:30001"')
    clients = table.get("clients", [])
    if not all(isinstance(client, str) and client for client in clients):
        raise ConfigError(f"{name}.clients is not a list of CompIDs: {clients}", 'write ["CLIENT"]')
    after_ms = table.get("available_after_ms", AVAILABLE_AFTER_MS)
    if not 0 <= after_ms <= 60_000:
        raise ConfigError(f"{name}.available_after_ms out of range: {after_ms}", "use 0 to 60000")
    retention = Profile(table.get("retention", DEFAULT_RETENTION[name])).name
    return ReplayerSettings((host, int(port)), table["comp_id"], frozenset(clients), retention, after_ms)


def client_addresses(settings: ReplayerSettings) -> ReplayerAddresses:
    """What a client needs to log on."""
    client = min(settings.clients, default=ANY_CLIENT)
    return ReplayerAddresses(client, settings.comp_id, (settings.address,))
