"""The lake in Spark SQL: every table is a temporary view with its name.

Invariant: a statement means the same in every session. Prices are DECIMAL(19,9), times are TIMESTAMPs with the exact
nanoseconds beside them (`ts_event_ns`), a table without rows is an empty view, all at one commit of the lake, whether
Spark reads the tables as Delta (if it can) or from the commit's list of files. No session setting is changed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from umdf.errors import UmdfError, UsageError, did_you_mean
from umdf.lake.commit.lake_snapshot import LakeSnapshot, open_snapshot
from umdf.lake.commit.log import last_number
from umdf.lake.dialects import create_schema, create_table, spark_type
from umdf.lake.parquet.file_reader import read_error
from umdf.lake.query import levels_view
from umdf.lake.query.name_lookup import close_matches
from umdf.lake.query.price_styles import OutputFormat
from umdf.lake.schemas import table, tables

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

# A session that can read Delta is configured here. Trying to read without it would print a long error.
DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta",
    "spark.sql.catalog.spark_catalog": "delta",
    "spark.sql.sources.default": "delta",
}
SQL_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
WORD = re.compile(r"\w+")
SPARK_ERROR_CLASS = re.compile(r"\[[A-Z][A-Z0-9_.]+\]\s+(?P<message>\S.*)")
UNREADABLE = re.compile(r"\[FAILED_READ_FILE[^\]]*\].* reading file (?:file:/*(?=/))?(?P<path>.+?\.parquet)\b")
CAUSE = re.compile(r"^Caused by: (?:\w+\.)*\w+: (?P<message>.+)$", re.MULTILINE)
PY4J_PREFIX = re.compile(r"An error occurred while calling")
PYTHON_ERROR = re.compile(r"^(?:umdf\.errors\.\w+: |(?=(?:\w+\.)*\w+Error: ))")  # the last line of a Python traceback
SQLSTATE = re.compile(r"\s*SQLSTATE: \w+.*", re.DOTALL)
ERROR_POSITION = re.compile(r"\bline (?P<line>\d+),? pos (?P<column>\d+)")


class Registration:
    """The views that a lake has in a session."""

    def __init__(self, snapshot: LakeSnapshot, spark: SparkSession, names: tuple[str, ...], prefix: str, database: str):
        self.snapshot, self.spark, self.names = snapshot, spark, names
        self.prefix, self.database = prefix, database
        self.reads_delta = _reads_delta(spark, snapshot)
        self._register()

    @property
    def commit(self) -> int:
        return self.snapshot.number

    @property
    def views(self) -> tuple[str, ...]:
        return tuple(self.prefix + name for name in self.names)

    def refresh(self) -> bool:
        """Show the lake's newest commit; returns whether it has changed."""
        if last_number(self.snapshot.paths.markers) == self.commit:
            return False
        self.snapshot = open_snapshot(self.snapshot.paths.root)
        self._register()
        return True

    def table_frame(self, name: str) -> DataFrame:
        """A table as its view shows it."""
        known = table(name)
        if levels_view.derived_partitions(self.snapshot, name):
            stored = levels_view.levels_frame(self.spark, self.snapshot, name)
        elif self.reads_delta and self.snapshot.version(name) is not None:
            stored = self._delta_frame(name)
        else:
            stored = self.snapshot.spark_frame(self.spark, name)
        return OutputFormat().to_spark(stored, known.schema, known.schema.names)

    def _register(self) -> None:
        if self.database:
            self._create_tables()
        for name in self.names:
            self.table_frame(name).createOrReplaceTempView(self.prefix + name)

    def _delta_frame(self, name: str) -> DataFrame:
        """At the commit's version. A column newer than this version of the table is NULL."""
        reader = self.spark.read.format("delta").option("versionAsOf", str(self.snapshot.version(name)))
        found = reader.load(str(self.snapshot.paths.table(name)))
        there = set(found.columns)
        kinds = {field.name: field.dataType.simpleString() for field in spark_type(table(name).schema).fields}
        return found.selectExpr(
            *(
                f"`{column}`" if column in there else f"CAST(NULL AS {kind}) AS `{column}`"
                for column, kind in kinds.items()
            )
        )

    def _create_tables(self) -> None:
        """In a catalog, permanently, and as stored: BIGINT prices and times, always the newest version."""
        if not self.reads_delta:
            raise UmdfError(
                f"this Spark session has no Delta support, which database={self.database} needs",
                "start it with the Delta package, or omit database to use views",
            )
        home = self.snapshot.paths
        statements = [create_schema("spark", self.database)]
        statements += [
            create_table(table(name), home.table(name).as_uri(), "spark", self.database)
            for name in self.names
            if self.snapshot.version(name) is not None
        ]
        for statement in statements:
            self.spark.sql(statement.strip().rstrip(";"))


