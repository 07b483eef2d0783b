"""Wrong usage ends with 2, whichever command and whoever notices: what is asked can never be, whatever the input holds.

What the input does not have (a file, a symbol, a day) is 3.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from cli.test_commands import EVERY

from umdf.cli.app import run

# CAPTURE is a directory of captures, FILE one of them, LAKE what was made of them.
WRONG = """
decode
decode FILE --format html
decode FILE --format parquet
decode FILE --json --format fix
decode FILE --limit -1
decode FILE --protocol itch
decode FILE --nonsense
explain
explain FILE
explain CAPTURE --packet 1
explain FILE --packet 0
explain FILE --packet one
explain FILE --packet 99999999
explain FILE --packet 1 --lake LAKE
explain --lake LAKE
explain --lake LAKE --row mbo
explain --lake LAKE --row mbo:72:1
explain --lake LAKE --row mbo:72:x:1
explain --lake LAKE --row mbx:72:1:1
explain --lake LAKE --row ohlcv_1m:72:1:1
book
book FILE --at noon
book FILE --at 25:00
book FILE --at 2026-02-30
book FILE --depth -1
feed
feed --channels FILE --buffer-mib 0
replay
replay CAPTURE --speed -1
history
history --channels FILE --channel 72 --from 9 --to 1 --out NEW
certify --protocol itch
certify --only Z9
exchange nothing
exchange run
exchange channels
exchange status --nonsense
exchange book
exchange order
exchange order PETR4 hold 100
exchange amend
exchange cancel --nonsense
exchange cross
exchange trade
exchange bust
exchange phase
exchange state
exchange auction
exchange pair DOLF27
exchange extend DOLF27 soon
exchange uncross
exchange band
exchange news
exchange instrument
exchange reset --nonsense
exchange failover --nonsense
exchange migrate
exchange step lunch
exchange settle
exchange volume PETR4 swap 1 1 1
exchange volatility
exchange composite
exchange faults --nonsense
exchange proxy FILE
exchange replayer
exchange replayer broken
exchange capture
exchange capture NEW --messages 5000 --loss 2
exchange capture NEW --messages 5000 --lines C
exchange capture NEW --messages 1
exchange capture NEW --messages 5000 --channel 300
exchange capture NEW --messages 5000 --protocol itch
ingest
ingest CAPTURE
ingest CAPTURE --lake NEW --no-spark --tables mbx
ingest CAPTURE --lake NEW --conf memory=1g
ingest CAPTURE --lake NEW --cores 0
ingest CAPTURE --lake NEW --master mesos://here
ingest CAPTURE --lake NEW --environment env.tar.gz
stream CAPTURE --lake NEW --finish
stream CAPTURE --lake NEW --once --tables mbx
stream CAPTURE --lake NEW --once --interval-s -1
stream CAPTURE --lake NEW --once --max-files 0
lake nothing LAKE
lake status
lake demo NEW --messages 1
lake verify LAKE --deeper
lake compact LAKE --tables mbx
lake rebuild LAKE --no-spark --date 13/11/2026
lake rebuild LAKE --no-spark --channel x
lake vacuum LAKE --retention-days -1
lake ddl LAKE --dialect oracle
lake ddl LAKE --catalog "a b"
lake accept LAKE mbx
lake accept LAKE
lake restore LAKE mbx
lake pack NEW.zip
query
query LAKE
query LAKE "SELECT 1" --schema mbo
query LAKE "SELECT 1" --start 2026-11-13
query LAKE --schema mbx
query LAKE --schema mbo --json --csv
query LAKE --schema mbo --columns prize
query LAKE --schema mbo --start yesterday
query LAKE --schema mbo --start 2026-11-13 --end 2026-11-12
query LAKE --schema mbo --stype-in isin --symbols X
query LAKE --schema mbo --stype-in parent --symbols X
query LAKE --schema mbo --stype-in continuous --symbols X
query LAKE --schema day_statistics --start 2026-11-13T10:00
query LAKE --schema mbo --limit -1
query LAKE --schema trades --chart NEW --chart-y symbol
report
report LAKE --date 13/11/2026
export LAKE --format databento
export LAKE NEW
export LAKE NEW --format csv
export LAKE NEW --format databento --schema gaps
export LAKE NEW --format databento --schema mbx
export LAKE NEW --format databento --schema trades --publisher-id -1
export LAKE NEW --format databento --schema trades --price-type text
export LAKE NEW --format databento --schema trades --stype-in isin --symbols X
export LAKE NEW --format databento --schema trades --start yesterday
export LAKE NEW --format lobster --levels 0
export LAKE NEW --format lobster --levels 100000
doctor --nonsense
lake forget LAKE
lake abort
lake upgrade LAKE --cores 0
"""
MISSING = """
decode NEW
explain NEW --packet 1
explain --lake LAKE --row mbo:72:1:1
book NEW
book FILE --symbols NOBODY
ingest NEW --lake OTHER --no-spark
stream NEW --lake OTHER --once
feed --channels NEW
feed --channels FILE
replay NEW
history --channels NEW --channel 72 --from 1 --to 9 --out OTHER
exchange run NEW
exchange channels NEW
exchange status --control NEW
lake status NEW
lake rebuild LAKE --no-spark --date 2020-01-02
query LAKE --schema mbo --symbols NOBODY
query LAKE --schema mbo --start 2030-01-02
report LAKE --date 2020-01-02
export LAKE OTHER --format databento --schema trades --symbols NOBODY
"""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    home = tmp_path_factory.mktemp("usage")
    argv = ["exchange", "capture", "--messages", "600", "--instruments", "10", "--lines", "A", str(home)]
    assert run(argv) == 0
    assert run(["ingest", str(home / "capture"), "--lake", str(home / "lake"), "--no-spark"]) == 0
    file = min((home / "capture").glob("*.pcap"))
    named = {"CAPTURE": home / "capture", "FILE": file, "LAKE": home / "lake", "NEW": home / "new"}
    named |= {"NEW.zip": home / "new.zip", "OTHER": home / "other"}
    return {name: str(path) for name, path in named.items()}


def argv_of(line: str, places: dict[str, str]) -> list[str]:
    return [places.get(word, word) for word in shlex.split(line)]


@pytest.mark.parametrize("line", WRONG.strip().splitlines())
def test_usage_errors_exit_with_2(line: str, places: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(argv_of(line, places)) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    said = json.loads(err)["error"] if "--json" in line else err
    assert "bug" not in said and "internal error" not in said
    assert not Path(places["NEW"]).exists()


@pytest.mark.parametrize("line", MISSING.strip().splitlines())
def test_missing_data_exits_with_3(line: str, places: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(argv_of(line, places)) == 3
    assert capsys.readouterr().err.count("\n") == 1


def test_every_command_is_in_the_list() -> None:
    words = [tuple(line.split()) for line in WRONG.strip().splitlines()]
    assert [path for path in EVERY if not any(line[: len(path)] == path for line in words)] == []
