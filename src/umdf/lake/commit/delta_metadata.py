"""The columns and descriptions that Delta's log has of a table, and how an upgrade of the lake replaces them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from umdf.lake.dialects import json_schema
from umdf.lake.older_layouts import RENAMES
from umdf.lake.schemas import Table


def metadata_action(directory: Path, table: Table, version: int) -> dict[str, Any]:
    """Delta's `metaData` for the version after this one: the table keeps its identity and its properties."""
    from deltalake import DeltaTable

    delta = DeltaTable(directory, version=version)
    known, schema = delta.metadata(), json_schema(table.schema)
    foreign = set(foreign_columns(directory, table, version))
    schema["fields"] += [json.loads(field.to_json()) for field in delta.schema().fields if field.name in foreign]
    return {
        "metaData": {
            "id": str(known.id),
            "name": table.name,
            "description": table.doc,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(schema),
            "partitionColumns": list(table.partition),
            "configuration": dict(known.configuration),
            "createdTime": known.created_time,
        }
    }


def foreign_columns(directory: Path, table: Table, version: int) -> list[str]:
    """Columns that no layout of ours has: another engine has added them, and that was accepted."""
    from deltalake import DeltaTable

    renamed = {old for renames in RENAMES.values() if table.name in renames for old in renames[table.name].columns}
    ours = {*table.schema.names, *renamed}
    return [field.name for field in DeltaTable(directory, version=version).schema().fields if field.name not in ours]
