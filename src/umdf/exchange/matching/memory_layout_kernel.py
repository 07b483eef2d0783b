"""The memory layout of the bulk market: offsets in its tables, all of int64, and the kinds of records in its journal.

Invariant: nothing here depends on a protocol. `publish.events` defines what a record of the journal means as an event.
"""

from __future__ import annotations

# Entries of the table of arguments and state that every kernel of the market is called with.
# The journal: its address, rows and capacity; the free rows that one event needs; the row count to stop at.
RNG, JOURNAL, ROWS, CAPACITY, MARGIN, ROW_TARGET = 0, 1, 2, 3, 4, 5
INSTRUMENTS, COUNT, ORDERS, SCRATCH = 6, 7, 8, 9
UNTIL, LAST_TS, NEXT_ARRIVAL, REGIME_END, SILENT_UNTIL, MEAN_INTERARRIVAL, BASE_INTERARRIVAL = range(10, 17)
NEAR_EXPIRIES, NEAR_COUNT, FAR_EXPIRIES, FAR_COUNT, EXPIRY_CAPACITY = 17, 18, 19, 20, 21  # two heaps of order expiries
LIFETIMES, INTERARRIVALS, DEPTHS = 22, 23, 24  # tables of quantiles
WEIGHTED_INSTRUMENTS = 25  # every instrument as often as it is active
ORDER_ID, IMPLIED_ID, FIRST, STOP, GROUP, STATE_SELECTED, HEARTBEAT_NS = range(26, 33)
AUCTION_RESULT = 34  # three entries, see `auction_price_kernel`
# Orders entered from Python: where they are (`order_index_kernel`), market-on-close orders that wait for the closing
# call, how long an auction that a price band starts takes, what an aggressor did, and an order that was looked up.
ORDER_INDEX, INDEX_MASK, INDEX_COUNT, WAITING, WAITING_COUNT, WAITING_CAPACITY, AUCTION_NS = range(37, 44)
RESTING_ID, TRADED, CANCELLED, STARTED_AUCTION, FOUND_BOOK_SIDE, FOUND_KEY, FOUND_ID = range(44, 51)
# Implied orders (`implied_orders_kernel`): the strategies of every instrument, the queue of those whose implied orders
# have to be derived again, the key of the newest, and that of the price at which an aggressor has traded last.
STRATEGIES, IMPLIED_QUEUE, IMPLIED_QUEUE_COUNT, IMPLIED_KEY, LAST_KEY = range(51, 56)
BASKETS = 56  # what the indexes are made of that instruments follow: rows and weights (`fair_price_kernel`)
ARGUMENTS = 64

QUANTILES = 4096  # of each table
WEIGHTED_COUNT = 1 << 17
MAX_FLOW_FILLS = 16  # of one aggressor of the order flow
MAX_FILLS = 256  # of another aggressor in one event
MAX_LEG_ORDERS = 64  # of a leg that an implied order stands for


# Columns of a record of the journal. INSTRUMENT is an index in the listing; numbers are given by who publishes it.
(
    KIND,
    INSTRUMENT,
    TS,
    FLAGS,
    SIDE,
    PRICE,
    SIZE,
    ID,
    FIRM,
    OTHER,
    POSITION,
    INSERT,
    CODE,
    AUX,
) = range(14)
RECORD_COLUMNS = 14
RECORD_BYTES = 8 * RECORD_COLUMNS
NULL = -(1 << 63)
BID, ASK, NO_SIDE = 66, 65, 78  # as events name a side: B, A, N

# Bits of FLAGS: the events' own, and two of the journal.
LAST, SNAPSHOT, IMPLIED, RECOVERY = 128, 32, 256, 512
DELETED, BUSTED = 1 << 20, 1 << 21  # a statistic is deleted; a trade will be busted later
UPTICK, DOWNTICK = 1 << 22, 1 << 23  # a trade above or below the last price (274)
AFTER_MARKET = 1 << 24  # of the session after the market (336=6), set by the live exchange

