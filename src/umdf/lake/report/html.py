"""Building blocks of the report's page: escaped text, formatted numbers, tables, and bar charts as inline SVG.

Invariant: all text from outside is escaped by `escape`, and functions that return markup return `Html`.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import NewType
from zoneinfo import ZoneInfo

from umdf.market.calendar import ZONE

Html = NewType("Html", str)

ABSENT = Html('<span class="none">–</span>')
WIDTH, HEIGHT, MARGIN_BOTTOM, MARGIN_TOP = 1000, 150, 22, 18
MAX_MARKS = 500
TICK_STEPS = (1, 2, 5, 10, 15, 30, 60, 120)
MAX_TICKS = 12
MAX_NORMAL_COLUMNS = 12  # tables with more columns are dense
UNITS = (("s", 10**9), ("ms", 10**6), ("µs", 10**3), ("ns", 1))
SIZES = (("GB", 10**9), ("MB", 10**6), ("kB", 10**3))


def escape(value: object) -> Html:
    return ABSENT if value is None or value == "" else Html(html.escape(str(value)))


def count(value: int | None) -> Html:
    return ABSENT if value is None else Html(f"{value:,}")


def decimal(value: str | None, digits: int = 0) -> Html:
    """An exact decimal, with commas for thousands, padded with zeros to `digits` decimal places."""
    if value is None:
        return ABSENT
    sign, unsigned = ("−", value[1:]) if value.startswith("-") else ("", value)
    whole, _, rest = unsigned.partition(".")
    rest = rest.ljust(digits, "0")
    return escape(f"{sign}{int(whole):,}{'.' if rest else ''}{rest}")


def decimals(*values: str | None) -> Iterable[Html]:
    """Decimals with the same number of decimal places, that of the most precise one."""
    digits = max((len(value.partition(".")[2]) for value in values if value is not None), default=0)
    return (decimal(value, digits) for value in values)


def size(value: int | None) -> Html:
    if value is None:
        return ABSENT
    for unit, bytes_ in SIZES:
        if value >= bytes_:
            return Html(f"{value / bytes_:,.1f} {unit}")
    return Html(f"{value:,} B")


def duration(value: int | None) -> Html:
    if value is None:
        return ABSENT
    for unit, ns in UNITS:
        if abs(value) >= ns:
            return Html(f"{value / ns:,.1f} {unit}" if ns > 1 else f"{value} ns")
    return Html("0")


def percentage(part: int | None, whole: int | None) -> Html:
    """Never rounds to 0 % or 100 %."""
    if part is None or not whole:
        return ABSENT
    percent = f"{100 * part / whole:.2f}"
    if percent == "0.00" and part:
        return Html("&lt;0.01 %")
    return Html("&gt;99.99 %" if percent == "100.00" and part != whole else f"{percent} %")


def time_of_day(ts_ns: int | None, digits: int = 3) -> Html:
    """The time of day in São Paulo."""
    if ts_ns is None:
        return ABSENT
    seconds, rest = divmod(ts_ns, 10**9)
    time_text = datetime.fromtimestamp(seconds, ZoneInfo(ZONE)).strftime("%H:%M:%S")
    return Html(f"{time_text}.{rest:09d}"[: 9 + digits] if digits else time_text)


def date_and_time(ts_ns: int) -> Html:
    return Html(datetime.fromtimestamp(ts_ns // 10**9, ZoneInfo(ZONE)).strftime("%Y-%m-%d %H:%M:%S"))


def code(value: object) -> Html:
    return Html(f"<code>{escape(value)}</code>")


def pill(word: str, kind: str) -> Html:
    return Html(f'<span class="pill {kind}">{escape(word)}</span>')


def table(columns: Sequence[str], rows: Iterable[Sequence[Html]], caption: str = "") -> Html:
    """A column whose name ends with # is numeric."""
    names = [name.removesuffix("#").strip() for name in columns]
    kinds = [' class="n"' if name.endswith("#") else "" for name in columns]
    head = "".join(
        f'<th scope="col"{kind}>{escape(name) if name else ""}</th>' for name, kind in zip(names, kinds, strict=True)
    )
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{cell}</td>" for cell, kind in zip(row, kinds, strict=True)) + "</tr>\n"
        for row in rows
    )
    caption_html = f"<caption>{escape(caption)}</caption>" if caption else ""
    kind = ' class="dense"' if len(columns) > MAX_NORMAL_COLUMNS else ""
    return Html(
        f'<div class="wide"><table{kind}>{caption_html}<thead><tr>{head}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>"
    )


def paragraph(sentence: str, kind: str = "note") -> Html:
    """Words in backticks are table names."""
    parts = [
        code(part) if place % 2 else escape(part) if part else "" for place, part in enumerate(sentence.split("`"))
    ]
    return Html(f'<p class="{kind}">{"".join(parts)}</p>')


def bar_chart(
    title: str,
    values: Sequence[int],
    first_ns: int,
    interval_ns: int,
    marks: Sequence[int],
    label: Callable[[int], str],
) -> Html:
    """One bar per interval, with its value as a tooltip; `marks` are times marked below the axis."""
    highest, base = max(values, default=0), HEIGHT - MARGIN_BOTTOM
    step = WIDTH / max(len(values), 1)
    high = base - MARGIN_TOP
    rects = []
    for place, value in enumerate(values):
        if value:
            bar_height = max(high * value / highest, 1)
            tip = f"{time_of_day(first_ns + place * interval_ns, 0)}: {label(value)}"
            where = f'x="{place * step:.2f}" y="{base - bar_height:.1f}" width="{max(step * 0.86, 0.6):.2f}"'
            rects.append(f'<rect {where} height="{bar_height:.1f}"><title>{tip}</title></rect>')
    peak = values.index(highest) if values else 0
    peak_text = f"maximum: {label(highest)} at {time_of_day(first_ns + peak * interval_ns, 0)}" if highest else "none"
    gaps = "".join(
        f'<path class="mark" d="M{x:.1f} {base + 1}l3 6h-6z"/>'
        for x in ((ts - first_ns) / interval_ns * step for ts in marks[:MAX_MARKS])
        if 0 <= x <= WIDTH
    )
    return Html(
        f'<figure><figcaption>{escape(title)} <span class="note">{escape(peak_text)}</span></figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(f"{title}; {peak_text}")}">'
        f'<line class="axis" x1="0" x2="{WIDTH}" y1="{base}" y2="{base}"/><g class="bars">{"".join(rects)}</g>{gaps}'
        f"{''.join(_ticks(len(values), first_ns, interval_ns, step))}</svg></figure>"
    )


def _ticks(total: int, first_ns: int, interval_ns: int, step: float) -> Iterable[str]:
    """Labels at round times of day, and not too many."""
    tick_step_ns = next((every for every in TICK_STEPS if total / every <= MAX_TICKS), TICK_STEPS[-1]) * interval_ns
    is_long = interval_ns >= 60 * 10**9
    begin = -(-first_ns // tick_step_ns) * tick_step_ns
    for ts in range(begin, first_ns + total * interval_ns, tick_step_ns):
        x = (ts - first_ns) / interval_ns * step
        if x < WIDTH - 40:
            label = str(time_of_day(ts, 0))[: 5 if is_long else 8]
            yield f'<text x="{x:.1f}" y="{HEIGHT - 4}">{label}</text>'