def register(
    lake: LakeSnapshot | str | os.PathLike[str],
    spark: SparkSession,
    database: str | None = None,
    *,
    names: Iterable[str] | None = None,
    prefix: str = "",
) -> Registration:
    """Create a temporary view of every table (or of `names`), named as the table, with `prefix`.

    With `database`, if the session can read Delta, the stored tables are also registered there in its catalog.
    """
    for what, word in (("database", (database or "x").replace(".", "_")), ("prefix", prefix or "x")):
        if not SQL_IDENTIFIER.fullmatch(word):
            raise UsageError(f"invalid {what}: {word!r}", "use letters, digits and _")
    wanted = tuple(tables()) if names is None else tuple(table(name).name for name in names)
    snapshot = lake if isinstance(lake, LakeSnapshot) else open_snapshot(lake)
    return Registration(snapshot, spark, wanted, prefix, database or "")


def tables_in(statement: str) -> list[str]:
    """The tables that a statement may refer to; all of them if it names none (SHOW TABLES)."""
    words = {word.lower() for word in WORD.findall(statement)}
    return [name for name in tables() if name in words] or list(tables())


def run_sql(spark: SparkSession, statement: str, max_rows: int | None = None) -> pa.Table:
    """The rows of a statement (the first `max_rows`), or one clear error."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        frame = spark.sql(statement)
        return (frame if max_rows is None else frame.limit(max_rows)).toArrow()
    except (PySparkException, Py4JError) as error:
        raise sql_error(error) from error


def _reads_delta(spark: SparkSession, snapshot: LakeSnapshot) -> bool:
    """Whether this session reads the lake's tables as Delta: it is configured to, and a read succeeds."""
    if not any(sign in (spark.conf.get(name, "") or "").lower() for name, sign in DELTA_SETTINGS.items()):
        return False
    stored = next(iter(snapshot.marker.versions), None)
    try:
        return stored is not None and bool(spark.read.format("delta").load(str(snapshot.paths.table(stored))).columns)
    except Exception:  # whatever is missing: it works without Delta too
        return False


def sql_error(error: Any) -> UmdfError:
    """Spark's error as one line, with a hint."""
    condition, values = _error_condition(error), _error_parameters(error)
    message = _error_sentence(error)
    if condition.startswith("TABLE_OR_VIEW_NOT_FOUND"):
        name = _unquoted(values.get("relationName", "?"))
        close = close_matches(name, tables())
        known = did_you_mean(close) if close else f"available: {', '.join(tables())}"
        return UsageError(f"unknown table: {name}{_error_position(error)}", known)
    if condition.startswith("UNRESOLVED_COLUMN"):
        close = [_unquoted(name) for name in values.get("proposal", "").split(", ") if name][:3]
        return UsageError(
            f"unknown column: {_unquoted(values.get('objectName', '?'))}{_error_position(error)}",
            did_you_mean(close) if close else "DESCRIBE TABLE lists the columns",
        )
    if found := UNREADABLE.search(str(error)):
        causes = CAUSE.findall(str(error), found.end())
        return read_error(unquote(found["path"]), causes[-1] if causes else "")
    if condition == "PARSE_SYNTAX_ERROR":
        near_what = values.get("error", "").strip() or "the end"
        hint = "the statement ends too early" if near_what == "end of input" else "check the SQL before it"
        return UsageError(f"SQL syntax error at {near_what}{_error_position(error)}", hint)
    if condition == "PARSE_EMPTY_STATEMENT":
        return UsageError("empty SQL statement", 'pass one, for example "SELECT * FROM trades LIMIT 10"')
    return UmdfError(
        f"Spark cannot run the query: {message}", "" if condition else "see the whole error with `umdf --debug …`"
    )


def _error_condition(error: Any) -> str:
    return (error.getCondition() if hasattr(error, "getCondition") else None) or ""


def _error_parameters(error: Any) -> dict[str, str]:
    return dict(error.getMessageParameters() or {}) if hasattr(error, "getMessageParameters") else {}


def _error_sentence(error: Any) -> str:
    """The error of our own function; or else the text after Spark's first exception class; or else the first line."""
    lines = [line.strip(" :") for line in str(error).splitlines() if line.strip() and not PY4J_PREFIX.match(line)]
    if thrown := [line for line in lines if PYTHON_ERROR.match(line)]:
        return PYTHON_ERROR.sub("", thrown[-1])[:300]
    named = next((found["message"] for found in map(SPARK_ERROR_CLASS.search, lines) if found), None)
    message = named or (lines[0] if lines else type(error).__name__)
    return SQLSTATE.sub("", message).rstrip(" .:")[:300]


def _error_position(error: Any) -> str:
    found = ERROR_POSITION.search(str(error))
    return f" (line {found['line']}, column {int(found['column']) + 1})" if found else ""


def _unquoted(name: str) -> str:
    return name.replace("`", "").strip()
