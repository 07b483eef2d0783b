"""Records about orders and price levels → the columns of X messages (35=X), as the encode kernel reads them.

A row for each entry: values, texts with their offsets, and a presence mask. `direct_fast_encoder` has the columns.
"""

from __future__ import annotations

import numpy as np

from umdf.exchange.matching.memory_layout_kernel import (
    BID,
    CODE,
    FIRM,
    FLAGS,
    ID,
    IMPLIED,
    INSERT,
    INSTRUMENT,
    KIND,
    NULL,
    OTHER,
    POSITION,
    PRICE,
    RECORD_BYTES,
    RECOVERY,
    SIDE,
    SIZE,
    TS,
)
from umdf.kernels import inlined, kernel, load_i64, outlined, store_i32, store_i64, store_u8, store_u32

# Entries of the table of arguments. D_COLUMNS: a column for each of those below; D_ACTIONS: 279 of each kind.
D_RECORDS, D_ROWS, D_UNITS, D_RPT_SEQ, D_IDS, D_ACTIONS, D_COLUMNS, D_MASKS, D_MASK_WORDS, D_ENTRIES = range(10)
D_SEQUENCE, D_TS, D_SEQUENCES, D_TIMES = 10, 11, 12, 13  # of each unit: given, and the columns of the message
ARGUMENT_COUNT = 14

# A column: the address of its values (0: the template has none) or of a text's offsets, the bytes of a value, the word
# and the bit of the presence mask (0: mandatory), a text's content and how many bytes of it are used.
C_VALUES, C_BYTES, C_WORD, C_BIT, C_CONTENT, C_USED = range(6)
COLUMN_BYTES = 48
(
    ACTION_COLUMN, TYPE_COLUMN, SECURITY_COLUMN, RPT_SEQ_COLUMN, QUOTE_COLUMN, PRICE_COLUMN, EXPONENT_COLUMN,
    ORDERS_COLUMN, DATE_COLUMN, TIME_COLUMN, SIZE_COLUMN, INSERT_DATE_COLUMN, INSERT_TIME_COLUMN, ORDER_ID_COLUMN,
    BUYER_COLUMN, SELLER_COLUMN, PREV_SIZE_COLUMN, POSITION_COLUMN,
) = range(18)  # fmt: skip
COLUMNS = 18
TEXT_COLUMNS = (TYPE_COLUMN, QUOTE_COLUMN, ORDER_ID_COLUMN, BUYER_COLUMN, SELLER_COLUMN)
TEXT_BYTES = 20  # of a text, at most
DAY_NS, MS_NS = 86_400_000_000_000, 1_000_000
SMALLEST_EXPONENT, DEFAULT_EXPONENT = -9, -2


@inlined
def column_of(d, number):
    return load_i64(d, D_COLUMNS * 8) + number * COLUMN_BYTES


@inlined
def mark_present(d, column, row):
    address = load_i64(d, D_MASKS * 8) + 8 * load_i64(d, D_MASK_WORDS * 8) * row + load_i64(column, C_WORD * 8)
    store_i64(address, 0, load_i64(address, 0) | load_i64(column, C_BIT * 8))


@inlined
def put_number(d, number, row, value):
    column = column_of(d, number)
    values = load_i64(column, C_VALUES * 8)
    if values != 0 and value != NULL:
        if load_i64(column, C_BYTES * 8) == 8:
            store_i64(values, 8 * row, value)
        else:
            store_i32(values, 4 * row, np.int32(value))
        mark_present(d, column, row)


@inlined
def put_byte(column, byte):
    used = load_i64(column, C_USED * 8)
    store_u8(load_i64(column, C_CONTENT * 8), used, np.uint8(byte))
    store_i64(column, C_USED * 8, used + 1)


@outlined
def put_digits(d, number, row, value):
    """A number as text."""
    column = column_of(d, number)
    if load_i64(column, C_VALUES * 8) == 0 or value == NULL:
        return
    remaining = np.uint64(value) if value >= 0 else np.uint64(0) - np.uint64(value)
    if value < 0:
        put_byte(column, 45)
    count, rest = np.int64(1), remaining
    while rest >= np.uint64(10):
        rest //= np.uint64(10)
        count += 1
    content, used = load_i64(column, C_CONTENT * 8), load_i64(column, C_USED * 8)
    for at in range(used + count - 1, used - 1, -1):
        store_u8(content, at, np.uint8(48 + remaining % np.uint64(10)))
        remaining //= np.uint64(10)
    store_i64(column, C_USED * 8, used + count)
    mark_present(d, column, row)


@inlined
def date_of(days):
    """Days since 1970 as yyyymmdd: months are counted from March."""
    shifted = days + 719_468
    era = shifted // 146_097
    of_era = shifted - era * 146_097
    year = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    return (year + era * 400 + (1 if month <= 2 else 0)) * 10_000 + month * 100 + day


