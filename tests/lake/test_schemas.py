"""The tables as they are written down, and in other words."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from lake.upgraded_rows import NEW_NAMES

from umdf.errors import ConfigError
from umdf.lake import dialects, schemas
from umdf.lake.layout import LAYOUT
from umdf.lake.older_layouts import RENAMES, renamed_rows, renames_since, table_of_layout
from umdf.lake.plan.frontier import join_content, split_content
from umdf.lake.schemas import tables
from umdf.market.families import FAMILIES

OWN = """packets gaps quality book_check quarantine ledger mbp_1 mbp_10 tbbo bbo_1s bbo_1m ohlcv_1s ohlcv_1m ohlcv_1h
ohlcv_1d day_statistics book_state channel_state""".split()


def test_every_family_and_every_table_of_the_lake_is_there() -> None:
    assert list(tables()) == [*FAMILIES, *OWN]
    with pytest.raises(ConfigError, match="unknown table: mb0; available: mbo"):
        schemas.table("mb0")


@pytest.mark.parametrize("name", tables())
def test_a_table_is_whole(name: str) -> None:
    table = tables()[name]
    names = table.schema.names
    assert table.doc and len(set(names)) == len(names)
    assert {*table.sort, *table.partition} <= set(names) and table.mode in ("append", "replace")
    assert all((field.metadata or {}).get(b"doc") for field in table.schema if not pa.types.is_list(field.type))
    assert {"trading_date", "channel_id"} <= set(names)
    if name in FAMILIES:
        assert "symbol" in names and table.sort[0] == "instrument_id"


def test_levels_are_named_as_people_know_them() -> None:
    names = tables()["mbp_10"].schema.names
    start = names.index("bid_px_00")
    assert names[start : start + 8] == ["bid_px_00", "ask_px_00", "bid_sz_00", "ask_sz_00", "bid_ct_00", "ask_ct_00",
                                        "bid_px_01", "ask_px_01"]  # fmt: skip
    assert names[-1] == "ask_ct_09" and len([name for name in names if name.startswith("bid_")]) == 30


@pytest.mark.parametrize("name", tables())
def test_delta_and_spark_have_the_same_columns(name: str) -> None:
    schema = tables()[name].schema
    back = pa.schema(dialects.delta_schema(schema).to_arrow())
    assert [(field.name, field.nullable) for field in back] == [(field.name, field.nullable) for field in schema]
    for field, found in zip(schema, back, strict=True):
        assert pa.types.is_list(field.type) or found.type == field.type
    spark = dialects.spark_type(schema)
    assert spark.fieldNames() == schema.names
    words = ", ".join(f"`{field.name}` {field.dataType.simpleString()}".lower() for field in spark.fields)
    assert dialects.spark_ddl(schema).replace("`: ", ":").replace("<`", "<").replace(", `", ", `").lower().count(
        "bigint"
    ) == words.count("bigint")


def test_create_table_says_where_a_table_is() -> None:
    text = dialects.create_table(tables()["gaps"], Path("/data/b3's lake/gaps"), "spark", "market")
    assert text.startswith("CREATE TABLE IF NOT EXISTS market.gaps\nUSING DELTA\n")
    assert "LOCATION 'file:///data/b3%27s%20lake/gaps';" in text
    in_unity = dialects.create_table(tables()["gaps"], "s3://bucket/lake/gaps", "unity", "main.umdf")
    assert "main.umdf.gaps\nUSING DELTA\nLOCATION 's3://bucket/lake/gaps';" in in_unity
    for name in ("spark", "unity"):  # Delta knows the columns, and refuses a list with other comments than its own
        assert "BIGINT" not in dialects.create_table(tables()["mbo"], Path("/x"), name)
    in_trino = dialects.create_table(tables()["mbo"], Path("/x"), "trino", "lakehouse.umdf")
    assert "CALL lakehouse.system.register_table(schema_name => 'umdf', table_name => 'mbo'" in in_trino
    with pytest.raises(ConfigError, match="unknown dialect: cobol; use spark, unity, hive, trino"):
        dialects.create_table(tables()["mbo"], Path("/x"), "cobol")
    with pytest.raises(ConfigError, match=r"invalid name for hive: 'a.b'; use schema, with letters, digits and _"):
        dialects.create_schema("hive", "a.b")
    with pytest.raises(ConfigError, match=r"invalid name for spark: .*; use schema or catalog.schema"):
        dialects.create_schema("spark", "x; DROP TABLE y")


def test_hive_statements_list_the_columns() -> None:
    text = dialects.create_table(tables()["gaps"], Path("/x"), "hive", "market")
    assert text.startswith("CREATE EXTERNAL TABLE IF NOT EXISTS market.gaps (\n  `trading_date` DATE COMMENT ")
    assert "`instruments` ARRAY<BIGINT>" in text and "NOT NULL" not in text and "PARTITIONED" not in text
    legs = dialects.create_table(tables()["definition"], Path("/x"), "hive")
    assert "`legs` ARRAY<STRUCT<leg_id: BIGINT, leg_symbol: STRING" in legs


def test_importing_the_lake_loads_neither_spark_nor_delta() -> None:
    # What Spark itself loads, as a source of data, cannot be without it.
    of_spark = re.compile(r".*__init__|source\..*|stream\.closed_files")
    home = Path(schemas.__file__).parent
    modules = [".".join(path.relative_to(home).with_suffix("").parts) for path in home.rglob("*.py")]
    modules = sorted(name for name in modules if not of_spark.fullmatch(name))
    assert len(modules) > 100
    text = f"import sys\nfor name in {modules}: __import__('umdf.lake.' + name)\n"
    text += "print([name for name in ('pyspark', 'deltalake', 'pandas') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_words_in_the_state_of_an_open_day_of_layout_3_are_translated() -> None:
    ends = {"groups": [["WIN", "", 17]], "own": [], "resets": [[0]]}  # names within it are as before
    old = {
        "gaps": [{"first": 5, "last": 8}],
        "answers": [{"seq_version": 1, "first": 5, "touched": [7, 9], "touched_count": 2, "open": 1, "ts_cured": None}],
        "states": {"said": ends, "groups": [[1]], "own": [[2]], "gone": [3], "phase_at": [], "misjudged": [4]},
    }
    rows = pa.table({"format": [2, 2], "content": [join_content(old, b"staged"), join_content(old, b"")]})
    found = renamed_rows(rows, RENAMES[3]["channel_state"]).column("content").to_pylist()
    new = {
        "gaps": old["gaps"],
        "gap_records": [
            {"seq_version": 1, "first": 5, "instruments": [7, 9], "affected": 2, "open": 1, "ts_recovered": None}
        ],
        "states": {
            "phases": ends, "snapshot_phases": [[1]], "snapshot_states": [[2]], "deleted": [3], "phase_at": [],
            "unverified_members": [4],
        },
    }  # fmt: skip
    assert [split_content(content) for content in found] == [(new, b"staged"), (new, b"")]
    assert all(renames_since(layout)["channel_state"] == [RENAMES[3]["channel_state"]] for layout in (1, 2, 3))


def test_words_of_layout_2_are_translated() -> None:
    rows = pa.table({"cause": pa.array(["loss", "start", None], pa.utf8())})
    assert all(renames_since(layout)["gaps"][-1] == RENAMES[2]["gaps"] for layout in (1, 2))
    assert renamed_rows(rows, RENAMES[2]["gaps"]).column("cause").to_pylist() == ["loss", "join", None]


def test_words_of_layout_1_are_translated() -> None:
    words = ["equal", "in_doubt", "older", "stale", None]
    for kind in (pa.utf8(), pa.dictionary(pa.int32(), pa.utf8())):
        rows = pa.table({"verdict": pa.array(words, pa.utf8()).cast(kind)})
        found = renamed_rows(rows, RENAMES[1]["book_check"]).column("verdict").to_pylist()
        assert found == ["equal", "unverified", "outdated", "stale", None]


@pytest.mark.parametrize("layout", range(1, LAYOUT))
def test_tables_of_an_older_layout_have_the_same_columns_under_other_names(layout: int) -> None:
    for name in tables():
        old, new, names = table_of_layout(name, layout), table_of_layout(name, LAYOUT), NEW_NAMES[layout].get(name, {})
        assert [names.get(column, column) for column in old.schema.names] == new.schema.names
        assert old.schema.types == new.schema.types and new == tables()[name]
        assert (old.sort, old.partition, old.statistics_columns) == (new.sort, new.partition, new.statistics_columns)
