"""Translates Arrow schemas: Delta's and Spark's JSON, Spark's DDL, CREATE TABLE statements for catalogs.

Invariant: types are never inferred from files; every reader gets the schema of umdf.lake.schemas.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from umdf.errors import ConfigError, UsageError
from umdf.lake.schemas import Table

# Arrow type: (type in Delta's and Spark's JSON, type in SQL).
TYPE_NAMES: dict[str, tuple[str, str]] = {
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
    """The schema as JSON, which Delta and Spark share."""
    return {"type": "struct", "fields": [_json_field(schema.field(at)) for at in range(_count(schema))]}


def _count(schema: pa.Schema | pa.StructType) -> int:
    return len(schema.names) if isinstance(schema, pa.Schema) else schema.num_fields


def _json_field(field: pa.Field) -> dict[str, Any]:
    metadata_bytes: Mapping[bytes, bytes] = field.metadata or {}
    texts = {key.decode(): value.decode() for key, value in metadata_bytes.items()}
    metadata = {"comment" if key == "doc" else key: texts[key] for key in sorted(texts) if key != "scale"}
    return {"name": field.name, "type": _json_type(field.type), "nullable": field.nullable, "metadata": metadata}


def _json_type(kind: Any) -> Any:
    if pa.types.is_list(kind):
        element = kind.value_field
        return {"type": "array", "elementType": _json_type(element.type), "containsNull": element.nullable}
    if pa.types.is_struct(kind):
        return json_schema(kind)
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _type_names(kind)[0]


def _type_names(kind: pa.DataType) -> tuple[str, str]:
    if str(kind) not in TYPE_NAMES:
        raise ConfigError(f"a table of the lake cannot have a column of type {kind}")
    return TYPE_NAMES[str(kind)]


def sql_type(kind: Any, struct_field: str = "`{0}`: {1}") -> str:
    if pa.types.is_list(kind):
        return f"ARRAY<{sql_type(kind.value_type, struct_field)}>"
    if pa.types.is_struct(kind):
        inside = (struct_field.format(field.name, sql_type(field.type, struct_field)) for field in kind)
        return f"STRUCT<{', '.join(inside)}>"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    return _type_names(kind)[1]


def spark_ddl(schema: pa.Schema) -> str:
    """`ts_send BIGINT, …`: for spark.read.schema()."""
    return ", ".join(f"`{field.name}` {sql_type(field.type)}" for field in schema)


def spark_type(schema: pa.Schema) -> Any:
    from pyspark.sql.types import StructType

    return StructType.fromJson(json_schema(schema))


def delta_schema(schema: pa.Schema) -> Any:
    from deltalake import Schema

    return Schema.from_json(json.dumps(json_schema(schema)))


@dataclass(frozen=True)
class Dialect:
    """How a table is registered in a catalog, and how columns are declared, if the catalog needs them.

    Delta stores a table's columns and rejects a list that differs in anything, even a comment: so most dialects omit
    them.
    """

    schema_statement: str
    table_statement: str
    notes: str = ""
    name_levels: tuple[int, ...] = (1, 2)  # allowed number of names in the target: schema, or catalog.schema
    struct_field: str = "`{0}`: {1}"


# All read the table as Delta: reading the Parquet files directly would include replaced rows.
DIALECTS = {
    "spark": Dialect(
        "CREATE SCHEMA IF NOT EXISTS {catalog};\n",
        "CREATE TABLE IF NOT EXISTS {name}\nUSING DELTA\nLOCATION {location};\n",
        "Spark with the Delta package. Views with decimals and timestamps: umdf.Lake(DIR).register_views(spark).",
    ),
    "unity": Dialect(
        "CREATE SCHEMA IF NOT EXISTS {catalog};\n",
        "CREATE TABLE IF NOT EXISTS {name}\nUSING DELTA\nLOCATION {location};\n",
        "Unity Catalog: external tables, at a location that the catalog can read; do not grant write access.",
    ),
    "hive": Dialect(
        "CREATE DATABASE IF NOT EXISTS {catalog};\n",
        "CREATE EXTERNAL TABLE IF NOT EXISTS {name} (\n{columns}\n)\n"
        "STORED BY 'io.delta.hive.DeltaStorageHandler'\nLOCATION {location};\n",
        "Hive with the Delta connector: ADD JAR delta-hive-assembly, then for MapReduce\n"
        "-- SET hive.input.format=io.delta.hive.HiveInputFormat; for Tez hive.tez.input.format.",
        (1,),
        "{0}: {1}",
    ),
    "trino": Dialect(
        "CREATE SCHEMA IF NOT EXISTS {trino}.{schema};\n",
        "CALL {trino}.system.register_table(schema_name => '{schema}', table_name => '{table}', "
        "table_location => {location});\n",
        "Trino: assumes a Delta Lake catalog named {trino}, with delta.register-table-procedure.enabled=true.",
    ),
}
VALID_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


def create_schema(dialect: str, catalog: str) -> str:
    """The statement that creates the schema for the tables."""
    return _dialect(dialect).schema_statement.format(**_name_fields(dialect, catalog))


def create_table(table: Table, location: Path | str, dialect: str = "spark", catalog: str = "umdf") -> str:
    """The statement that registers a table of the lake in a catalog; its files stay at `location`, a path or a URL."""
    template = _dialect(dialect)
    name_fields = _name_fields(dialect, catalog) if catalog else {"catalog": "", "schema": "", "trino": ""}
    return template.table_statement.format(
        **name_fields,
        name=f"{catalog}.{table.name}" if catalog else table.name,
        table=table.name,
        columns=",\n".join(f"  {_column(field, template.struct_field)}" for field in table.schema),
        location=_quote(location if isinstance(location, str) else location.absolute().as_uri()),
    )


def notes(dialect: str, catalog: str) -> str:
    """Notes for users of the statements, as SQL comments."""
    note = _dialect(dialect).notes.format(**_name_fields(dialect, catalog))
    units = "Prices are BIGINT in units of 1e-9, times BIGINT nanoseconds UTC. Only umdf writes to these tables."
    return f"-- {note}\n-- {units}\n"


def _dialect(name: str) -> Dialect:
    if name not in DIALECTS:
        raise UsageError(f"unknown dialect: {name}", f"use {', '.join(DIALECTS)}")
    return DIALECTS[name]


def _name_fields(dialect: str, catalog: str) -> dict[str, str]:
    parts, allowed = catalog.split("."), _dialect(dialect).name_levels
    if not VALID_NAME.fullmatch(catalog) or len(parts) not in allowed:
        forms = " or ".join(("catalog.schema" if count == 2 else "schema") for count in allowed)
        raise UsageError(f"invalid name for {dialect}: {catalog!r}", f"use {forms}, with letters, digits and _")
    return {"catalog": catalog, "schema": parts[-1], "trino": parts[0] if len(parts) > 1 else "delta"}


def _column(field: pa.Field, struct_field: str) -> str:
    metadata: Mapping[bytes, bytes] = field.metadata or {}
    doc = metadata.get(b"doc", b"").decode()
    comment = f" COMMENT {_quote(doc)}" if doc else ""
    return f"`{field.name}` {sql_type(field.type, struct_field)}{comment}"


def _quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
