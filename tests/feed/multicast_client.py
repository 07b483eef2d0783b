"""Run in a network namespace of its own, which has no way out: an exchange sends over multicast, its lines A and B on
two interfaces, and a client joins late. Run by `test_multicast.py`."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

from feed.live_exchange import CheckedClient, LiveMarket, addresses_of

from umdf.exchange.network.faults import Faults
from umdf.exchange.publish.channel_settings import FAST, SBE, ChannelSettings, Members
from umdf.feed.live import Live
from umdf.transport.channels_file import ChannelAddresses

INTERFACES = {"A": "10.82.0.1", "B": "10.82.1.1"}
GROUPS = {"A": "239.255.82.1", "B": "239.255.82.2"}


def set_up() -> None:
    for line, address in INTERFACES.items():
        for command in (
            f"link add line{line} type veth peer name end{line}",
            f"addr add {address}/24 dev line{line}",
            f"link set line{line} up multicast on",
            f"link set end{line} up",
        ):
            subprocess.run(["ip", *command.split()], check=True, capture_output=True)
    subprocess.run("ip link set lo up".split(), check=True, capture_output=True)


def on_two_interfaces(channel: ChannelAddresses, interfaces: dict[str, str]) -> ChannelAddresses:
    streams = {
        stream: tuple(replace(where, address=GROUPS[where.line], interface=interfaces[where.line]) for where in lines)
        for stream, lines in channel.streams.items()
    }
    return replace(channel, streams=streams)


EQUITIES = Members(("CS", "PS", "ETF"))
CHANNELS = (ChannelSettings(72, SBE, members=EQUITIES), ChannelSettings(72, FAST, members=EQUITIES))


def main() -> None:
    try:
        set_up()
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"cannot set up interfaces: {error}")
        sys.exit(77)
    addresses = tuple(on_two_interfaces(channel, INTERFACES) for channel in addresses_of(CHANNELS))
    market = LiveMarket(CHANNELS, Faults(loss=0.05, common_loss=0.005), addresses=addresses)
    market.run_alone(31)
    with CheckedClient(market) as client:
        client.run(1)
        client.catch_up()
        client.assert_equal_to_the_exchange()
        for feed in client.feeds:
            qualities = feed.totals.lines.values()
            assert len(qualities) == 2 and all(each.delivered + each.duplicates > 10 for each in qualities)
    # On the wrong interfaces, nothing of the groups is received.
    crossed = {"A": INTERFACES["B"], "B": INTERFACES["A"]}
    with Live([on_two_interfaces(channel, crossed) for channel in market.settings.addresses]) as live:
        market.run_alone(0.5)
        live.poll(0.2)
        assert [status.packets for status in live.status()] == [0, 0]
    print("received by interface")


if __name__ == "__main__":
    main()