# Kinds of records.
(
    ADD,
    CHANGE,
    DELETE,
    DELETE_FROM,
    DELETE_THRU,
    EMPTY_BOOK,
    CHANNEL_RESET,
    SNAPSHOT_ORDER,
    TRADE,
    BUST,
    EXECUTION_SUMMARY,
    OPENING,
    THEORETICAL,
    CLOSING,
    SETTLEMENT,
    HIGH,
    LOW,
    EXECUTION,
    VOLUME,
    OPEN_INTEREST,
    LAST_PRICE,
    IMBALANCE,
    PRICE_BAND,
    QUANTITY_BAND,
    GROUP_PHASE,
    STATE,
    DEFINITION,
    NEWS,
    SNAPSHOT_HEADER,
    HEARTBEAT,
    SEQUENCE_RESET,
    INDEX_VALUE,
    VOLATILITY,
    COMPOSITE,
) = range(34)
KINDS = 34

# An instrument.
I_ID, I_TICK, I_REFERENCE, I_LOT, I_STATE, I_GROUP, I_INDEX, I_TYPE = 0, 1, 2, 3, 4, 5, 6, 7
I_BIDS, I_ASKS, I_CAPACITY, I_ORDERS_OFFSET, I_IMPLIED, I_STRATEGIES, I_STRATEGY_COUNT, I_BOUND = range(8, 16)
I_TRADE_ID, I_LAST, I_HIGH, I_LOW, I_QUANTITY, I_TURNOVER, I_TRADES, I_PREVIOUS_CLOSE = 16, 17, 18, 19, 20, 21, 22, 23
I_BUST_ID, I_BUST_PRICE, I_BUST_SIZE, I_BUST_TS, I_BUST_BUYER, I_BUST_SELLER = 24, 25, 26, 27, 28, 29
I_EVENT, I_OPENED, I_PHASE, I_VOLUME_TRADES, I_STATE_TS = 30, 31, 32, 33, 34  # 1174 as last sent; the group's phase
# The fair price: a random walk in 2^-16 ticks and its time, whose walk it follows and how much (2^-16), its volatility
# (2^-16 ticks in a second). I_BOUND is how far from the reference orders go, in ticks.
I_WALK, I_WALK_TS, I_DRIVER, I_BETA, I_VOLATILITY = 35, 36, 37, 38, 39
# Legs of a strategy, -1 where there is none, and their ratios, below 0 if sold. The first is bought once.
I_LEGS, I_RATIOS, MAX_LEGS = 40, 44, 4
# I_IMPLIED: a strategy that has implied orders (14), and for each side the id and the key of the newest. I_STRATEGIES:
# where the strategies are in STRATEGIES that have the instrument as a leg, or are it. I_HAS_LEG_TRADES: 1378.
I_IMPLIED_IDS, I_IMPLIED_KEYS, I_IS_QUEUED, I_HAS_LEG_TRADES = 48, 50, 52, 53
# A simultaneous auction that is about to end rejects orders (15.2): why.
I_SYNCHRONISM = 54
OF_PHASE, OF_INSTRUMENT = 1, 2  # the auction of a phase, one of its own
# How many of ALL_ARRIVALS arrivals of the order flow the instrument skips.
I_SKIPPED, ALL_ARRIVALS = 55, 1_024
# Of a stock the index whose walk it moves with (-1: none), and how much (2^-32); of an index that instruments follow
# where its stocks are in BASKETS.
I_MARKET, I_MARKET_BETA, I_BASKET, I_BASKET_COUNT = range(56, 60)
I_STATISTICS = 60
UNKNOWN, PAUSE, CLOSE, OPEN, RESERVED, FINAL_CLOSING_CALL = 0, 2, 4, 17, 21, 101  # states and phases (11.1)
FORBIDDEN = PRE_CLOSE = 18
SESSION_CHANGE, SEPARATES, REJOINS = 4, 101, 102  # 1174

