"""An Arrow schema in other words: Delta's and Spark's JSON, Spark's DDL, CREATE TABLE for catalogues.

The one rule: types are never inferred from files; every reader is told the schema that was written down.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from umdf.errors import ConfigError
from umdf.lake.schemas import Table

# Arrow's type: the name in Delta's and Spark's JSON, the name in SQL.
NAMES: dict[str, tuple[str, str]] = {
    "int64": ("long", "BIGINT"),
    "int32": ("integer", "INT"),
    "int16": ("short", "SMALLINT"),
    "int8": ("byte", "TINYINT"),
    "bool": ("boolean", "BOOLEAN"),
    "double": ("double", "DOUBLE"),
    "string": ("string", "STRING"),
    "binary": ("binary", "BINARY"),
    "date32[day]": ("date", "DATE"),
}


def json_schema(schema: pa.Schema | pa.StructType) -> dict[str, Any]:
    """Delta and Spark write a schema down in the same JSON."""
    return {"type": "struct", "fields": [_json_field(schema.field(at)) for at in range(_count(schema))]}


def _count(schema: pa.Schema | pa.StructType) -> int:
    return len(schema.names) if isinstance(schema, pa.Schema) else schema.num_fields


def _json_field(field: pa.Field) -> dict[str, Any]:
    said: Mapping[bytes, bytes] = field.metadata or {}
    words = {key.decode(): value.decode() for key, value in said.items()}
    metadata = {"comment" if key == "doc" else key: words[key] for key in sorted(words) if key != "scale"}
    return {"name": field.name, "type": _json_type(field.type), "nullable": field.nullable, "metadata": metadata}


def _json_type(kind: Any) -> Any:
    if pa.types.is_list(kind):
        element = kind.value_field
        return {"type": "array", "elementType": _json_type(element.type), "containsNull": element.nullable}
    if pa.types.is_struct(kind):
        return json_schema(kind)
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _name(kind)[0]


def _name(kind: pa.DataType) -> tuple[str, str]:
    if str(kind) not in NAMES:
        raise ConfigError(f"a table of the lake cannot have a column of type {kind}")
    return NAMES[str(kind)]


def sql_type(kind: Any) -> str:
    if pa.types.is_list(kind):
        return f"ARRAY<{sql_type(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(f'`{field.name}`: {sql_type(field.type)}' for field in kind)}>"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    return _name(kind)[1]


def spark_ddl(schema: pa.Schema) -> str:
    """`ts_send BIGINT, …`: for spark.read.schema()."""
    return ", ".join(f"`{field.name}` {sql_type(field.type)}" for field in schema)


def spark_type(schema: pa.Schema) -> Any:
    from pyspark.sql.types import StructType

    return StructType.fromJson(json_schema(schema))


def delta_schema(schema: pa.Schema) -> Any:
    from deltalake import Schema

    return Schema.from_json(json.dumps(json_schema(schema)))


def create_table(table: Table, directory: Path, dialect: str = "spark", catalogue: str = "umdf") -> str:
    """The statement that makes a table of the lake known to a catalogue; its files stay where they are."""
    if dialect not in DIALECTS:
        raise ConfigError(f"no dialect {dialect}", f"there are {', '.join(DIALECTS)}")
    return DIALECTS[dialect].format(
        name=f"{catalogue}.{table.name}" if catalogue else table.name,
        table=table.name,
        catalogue=catalogue,
        columns=",\n".join(f"  {_column(field)}" for field in table.schema),
        partition=f"PARTITIONED BY ({', '.join(table.partition)})\n" if table.partition else "",
        doc=_quoted(table.doc),
        location=_quoted(directory.absolute().as_uri()),
    )


def _column(field: pa.Field) -> str:
    said: Mapping[bytes, bytes] = field.metadata or {}
    doc = said.get(b"doc", b"").decode()
    comment = f" COMMENT {_quoted(doc)}" if doc else ""
    return f"`{field.name}` {sql_type(field.type)}{'' if field.nullable else ' NOT NULL'}{comment}"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


# Each reads the table as Delta: a reader of the bare Parquet files would see replaced rows too.
DIALECTS = {
    "spark": "CREATE TABLE IF NOT EXISTS {name} (\n{columns}\n)\nUSING DELTA\n{partition}"
    "COMMENT {doc}\nLOCATION {location};\n",
    "hive": "CREATE EXTERNAL TABLE IF NOT EXISTS {name} (\n{columns}\n)\n"
    "STORED BY 'io.delta.hive.DeltaStorageHandler'\nLOCATION {location};\n",
    "trino": "CALL delta.system.register_table(schema_name => '{catalogue}', table_name => '{table}', "
    "table_location => {location});\n",
}
