"""channels.toml: what is written is read again, and a wrong file is an error with file, key and value."""

from __future__ import annotations

from pathlib import Path

import pytest

from umdf.errors import ConfigError, UsageError
from umdf.transport.channels_file import (
    HISTORICAL_REPLAYER,
    REPLAYER,
    ChannelAddresses,
    LineAddress,
    ReplayerAddresses,
    format_channels,
    read_channels,
    read_replayer,
    select_channels,
)

GOOD = {"number": "72", "protocol": '"sbe"', "incremental": '{ A = "224.0.20.72:20001", B = "224.0.21.72:20101" }'}


def written(tmp: Path, **values: str) -> Path:
    file = tmp / "channels.toml"
    file.write_text("[[channel]]\n" + "".join(f"{key} = {value}\n" for key, value in (GOOD | values).items() if value))
    return file


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    lines = LineAddress("A", "127.0.0.1", 20_001), LineAddress("B", "224.0.0.9", 20_002, "10.0.0.1")
    snapshot = LineAddress("A", "127.0.0.1", 20_003)
    channels = [
        ChannelAddresses(72, "sbe", {"incremental": lines, "snapshot": (snapshot,)}, heartbeat_s=0.25),
        ChannelAddresses(72, "fast", {"instruments": (LineAddress("B", "10.0.0.2", 1),)}, "tob", 'a "name"'),
    ]
    (tmp_path / "c.toml").write_text(format_channels(channels))
    assert read_channels(tmp_path / "c.toml") == channels
    assert [line.is_multicast for line in lines] == [False, True]


def test_what_is_absent_has_a_default(tmp_path: Path) -> None:
    (channel,) = read_channels(written(tmp_path))
    assert (channel.book, channel.heartbeat_s, channel.schema) == ("mbo", 1.0, None)
    assert [(stream, line.line, line.interface) for stream, line in channel.lines()] == [
        ("incremental", "A", "127.0.0.1"), ("incremental", "B", "127.0.0.1")
    ]  # fmt: skip
    (tmp_path / "t.xml").touch()
    (fast,) = read_channels(
        written(tmp_path, protocol='"fast"', schema='"t.xml"', interface='{A="10.0.0.1",B="10.1.0.1"}')
    )
    assert (fast.heartbeat_s, fast.schema) == (30.0, tmp_path / "t.xml")
    assert [line.interface for _, line in fast.lines()] == ["10.0.0.1", "10.1.0.1"]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"number": ""}, "channel table 1: has no number; add number = 72"),
        ({"number": "0"}, "channel 0: invalid number = 0; expected 1 to 65535"),
        ({"number": "true"}, "invalid number = true"),
        ({"protocol": ""}, 'channel 72: has no protocol; add protocol = "sbe"'),
        ({"protocol": '"fix"'}, 'channel 72: invalid protocol = "fix"; expected sbe or fast'),
        ({"book": "[]"}, "invalid book = []; expected mbo, mbp, tob or none"),
        ({"heartbeat_s": "0"}, "invalid heartbeat_s = 0; expected seconds from 0.001 to 3600"),
        ({"heartbeat_s": '"1"'}, 'invalid heartbeat_s = "1"'),
        ({"incremental": ""}, "channel 72: has no stream"),
        ({"incremental": '"224.0.0.1:1"'}, 'invalid incremental = "224.0.0.1:1"; expected the addresses of its lines'),
        ({"incremental": '{ C = "224.0.0.1:1" }'}, "unknown line: incremental.C; lines are A and B"),
        ({"incremental": '{ A = "224.0.0.1" }'}, 'invalid incremental.A = "224.0.0.1"; expected an IPv4 address'),
        ({"incremental": '{ A = "224.0.0.1:99999" }'}, "invalid incremental.A"),
        ({"incremental": '{ A = "host:1" }'}, 'invalid incremental.A = "host:1"'),
        ({"interface": '"eth0"'}, 'invalid interface = "eth0"; expected the IPv4 address of a network interface'),
        ({"interface": '{ A = "10.0.0.1" }'}, 'invalid interface.B = ""'),
        ({"snapshots": "{}"}, "unknown key: snapshots; did you mean snapshot?"),
        (
            {"snapshot": '{ A = "224.0.20.72:20001" }'},
            "20001 is listed twice: channel 72 (sbe) incremental.A and channel 72 (sbe) snapshot.A",
        ),
        ({"schema": '"absent.xml"'}, 'channel 72: invalid schema = "absent.xml"'),
        ({"number": "72\n[[channel"}, "invalid TOML"),
    ],
)
def test_a_wrong_file_is_an_error_with_file_key_and_value(values: dict[str, str], reason: str, tmp_path: Path) -> None:
    file = written(tmp_path, **values)
    with pytest.raises(ConfigError) as error:
        read_channels(file)
    assert str(error.value).startswith(f"{file}: ") and reason in str(error.value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "lists no channels; each channel is a table [[channel]]"),
        (b"[[stream]]\n", "unknown table: stream"),
        (b"channel = 1\n", "lists no channels"),
        (b"\xff", "not UTF-8"),
        (None, "No such file"),
    ],
)
def test_a_file_without_channels_is_an_error(content: bytes | None, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "channels.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"channels\.toml") as error:
        read_channels(file)
    assert reason in str(error.value)


def test_two_tables_of_a_channel_are_an_error(tmp_path: Path) -> None:
    file = written(tmp_path)
    file.write_text(file.read_text() + file.read_text().replace("20001", "1").replace("20101", "2"))
    with pytest.raises(ConfigError, match=r"channel 72 \(sbe\) is listed twice"):
        read_channels(file)


def test_channels_are_selected_by_number_or_by_protocol_and_number() -> None:
    channels = [
        ChannelAddresses(number, protocol, {"snapshot": (LineAddress("A", "10.0.0.2", number),)})
        for number, protocol in ((72, "sbe"), (72, "fast"), (78, "sbe"))
    ]
    assert select_channels(channels, []) == channels
    assert select_channels(channels, ["72"]) == channels[:2]
    assert select_channels(channels, ["sbe:78", "fast:72"]) == channels[1:]
    with pytest.raises(UsageError, match="no channel fast:78 in the channels file"):
        select_channels(channels, ["72", "fast:78"])


def test_replayers_are_read_beside_the_channels(tmp_path: Path) -> None:
    replayer = ReplayerAddresses("CLIENT", "REPLAYER", (("127.0.0.1", 30_001), ("127.0.0.1", 30_002)))
    file = tmp_path / "c.toml"
    channel = ChannelAddresses(72, "fast", {"instruments": (LineAddress("B", "10.0.0.2", 1),)})
    file.write_text(format_channels([channel], {REPLAYER: replayer}))
    assert read_channels(file) == [channel]
    assert (read_replayer(file), read_replayer(file, HISTORICAL_REPLAYER)) == (replayer, None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('comp_id = "C"', "replayer has no replayer_id"),
        ('comp_id = "C"\nreplayer_id = "R"\nA = "x"', 'replayer: invalid A = "x"; expected "host:port"'),
        ('comp_id = 3\nreplayer_id = "R"\nA = "x:1"', "replayer: invalid comp_id = 3"),
        ('com_id = "C"', "replayer: unknown key: com_id"),
    ],
)
def test_a_wrong_replayer_is_an_error_with_its_key(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "c.toml"
    file.write_text(f"[replayer]\n{text}\n")
    with pytest.raises(ConfigError, match=f"c.toml: {reason}"):
        read_replayer(file)