@inlined
def time_of(ns):
    """Nanoseconds of a day as hhmmssSSS."""
    ms = ns // MS_NS
    seconds = ms // 1_000
    return ((seconds // 3_600 * 100 + seconds // 60 % 60) * 100 + seconds % 60) * 1_000 + ms % 1_000


@inlined
def put_date_and_time(d, date_column, time_column, row, ts):
    if ts != NULL:
        days = ts // DAY_NS
        put_number(d, date_column, row, date_of(days))
        put_number(d, time_column, row, time_of(ts - days * DAY_NS))


@inlined
def put_price(d, row, price):
    """Two decimals if they suffice, otherwise as few as needed."""
    if price != NULL:
        exponent, unit = np.int64(DEFAULT_EXPONENT), np.int64(10_000_000)
        while price % unit != 0:
            exponent, unit = exponent - 1, unit // 10
        put_number(d, PRICE_COLUMN, row, price // unit)
        put_number(d, EXPONENT_COLUMN, row, exponent)


@outlined
def put_quote_conditions(d, row, flags):
    column = column_of(d, QUOTE_COLUMN)
    if flags & (IMPLIED | RECOVERY) != 0:
        if flags & IMPLIED != 0:
            put_byte(column, 75)  # K
        if flags & IMPLIED != 0 and flags & RECOVERY != 0:
            put_byte(column, 32)
        if flags & RECOVERY != 0:
            put_byte(column, 82)  # R
        mark_present(d, column, row)


@inlined
def end_texts(d, row):
    for number in TEXT_COLUMNS:
        column = column_of(d, number)
        offsets = load_i64(column, C_VALUES * 8)
        if offsets != 0:
            store_i32(offsets, 4 * (row + 1), np.int32(load_i64(column, C_USED * 8)))


@outlined
def fill_entry(d, record, row, rpt_seq):
    for word in range(load_i64(d, D_MASK_WORDS * 8)):
        store_i64(load_i64(d, D_MASKS * 8), 8 * (load_i64(d, D_MASK_WORDS * 8) * row + word), 0)
    is_bid = load_i64(record, SIDE * 8) == BID
    put_number(d, ACTION_COLUMN, row, load_i64(load_i64(d, D_ACTIONS * 8), load_i64(record, KIND * 8) * 8))
    put_byte(column_of(d, TYPE_COLUMN), 48 if is_bid else 49)
    put_number(d, SECURITY_COLUMN, row, load_i64(load_i64(d, D_IDS * 8), load_i64(record, INSTRUMENT * 8) * 8))
    put_number(d, RPT_SEQ_COLUMN, row, rpt_seq)
    put_quote_conditions(d, row, load_i64(record, FLAGS * 8))
    put_price(d, row, load_i64(record, PRICE * 8))
    put_date_and_time(d, DATE_COLUMN, TIME_COLUMN, row, load_i64(record, TS * 8))
    put_number(d, SIZE_COLUMN, row, load_i64(record, SIZE * 8))
    put_date_and_time(d, INSERT_DATE_COLUMN, INSERT_TIME_COLUMN, row, load_i64(record, INSERT * 8))
    put_digits(d, ORDER_ID_COLUMN, row, load_i64(record, ID * 8))
    put_digits(d, BUYER_COLUMN if is_bid else SELLER_COLUMN, row, load_i64(record, FIRM * 8))
    put_number(d, ORDERS_COLUMN, row, load_i64(record, CODE * 8))
    put_number(d, PREV_SIZE_COLUMN, row, load_i64(record, OTHER * 8))
    put_number(d, POSITION_COLUMN, row, load_i64(record, POSITION * 8))
    end_texts(d, row)


@kernel
def fill_columns(d):
    """Fill the columns from the records that are sent; return how many messages they are."""
    records, rows, units = load_i64(d, D_RECORDS * 8), load_i64(d, D_ROWS * 8), load_i64(d, D_UNITS * 8)
    entries, sequences, times = load_i64(d, D_ENTRIES * 8), load_i64(d, D_SEQUENCES * 8), load_i64(d, D_TIMES * 8)
    row, last_unit = np.int64(0), np.int64(-1)
    for number in TEXT_COLUMNS:
        store_i64(column_of(d, number), C_USED * 8, 0)
    for i in range(rows):
        unit = load_i64(units, 8 * i)
        if unit >= 0:
            if unit != last_unit:
                last_unit = unit
                store_i32(entries, 4 * unit, np.int32(row))
                store_u32(sequences, 4 * unit, np.uint32(load_i64(load_i64(d, D_SEQUENCE * 8), 8 * unit)))
                ts = load_i64(load_i64(d, D_TS * 8), 8 * unit)
                days = ts // DAY_NS
                store_i64(times, 8 * unit, date_of(days) * 1_000_000_000 + time_of(ts - days * DAY_NS))
            fill_entry(d, records + i * RECORD_BYTES, row, load_i64(load_i64(d, D_RPT_SEQ * 8), 8 * i))
            row += 1
    store_i32(entries, 4 * (last_unit + 1), np.int32(row))
    return last_unit + 1