# Its statistics, as last published. Binary has no template for those from S_VOLUME on.
(
    S_OPENING,
    S_THEORETICAL,
    S_PREVIOUS_CLOSING,
    S_CLOSING,
    S_PREVIOUS_SETTLEMENT,
    S_SETTLEMENT,
    S_HIGH,
    S_LOW,
    S_EXECUTION,
    S_OPEN_INTEREST,
    S_LAST,
    S_IMBALANCE,
    S_HARD_LIMITS,
    S_REJECTION_BAND,
    S_QUANTITY_BAND,
    S_AUCTION_BAND,
    S_STATIC_LIMITS,
    S_REFERENCE_PRICE,
    S_VOLUME,
    S_EXERCISE_VOLUME,
    S_EX_PIT_VOLUME,
    S_INDEX_VALUE,
    S_VOLATILITY,
    S_COMPOSITE,
) = range(24)
STATISTICS, BINARY_STATISTICS = 24, 18
V_KIND, V_SIDE, V_PRICE, V_SIZE, V_ID, V_FIRM, V_OTHER, V_CODE, V_AUX, V_TS, V_PRESENT = range(11)
STATISTIC_WORDS = 11
INSTRUMENT_WORDS = I_STATISTICS + STATISTICS * STATISTIC_WORDS
INSTRUMENT_BYTES = 8 * INSTRUMENT_WORDS

# An order. A side is sorted, its best order last: by key (higher is better on both sides), then by id (lower is).
# O_SIZE is displayed, O_RESERVE is not; O_DISPLAY is what a refill displays, 0: as much as before. O_TERMS is 0 for
# orders of the flow, else the last day on which the order is valid (EXPIRY_SHIFT), and whose orders it does not trade
# with (0: trades with all).
O_KEY, O_ID, O_SIZE, O_RESERVE, O_FIRM, O_INSERT, O_DISPLAY, O_TERMS = 0, 1, 2, 3, 4, 5, 6, 7
ORDER_WORDS, ORDER_BYTES = 8, 64
EXPIRY_SHIFT, STP_MASK = 32, (1 << 32) - 1
FIRST_IMPLIED_ID = 1 << 62  # ids of implied orders are larger than those of others (9.1)
DAY, GOOD_TILL_CANCELLED = 1, (1 << 31) - 1  # as the last day; others are days since 1970
MARKET_ORDER_KEY = 1 << 40  # the key of a MOA or MOC order: before every price (9.1)

WAITING_KEY = 1 << 41  # where an order waits for the closing call
MAX_ORDER_LOTS = 100_000

# The scratch memory: the fills of an aggressor (price, size and maker), an expiry, an order, two of a strategy (its
# implied order, and the one that trades with it), orders to be refilled.
FILLS_OFFSET, FILL_BYTES = 0, 24
ENTRY_OFFSET = FILLS_OFFSET + MAX_FILLS * FILL_BYTES
AGGRESSOR_OFFSET = ENTRY_OFFSET + 64
IMPLIED_OFFSET, RESTING_OFFSET = AGGRESSOR_OFFSET + ORDER_BYTES, AGGRESSOR_OFFSET + 2 * ORDER_BYTES
REFILLS_OFFSET = AGGRESSOR_OFFSET + 3 * ORDER_BYTES

# An expiry: when a simulated order is cancelled.
E_TS, E_BOOK_SIDE, E_KEY, E_ID = 0, 8, 16, 24
EXPIRY_BYTES = 32
NEAR_NS = 100_000_000  # earlier expiries are in the near heap

# Conditions of trades, as events have them: C_LAST is a trade at the price of the one before.
C_OPENING, C_CROSSED, C_LAST, C_OUT_OF_SEQUENCE, C_REGULAR, C_LEG = 1, 2, 4, 8, 1 << 13, 1 << 18
NEVER_LAST_PRICE = C_LEG | C_OUT_OF_SEQUENCE  # such a trade does not change the last price (13.4)
BAND_LIMIT_TYPE, BAND_MIDPOINT = 8, 16  # bits of CODE of a price band: 6939, 1306 and 37008 + 1 (0: absent)
HAS_TRADED, HAS_OPENING_PRICE = 1, 2  # bits of I_OPENED
