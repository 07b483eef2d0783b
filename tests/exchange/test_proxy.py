"""The faulty network between an exchange and a client, over real sockets."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import numpy as np

from umdf.cli.app import run
from umdf.exchange.network.faults import Faults, Outage
from umdf.exchange.network.proxy import FaultyProxy, ProxySettings
from umdf.exchange.replayer.history import ChannelHistory
from umdf.exchange.replayer.retention import WEEK, Profile
from umdf.exchange.replayer.server import ReplayerServer, ReplayerSettings
from umdf.exchange.replayer.service import ReplayService, ReplaySettings
from umdf.feed.feed_lines import ChannelKey
from umdf.feed.replay_source import ReplaySource
from umdf.sync.gaps import Gap
from umdf.transport.channels_file import LOOPBACK, ChannelAddresses, LineAddress, ReplayerAddresses, read_channels
from umdf.transport.free_ports import free_ports
from umdf.transport.udp_receiver import UdpReceiver
from umdf.transport.udp_sender import UdpDestination, UdpSender
from umdf.wire.packet import ChunkParser

SECOND, PATIENCE_S = 10**9, 30.0


def one_channel(ports: list[int]) -> ChannelAddresses:
    lines = tuple(LineAddress(line, LOOPBACK, port) for line, port in zip("AB", ports, strict=True))
    return ChannelAddresses(72, "sbe", {"incremental": lines})


def free_run(count: int) -> int:
    """The first of some ports that are free together."""
    while True:
        first = free_ports(1)[0]
        if first + count < 65_536 and first % 2 == 0:
            return first


def test_lines_go_through_and_lose_the_same_packets_together() -> None:
    sent = [struct.pack("<BBHIQ", 72, 0, 7, number, number) for number in range(1, 1_001)]
    sources, settings = free_ports(2), ProxySettings(free_run(4))
    faults = Faults(common_loss=0.02, duplicates=0.1, late_ms=2.0, outages=(Outage("incremental", "B", 0.0, 1e9),))
    for own in (Faults(common_loss=0.02), faults):
        with UdpReceiver() as receiver, FaultyProxy([one_channel(sources)], {}, own, settings) as proxy:
            (channel,) = proxy.channels
            for line in channel.streams["incremental"]:
                receiver.join(line.line, line)
            senders = [UdpSender(UdpDestination(LOOPBACK, port)) for port in sources]
            found: dict[str, list[bytes]] = {"A": [], "B": []}
            for number, content in enumerate(sent):
                for sender in senders:
                    sender.send(np.frombuffer(content, np.uint8), np.array([0]), np.array([len(content)]))
                if number % 50 == 49:
                    proxy.poll(0.02)
            deadline = time.monotonic() + PATIENCE_S
            while proxy.packets < 2 * len(sent) and time.monotonic() < deadline:
                proxy.poll(0.02)
            for _ in range(5):
                proxy.poll(0.01)
                for packets in receiver.take(0.05):
                    for start, end, flow in zip(packets.start, packets.end, packets.flow, strict=True):
                        found[str(packets.names[flow])].append(packets.buffer[start:end].tobytes())
            for sender in senders:
                sender.close()
        assert set(found["A"]) < set(sent) and len(set(found["A"])) > 800
        if own is faults:
            assert not found["B"] and len(found["A"]) > len(set(found["A"])) + 40
        else:
            assert found["A"] == found["B"], "the loss of both lines is the same"


def test_a_lying_and_refusing_replayer_is_seen_through(tmp_path: Path) -> None:
    history = ChannelHistory(tmp_path)
    history.append((sequence, 1, b"message %d" % sequence) for sequence in range(1, 301))
    service = ReplayService({"72": history}, ReplaySettings(), Profile(WEEK), lambda: SECOND)
    server = ReplayerServer(ReplayerSettings((LOOPBACK, 0), "REPLAYER"), service)
    server.start()
    faults = Faults(replayer_refusals=0.3, replayer_loss=0.1)
    replayers = {"replayer": ReplayerAddresses("CLIENT", "REPLAYER", (server.address,))}
    with FaultyProxy([], replayers, faults, ProxySettings(free_run(4), seed=3)) as proxy:
        source = ReplaySource(proxy.replayers["replayer"])
        try:
            found: set[int] = set()
            for number in range(20):
                source.request(ChannelKey("fast", 72), Gap(0, 1 + 10 * number, 10 + 10 * number, 0))
            deadline = time.monotonic() + PATIENCE_S
            missing = 200
            while missing > 0 and time.monotonic() < deadline:
                proxy.poll(0.005)
                for packets in source.take():
                    found |= set(ChunkParser().parse(packets.buffer, packets.start, packets.end).msg_seq_num.tolist())
                missing = 200 - len(found) - sum(len(failure.span) for failure in source.failures)
            assert missing == 0 and len(found) > 100 and source.counts.refused > 0
        finally:
            source.close()
            server.stop()


def test_the_commands_list_the_faults_and_run_the_proxy(tmp_path: Path, capsys) -> None:
    assert run(["exchange", "faults"]) == 0
    shown = capsys.readouterr().out
    assert "common_loss" in shown and "[[faults.outage]]" in shown and "replayer_corruption" in shown
    sources, out = free_ports(2), tmp_path / "faulty.toml"
    (tmp_path / "channels.toml").write_text(
        f'[[channel]]\nnumber = 72\nprotocol = "sbe"\n'
        f'incremental = {{ A = "127.0.0.1:{sources[0]}", B = "127.0.0.1:{sources[1]}" }}\n'
    )
    (tmp_path / "faults.toml").write_text("[faults]\nloss = 0.1\n")
    first = free_run(4)
    command = ["exchange", "proxy", str(tmp_path / "channels.toml"), "--faults", str(tmp_path / "faults.toml")]
    assert run([*command, "--out", str(out), "--first-port", str(first), "--duration-s", "0.05", "--json"]) == 0
    assert [line.port for line in read_channels(out)[0].streams["incremental"]] == [first, first + 1]
    assert '"packets": 0' in capsys.readouterr().out
    (tmp_path / "faults.toml").write_text("[faults]\nlos = 0.1\n")
    assert run([*command, "--out", str(out)]) != 0
    assert "unknown key: faults.los" in capsys.readouterr().err
