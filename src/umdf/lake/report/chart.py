"""Charts of rows: lines over time, or candlesticks for bars; as a page, or in a notebook.

Invariant: the chart shows the rows as they are. A line breaks at absent values; if there are more points than columns
of pixels, the minimum and maximum of each column are kept.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.errors import ConfigError, UsageError
from umdf.lake.report.html import Html, escape, paragraph
from umdf.lake.report.style import STYLE
from umdf.market.calendar import ZONE

OHLC = ("open", "high", "low", "close")
TIME_COLUMNS = ("ts_interval", "ts_event", "ts_recv", "ts_send")
# Plotted by default.
DEFAULT_COLUMNS = ("close", "price", "bid_px_00", "ask_px_00", "vwap", "volume", "size")
WIDTH, HEIGHT, MARGIN_LEFT, MARGIN_BOTTOM, MARGIN_TOP = 1000, 320, 76, 24, 14
MAX_SERIES, MAX_CANDLES = 8, 400
SECOND_NS = 10**9
TICK_STEPS_S = (
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    14400,
    28800,
    86400,
    7 * 86400,
    30 * 86400,
)
MAX_TICKS = 9
CHART_STYLE = """
.plot { stroke-width: 1.4; fill: none; } .up { fill: var(--good); stroke: var(--good); }
.down { fill: var(--bad); stroke: var(--bad); } .grid { stroke: var(--rule); stroke-width: 0.7; }
.s0 { stroke: #4f7cac; } .s1 { stroke: #c8553d; } .s2 { stroke: #2f8f5b; } .s3 { stroke: #8e5ea2; }
.s4 { stroke: #b8860b; } .s5 { stroke: #1f9aa8; } .s6 { stroke: #d1477a; } .s7 { stroke: #6b7280; }
.key { display: inline-block; margin-right: 14px; font-weight: 400; } .key svg { display: inline; width: 18px; }
"""


@dataclass(frozen=True)
class Series:
    name: str
    times: NDArray[np.int64]
    values: NDArray[np.float64]  # one column, or one for each of OHLC; NaN is absent
    last_value: str


@dataclass(frozen=True)
class Chart:
    title: str
    figures: tuple[Html, ...]

    def to_html(self) -> str:
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(self.title)}</title><style>{STYLE}{CHART_STYLE}</style></head>\n"
            f"<body><main><h1>{escape(self.title)}</h1>\n{''.join(self.figures)}\n"
            f"<footer>{paragraph('Times are in São Paulo time. Created by `umdf query`.')}</footer>"
            "</main></body></html>\n"
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        Path(path).write_text(self.to_html(), encoding="utf-8")
        return Path(path)

    def _repr_html_(self) -> str:
        """For notebooks."""
        scoped = f".umdf {{ --rule: #ccd; --good: #1f7a4d; --bad: #b3261e; --quiet: #5c6875; }} {CHART_STYLE}"
        return f'<style>{scoped}</style><div class="umdf">{"".join(self.figures)}</div>'


def draw(rows: pa.Table, y: Sequence[str] | None = None, title: str = "") -> Chart:
    """Candlesticks if the rows have open, high, low and close and `y` is not given; otherwise lines of `y`.

    Several symbols become several lines, or several candlestick charts.
    """
    if not rows.num_rows:
        raise ConfigError("no rows to plot", "use other symbols or a longer range")
    time = _time_column(rows)
    is_bars = y is None and set(OHLC) <= set(rows.schema.names)
    columns: list[tuple[str, ...]] = [OHLC] if is_bars else [(name,) for name in _value_columns(rows, y)]
    series = [one for names in columns for one in _split_series(rows, time, names)]
    if len(series) > MAX_SERIES:
        raise ConfigError(f"too many series: {len(series)}", f"limit them to {MAX_SERIES} with --symbols or --chart-y")
    if not is_bars:
        figures: Iterable[Html] = [_figure(", ".join(names[0] for names in columns), series, _line_path)]
    else:
        figures = [
            _figure(one.name or "bars", [one], _candle_shapes)
            if len(one.times) <= MAX_CANDLES
            else _figure(
                f"{one.name} close".strip(), [Series("", one.times, one.values[:, 3:], one.last_value)], _line_path
            )
            for one in series
        ]
    return Chart(title or "Rows of a lake", tuple(figures))


def _time_column(rows: pa.Table) -> str:
    def is_time(name: str) -> bool:
        kind = rows.schema.field(name).type
        return pa.types.is_temporal(kind) or (name.startswith("ts_") and pa.types.is_integer(kind))

    known = [name for name in (*TIME_COLUMNS, *rows.schema.names) if name in rows.schema.names and is_time(name)]
    if not known:
        raise ConfigError("no time column", "select one, for example ts_event or ts_interval")
    return known[0]


def _value_columns(rows: pa.Table, y: Sequence[str] | None) -> list[str]:
    numbers = [field.name for field in rows.schema if _is_number(field.type)]
    if y is None:
        return (
            [next((name for name in (*DEFAULT_COLUMNS, *numbers) if name in numbers), "")]
            if numbers
            else _raise_no_numbers(rows)
        )
    for name in y:
        if name not in numbers:
            raise UsageError(f"{name} is not a numeric column", f"numeric columns: {', '.join(numbers) or 'none'}")
    return list(y)


def _raise_no_numbers(rows: pa.Table) -> list[str]:
    raise ConfigError("no numeric column to plot", f"columns: {', '.join(rows.schema.names)}")


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _split_series(rows: pa.Table, time: str, names: Sequence[str]) -> Iterator[Series]:
    """Series by symbol, in order of time; rows without a time are dropped."""
    times = _nanoseconds(rows.column(time))
    symbols = rows.column("symbol").to_pylist() if "symbol" in rows.schema.names else [None] * rows.num_rows
    values = np.column_stack([_floats(rows.column(name)) for name in names])
    distinct_symbols = list(dict.fromkeys(symbols))
    symbol_index = (
        np.array([distinct_symbols.index(symbol) for symbol in symbols])
        if len(distinct_symbols) > 1
        else np.zeros(len(symbols), np.int64)
    )
    has_time = np.asarray(rows.column(time).is_valid())
    for number, symbol in enumerate(distinct_symbols):
        own = np.flatnonzero((symbol_index == number) & has_time)
        if not len(own):
            continue
        own = own[np.argsort(times[own], kind="stable")]
        series_name = " ".join(str(part) for part in (symbol, names[0] if names is not OHLC else "") if part)
        last = rows.column(names[-1])[int(own[-1])].as_py()
        yield Series(series_name, times[own], values[own], "" if last is None else _format_number(last))


def _nanoseconds(column: pa.ChunkedArray) -> NDArray[np.int64]:
    kind: Any = column.type
    if pa.types.is_date(kind):
        column = column.cast(pa.timestamp("s"))
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.timestamp("ns", getattr(kind, "tz", None))).cast(pa.int64())
    return column.fill_null(0).to_numpy().astype(np.int64)


def _floats(column: pa.ChunkedArray) -> NDArray[np.float64]:
    return column.cast(pa.float64()).fill_null(float("nan")).to_numpy()


def _format_number(value: Any) -> str:
    text = f"{value:,f}" if isinstance(value, Decimal) else f"{value:,}"
    return text.rstrip("0").rstrip(".") if "." in text else text


@dataclass(frozen=True)
class Scale:
    """Maps times and values to coordinates."""

    first: int
    last: int
    low: float
    high: float

    def x(self, time: Any) -> Any:
        return MARGIN_LEFT + (time - self.first) / max(self.last - self.first, 1) * (WIDTH - MARGIN_LEFT - 8)

    def y(self, value: Any) -> Any:
        return MARGIN_TOP + (self.high - value) / (self.high - self.low) * (HEIGHT - MARGIN_BOTTOM - MARGIN_TOP)


def _figure(name: str, series: Sequence[Series], draw_series: Any) -> Html:
    present_values = np.concatenate([one.values.ravel() for one in series])
    present_values = present_values[~np.isnan(present_values)]
    if not len(present_values):
        return Html(f"<figure><figcaption>{escape(name)}</figcaption>{paragraph('No values.')}</figure>")
    low, high = float(present_values.min()), float(present_values.max())
    padding = (high - low) * 0.04 or abs(high) * 0.001 or 1.0
    first, last = min(int(one.times[0]) for one in series), max(int(one.times[-1]) for one in series)
    scale = Scale(first, last, low - padding, high + padding)
    legend = "".join(
        f'<span class="key"><svg viewBox="0 0 18 8"><path class="plot s{at}" d="M0 4h18"/></svg> '
        f'{escape(one.name)} <span class="note">{escape(one.last_value)}</span></span>'
        for at, one in enumerate(series)
        if one.name and len(series) > 1
    )
    drawn = "".join(part for at, one in enumerate(series) for part in draw_series(one, at, scale))
    return Html(
        f"<figure><figcaption>{escape(name)} {legend}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(name)}">'
        f"{''.join(_grid(scale))}{drawn}"
        "</svg></figure>"
    )


def _line_path(series: Series, at: int, scale: Scale) -> Iterator[str]:
    values = series.values[:, 0]
    keep = _downsample(np.round(scale.x(series.times)).astype(np.int64), values)
    path, is_pen_down = [], False
    for x, y in zip(scale.x(series.times[keep]).tolist(), scale.y(values[keep]).tolist(), strict=True):
        if is_pen_down:  # a value holds until the next one
            path.append(f"H{x:.1f}")
        if y == y:
            path.append(f"V{y:.1f}" if is_pen_down else f"M{x:.1f} {y:.1f}")
        is_pen_down = y == y
    path.append("h1")
    yield f'<path class="plot s{at}" d="{"".join(path)}"/>'


def _downsample(columns: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.int64]:
    """The first, lowest, highest and last point of each column of pixels, and all absent ones."""
    if len(values) <= 4 * WIDTH:
        return np.arange(len(values))
    ends = np.flatnonzero(np.diff(columns, append=columns[-1] + 1)) + 1
    kept: list[int] = []
    for begin, end in zip(np.concatenate([[0], ends[:-1]]).tolist(), ends.tolist(), strict=True):
        own = values[begin:end]
        if np.isnan(own).all():
            kept.append(begin)
            continue
        some = {begin, begin + int(np.nanargmin(own)), begin + int(np.nanargmax(own)), end - 1}
        kept += sorted(some)
    return np.array(kept, np.int64)


def _candle_shapes(series: Series, at: int, scale: Scale) -> Iterator[str]:
    xs = scale.x(series.times)
    width = max(min(float(np.diff(xs).min()) if len(xs) > 1 else 20.0, 20.0) * 0.7, 1.0)
    for x, when, bar in zip(xs.tolist(), series.times.tolist(), series.values.tolist(), strict=True):
        if any(value != value for value in bar):
            continue
        opened, high, low, close = bar
        top, bottom = scale.y(max(opened, close)), scale.y(min(opened, close))
        kind = "up" if close >= opened else "down"
        tip = f"{_format_time(when, '%Y-%m-%d %H:%M:%S')}: {opened:,.10g} {high:,.10g} {low:,.10g} {close:,.10g}"
        yield (
            f'<g class="{kind}"><title>{escape(tip)}</title><path d="M{x:.1f} {scale.y(high):.1f}V{scale.y(low):.1f}"/>'
            f'<rect x="{x - width / 2:.1f}" y="{top:.1f}" width="{width:.1f}" '
            f'height="{max(bottom - top, 0.8):.1f}"/></g>'
        )


def _grid(scale: Scale) -> Iterator[str]:
    step = _round_step((scale.high - scale.low) / 5)
    digits = max(0, -int(np.floor(np.log10(step))))
    value = np.ceil(scale.low / step) * step
    while value <= scale.high:
        y = scale.y(value)
        yield f'<path class="grid" d="M{MARGIN_LEFT} {y:.1f}H{WIDTH}"/>'
        yield f'<text x="{MARGIN_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:,.{digits}f}</text>'
        value += step
    span_s = (scale.last - scale.first) / SECOND_NS
    tick_step_s = next((every for every in TICK_STEPS_S if span_s / every <= MAX_TICKS), TICK_STEPS_S[-1])
    form = (
        "%H:%M:%S"
        if tick_step_s < 60
        else "%H:%M"
        if span_s < 86_400
        else "%m-%d %H:%M"
        if tick_step_s < 86_400
        else "%Y-%m-%d"
    )
    offset = int(datetime.fromtimestamp(scale.first // SECOND_NS, ZoneInfo(ZONE)).utcoffset().total_seconds())  # type: ignore[union-attr]
    when = (-(-(scale.first // SECOND_NS + offset) // tick_step_s) * tick_step_s - offset) * SECOND_NS
    for at in range(when, scale.last + 1, tick_step_s * SECOND_NS):
        if at >= scale.first:
            x = min(scale.x(at), WIDTH - 30)
            yield f'<text x="{x:.1f}" y="{HEIGHT - 6}" text-anchor="middle">{_format_time(at, form)}</text>'


def _round_step(rough: float) -> float:
    power = 10.0 ** np.floor(np.log10(rough))
    return float(next(step * power for step in (1, 2, 5, 10) if step * power >= rough))


def _format_time(ns: int, form: str) -> str:
    return datetime.fromtimestamp(ns // SECOND_NS, ZoneInfo(ZONE)).strftime(form)
