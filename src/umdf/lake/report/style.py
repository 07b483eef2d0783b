"""The style sheet of the day report: light and dark colours, and print."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --ink: #1c2733; --quiet: #5c6875; --paper: #fbfbfa; --card: #fff; --rule: #e2e5e9;
  --bar: #4f7cac; --good: #1f7a4d; --fair: #9a6700; --bad: #b3261e; --good-paper: #eaf5ef; --fair-paper: #fbf3e0;
  --bad-paper: #fbebea; }
@media (prefers-color-scheme: dark) { :root { --ink: #dde3ea; --quiet: #95a1ae; --paper: #12161b; --card: #191f26;
  --rule: #2b333d; --bar: #6b9bd1; --good: #6cc495; --fair: #dfb155; --bad: #f0877f; --good-paper: #15271f;
  --fair-paper: #2a2413; --bad-paper: #2e1b1b; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 32px 20px 48px; }
h1 { font-size: 27px; line-height: 1.2; margin: 0 0 6px; letter-spacing: -0.01em; }
h2 { font-size: 17px; margin: 36px 0 10px; }
code { font: 0.92em ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
.note { color: var(--quiet); font-size: 13px; margin: 8px 0 0; max-width: 90ch; }
.none { color: var(--quiet); opacity: 0.6; }
.verdict { margin: 20px 0; padding: 14px 18px; border-left: 4px solid; border-radius: 4px; }
.verdict p { margin: 4px 0 0; max-width: 95ch; }
.verdict .head { font-weight: 650; font-size: 17px; margin: 0; }
.verdict.good { border-color: var(--good); background: var(--good-paper); }
.verdict.fair { border-color: var(--fair); background: var(--fair-paper); }
.verdict.bad { border-color: var(--bad); background: var(--bad-paper); }
.verdict.good .head { color: var(--good); } .verdict.fair .head { color: var(--fair); }
.verdict.bad .head { color: var(--bad); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: 10px; margin: 0; }
.tiles div { background: var(--card); border: 1px solid var(--rule); border-radius: 6px; padding: 10px 14px; }
.tiles dt { color: var(--quiet); font-size: 12.5px; }
.tiles dd { margin: 0; font-size: 21px; font-variant-numeric: tabular-nums; white-space: nowrap; }
.tiles small { font-size: 13px; color: var(--quiet); }
.wide { overflow-x: auto; border: 1px solid var(--rule); border-radius: 6px; background: var(--card); }
.wide + .wide { margin-top: 12px; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding: 10px 12px 4px; font-weight: 600; }
th, td { padding: 5px 12px; text-align: left; vertical-align: baseline; }
th { color: var(--quiet); font-weight: 500; font-size: 12.5px; line-height: 1.25; vertical-align: bottom;
  border-bottom: 1px solid var(--rule); padding-top: 8px; }
tbody tr + tr td { border-top: 1px solid color-mix(in srgb, var(--rule) 55%, transparent); }
tbody tr:hover td { background: color-mix(in srgb, var(--bar) 8%, transparent); }
.dense { font-size: 13px; } .dense th, .dense td { padding-left: 7px; padding-right: 7px; }
.n { text-align: right; }
td.n, td code { white-space: nowrap; }
.pill { display: inline-block; padding: 0 8px; border-radius: 9px; font-size: 12px; line-height: 18px;
  white-space: nowrap; border: 1px solid var(--rule); color: var(--quiet); }
.pill.good { color: var(--good); background: var(--good-paper); border-color: transparent; }
.pill.fair { color: var(--fair); background: var(--fair-paper); border-color: transparent; }
.pill.bad { color: var(--bad); background: var(--bad-paper); border-color: transparent; }
figure { margin: 0; padding: 10px 12px 4px; border: 1px solid var(--rule); border-radius: 6px;
  background: var(--card); }
figure + figure { margin-top: 10px; }
figcaption { font-size: 13.5px; font-weight: 600; } figcaption .note { font-weight: 400; margin-left: 6px; }
svg { display: block; width: 100%; height: auto; }
.bars { fill: var(--bar); } .axis { stroke: var(--rule); } .mark { fill: var(--bad); }
svg text { fill: var(--quiet); font-size: 11px; }
footer { margin-top: 40px; border-top: 1px solid var(--rule); }
@media print { main { max-width: none; padding: 0; } .wide { overflow: visible; } section { break-inside: avoid; } }
"""
