"""The commands of the control socket: COMMANDS names each one, its arguments, and the method of the exchange.

    {"command": "enter", "symbol": "PETR4", "side": "buy", "price": "32.45", "size": 500, "firm": 3}
    {"ok": true, "result": {"order_id": 1000000123, "traded": 0, …}}
    {"ok": false, "error": "unknown instrument: PETR9", "hint": "use a symbol of the listing"}

Prices are texts (or numbers without a fraction), so that no binary fraction is ever rounded.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any

from umdf.errors import UmdfError, UsageError, did_you_mean, one_of
from umdf.exchange.instruments.catalogue_file import read_legs
from umdf.exchange.instruments.instrument_spec import UNIT, Leg
from umdf.exchange.live.exchange import MIDPOINTS, SETTLEMENTS, STEPS, Exchange
from umdf.exchange.live.schedule import days_since_1970
from umdf.exchange.matching.orders import ASK, BID, DAY, GTC, GTD, LIMIT, MARKET, MARKET_TO_LIMIT, MOA, MOC, OrderBook
from umdf.exchange.replayer.service import Switch
from umdf.exchange.session.trading_session import PHASE_NAMES, STATE_NAMES
from umdf.transport.channels_file import REPLAYERS

SIDES = {"buy": BID, "sell": ASK}
ORDER_TYPES = {"limit": LIMIT, "market": MARKET, "market-to-limit": MARKET_TO_LIMIT, "moa": MOA, "moc": MOC}
TIMES_IN_FORCE = {"day": DAY, "gtc": GTC, "gtd": GTD}
MAX_PRICE = 10**9  # what fits in 1e-9


def number_of(names: Mapping[int, str]) -> dict[str, int]:
    """Names of phases or states as they are written in commands."""
    return {name.lower().replace(" ", "-"): number for number, name in names.items() if number}


PHASES, STATES = number_of(PHASE_NAMES), number_of(STATE_NAMES)


def _choice(choices: Mapping[str, Any]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        found = choices.get(value.lower()) if isinstance(value, str) else None
        if found is None and value in choices.values() and not isinstance(value, bool | str):
            return value
        if found is None:
            raise ValueError(one_of(choices))
        return found

    return read


def _choice_of(names: Iterable[str]) -> Callable[[Any], Any]:
    return _choice({name.lower(): name for name in names})


def _price(value: Any) -> int:
    if isinstance(value, bool | float):
        raise ValueError('a price as text, such as "32.45"')
    try:
        price = Decimal(str(value)) * 10**9
    except InvalidOperation:
        raise ValueError('a price, such as "32.45"') from None
    if not price.is_finite() or price != price.to_integral_value() or abs(price) > MAX_PRICE * 10**9:
        raise ValueError("a price of at most nine decimals, below 1e9")
    return int(price)


def _amount(value: Any) -> int:
    try:
        amount = Decimal(str(value)) * 10**4
    except InvalidOperation:
        amount = Decimal("NaN")
    if isinstance(value, bool | float) or not amount.is_finite() or amount % 1 or abs(amount) >= 1 << 63:
        raise ValueError('an amount of at most four decimals, as text: "1250000.50"')
    return int(amount)


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 1 << 63:
        raise ValueError("a whole number")
    return value


def _seconds(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 86_400:
        raise ValueError("seconds from 0 to 86400")
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a text")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _list_of(read: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    def read_all(value: Any) -> tuple[Any, ...]:
        return tuple(map(read, value if isinstance(value, list) else [value]))

    return read_all


def _legs(value: Any) -> tuple[Leg, ...]:
    try:
        return read_legs(value)
    except (ValueError, AttributeError):
        raise ValueError('legs, such as "sell WINZ26; buy 2 WING27"') from None


def _date(value: Any) -> int:
    try:
        return days_since_1970(date.fromisoformat(value))
    except (TypeError, ValueError):
        raise ValueError('a date, such as "2026-11-20"') from None


Reader = Callable[[Any], Any]
SIDE, ORDER_TYPE, TIME_IN_FORCE = _choice(SIDES), _choice(ORDER_TYPES), _choice(TIMES_IN_FORCE)
PROTOCOL = _choice_of(("sbe", "fast"))
BAND = _choice_of(("hard", "auction", "rejection", "static", "quantity"))
CHANNEL: dict[str, Reader] = {"protocol": PROTOCOL, "channel": _whole}
DEAL: dict[str, Reader] = {"symbol": _text, "price": _price, "size": _whole, "buyer": _whole, "seller": _whole}


@dataclass(frozen=True)
class Command:
    method: Callable[..., Any]
    required: Mapping[str, Reader]
    optional: Mapping[str, Reader]

    def run(self, exchange: Exchange, values: Mapping[str, Any]) -> Any:
        """Check the arguments and call the method."""
        known = {**self.required, **self.optional}
        for name in values:
            if name not in known:
                close = difflib.get_close_matches(name, known, 1)
                raise UsageError(f"unknown argument: {name}", did_you_mean(close) if close else f"use {one_of(known)}")
        for name in self.required:
            if values.get(name) is None:
                raise UsageError(f"missing argument: {name}", f"required are {', '.join(self.required)}")
        arguments = {}
        for name, value in values.items():
            if value is None:
                continue
            try:
                arguments[name] = known[name](value)
            except ValueError as error:
                raise UsageError(f"invalid {name}: {json.dumps(value)}", f"use {error}") from None
        return self.method(exchange, **arguments)


def _enter(exchange: Exchange, symbol: str, side: int, size: int, firm: int, **options: Any) -> Any:
    return exchange.enter(symbol, side, options.pop("price", None), size, firm=firm, **options)


def _amend(exchange: Exchange, order_id: int, **changes: int) -> Any:
    return exchange.amend(order_id, **changes)


def _change_phase(exchange: Exchange, groups: tuple[str, ...], phase: int, after_market: bool = False) -> None:
    exchange.change_phase(groups, phase, after_market=after_market)


def _set_band(exchange: Exchange, symbol: str, kind: str, low: int, high: int, **more: Any) -> None:
    if kind == "quantity":
        if low % UNIT or high % UNIT or low < 0 or high <= 0:
            limits = f"{price_text(low)} to {price_text(high)}"
            raise UsageError(f"invalid quantity band: {limits}", "use whole numbers above 0, such as 100000 5000000")
        low, high = low // UNIT, high // UNIT
    exchange.set_band(symbol, kind, low, high, **more)


def _book(exchange: Exchange, symbol: str, depth: int = 10) -> Any:
    return shown_book(exchange.book(symbol), depth)


COMMANDS: dict[str, Command] = {
    "enter": Command(
        _enter,
        {"symbol": _text, "side": SIDE, "size": _whole, "firm": _whole},
        {"price": _price, "order_type": ORDER_TYPE, "time_in_force": TIME_IN_FORCE, "expire_date": _date,
         "display_size": _whole, "stp_id": _whole},
    ),
    "amend": Command(_amend, {"order_id": _whole}, {"price": _price, "size": _whole}),
    "cancel": Command(Exchange.cancel, {"order_id": _whole}, {}),
    "mass_cancel": Command(Exchange.mass_cancel, {}, {"firm": _whole, "symbol": _text}),
    "cross": Command(Exchange.cross, DEAL, {}),
    "trade": Command(Exchange.enter_on_behalf, DEAL, {"conditions": _list_of(_text)}),
    "bust": Command(Exchange.bust, {"symbol": _text, "trade_id": _whole}, {}),
    "amend_trade": Command(
        Exchange.amend_trade, {"symbol": _text, "trade_id": _whole, "price": _price, "size": _whole}, {}
    ),
    "book": Command(_book, {"symbol": _text}, {"depth": _whole}),
    "phase": Command(_change_phase, {"groups": _list_of(_text), "phase": _choice(PHASES)}, {"after_market": _flag}),
    "state": Command(
        Exchange.change_state, {"symbol": _text, "state": _choice(STATES)}, {"opens_in_s": _seconds}
    ),
    "pair": Command(Exchange.pair, {"symbol": _text, "other": _text}, {}),
    "extend_auction": Command(Exchange.extend_auction, {"symbol": _text, "seconds": _seconds}, {}),
    "close_auction": Command(Exchange.close_auction, {"symbol": _text}, {}),
    "special_auction": Command(Exchange.set_special_auction, {"symbol": _text}, {"is_special": _flag}),
    "band": Command(
        _set_band, {"symbol": _text, "kind": BAND, "low": _price, "high": _price}, {"percent_of": _choice_of(MIDPOINTS)}
    ),
    "settle": Command(Exchange.settle, {"kind": _choice_of(SETTLEMENTS)}, {"symbol": _text, "price": _price}),
    "volume": Command(
        Exchange.report_volume,
        {"symbol": _text, "venue": _choice_of("OX"), "quantity": _whole, "trades": _whole, "turnover": _amount}, {},
    ),
    "volatility": Command(
        Exchange.publish_volatility, {"symbol": _text, "short_price": _price, "long_price": _price, "delta": _price}, {}
    ),
    "composite": Command(Exchange.publish_composite, {"symbol": _text}, {}),
    "migrate": Command(Exchange.migrate, {"symbols": _list_of(_text)}, {}),
    "step": Command(Exchange.run_step, {"name": _choice_of(STEPS)}, {}),
    "add_instrument": Command(
        Exchange.add_instrument, {"like": _text, "symbol": _text},
        {"description": _text, "lot": _whole, "legs": _legs},
    ),
    "modify_instrument": Command(Exchange.modify_instrument, {"symbol": _text}, {"description": _text, "lot": _whole}),
    "delete_instrument": Command(Exchange.delete_instrument, {"symbol": _text}, {}),
    "news": Command(
        Exchange.publish_news,
        {"headline": _text, "text": _text},
        {"channels": _list_of(_whole), "symbols": _list_of(_text), "source": _whole, "news_id": _whole,
         "language": _text, "url": _text},
    ),
    "reset_book": Command(Exchange.reset_book, {"symbol": _text}, {}),
    "reset_channel": Command(Exchange.reset_channel, CHANNEL, {}),
    "failover": Command(Exchange.reset_sequences, CHANNEL, {}),
    "replayer": Command(
        Exchange.switch_replayer,
        {"name": _choice_of(REPLAYERS), "switch": _choice({each.value: each for each in Switch}), "is_on": _flag}, {},
    ),
    "status": Command(Exchange.status, {}, {}),
}  # fmt: skip


WHILE_DOWN = ("status", "book", "step", "replayer")  # nothing that would have to be published


def answer(exchange: Exchange, line: bytes) -> bytes:
    """Run one request; its reply."""
    try:
        reply: dict[str, Any] = {"ok": True, "result": _run(exchange, line)}
    except UmdfError as error:
        reply = {"ok": False, "error": error.reason, "hint": error.hint}
    return json.dumps(reply, ensure_ascii=False, default=str).encode()


def _run(exchange: Exchange, line: bytes) -> Any:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        raise UsageError("the request is not JSON", "send one object a line") from None
    if not isinstance(request, dict):
        raise UsageError("the request is not an object", 'send {"command": "status"}')
    name = request.pop("command", None)
    if not isinstance(name, str) or name not in COMMANDS:
        close = difflib.get_close_matches(str(name), COMMANDS, 1)
        raise UsageError(f"unknown command: {name}", did_you_mean(close) if close else f"use {one_of(COMMANDS)}")
    if not exchange.trading.is_up and name not in WHILE_DOWN:
        raise UsageError("the platform is down until Sunday 12:00", "start it with `umdf exchange step start-week`")
    result = COMMANDS[name].run(exchange, request)
    return asdict(result) if is_dataclass(result) and not isinstance(result, type) else result


def price_text(price: int | None) -> str | None:
    """A price in 1e-9 as text."""
    if price is None:
        return None
    text = f"{Decimal(price).scaleb(-9):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def shown_book(book: OrderBook, depth: int) -> dict[str, list[dict[str, Any]]]:
    return {
        name: [
            {"order_id": order.order_id, "price": price_text(order.price), "size": order.size, "firm": order.firm}
            for order in side[:depth]
        ]
        for name, side in (("bids", book.bids), ("asks", book.asks))
    }
