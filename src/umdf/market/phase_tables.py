"""Phases of groups, states of instruments, and how messages change them: tables, from which those in docs/phases.md are
generated."""

from __future__ import annotations

# 625 and 326 (11.1, 11.2): the group's name of a phase, the instrument's name of the same state.
PAUSE, CLOSE, OPEN, PRE_CLOSE, UNKNOWN, PRE_OPEN, FINAL_CLOSING_CALL = 2, 4, 17, 18, 20, 21, 101
PHASES = {
    PAUSE: ("pause", "pause"),
    CLOSE: ("close", "close"),
    OPEN: ("open", "open"),
    PRE_CLOSE: ("pre-close", "forbidden"),
    UNKNOWN: ("unknown", "unknown"),
    PRE_OPEN: ("pre-open", "reserved"),
    FINAL_CLOSING_CALL: ("final closing call", "final closing call"),
}
REGULAR, NON_REGULAR = 1, 6  # 336
SESSION_CHANGE, SEPARATES, REJOINS = 4, 101, 102  # 1174

# Membership. An instrument follows by default (11.2); one that was created during the session is unknown until its own
# first status, whatever its group's messages say (7.1).
FOLLOWING, SEPARATED, NEW = "following", "separated", "new"
MEMBERSHIPS = (FOLLOWING, SEPARATED, NEW)
# How 326 compares with the stored 625. A phase that is not known is different from every state.
EQUAL, DIFFERENT = "equal", "different"
RELATIONS = (EQUAL, DIFFERENT)
# Effect on the instrument's own state.
STORE, REMOVE, KEEP, INFER = "store 326", "remove 326", "keep", "remove 326, 625 is 326"

# An instrument's own message (48 and 326): 1174, membership, relation → membership, what to do.
Transition = tuple[str, str]
INSTRUMENT_MESSAGE: dict[tuple[int | None, str, str], Transition] = {
    # With the event nothing is inferred (11); the phase may be inferred from a rejoin (11 NOTE).
    **{(SEPARATES, m, r): (SEPARATED, STORE) for m in MEMBERSHIPS for r in RELATIONS},
    **{(REJOINS, m, r): (FOLLOWING, INFER) for m in MEMBERSHIPS for r in RELATIONS},
    # A feed without the event: the first table of legacy 14.6. New counts as following, as by default.
    (None, SEPARATED, EQUAL): (FOLLOWING, REMOVE),
    (None, SEPARATED, DIFFERENT): (SEPARATED, STORE),
    (None, FOLLOWING, EQUAL): (SEPARATED, STORE),
    (None, FOLLOWING, DIFFERENT): (SEPARATED, STORE),
    (None, NEW, EQUAL): (SEPARATED, STORE),
    (None, NEW, DIFFERENT): (SEPARATED, STORE),
    # Another event (4: the session changes) replaces 101 and 102 and leaves membership unchanged.
    (SESSION_CHANGE, SEPARATED, EQUAL): (SEPARATED, STORE),
    (SESSION_CHANGE, SEPARATED, DIFFERENT): (SEPARATED, STORE),
    **{(SESSION_CHANGE, FOLLOWING, r): (FOLLOWING, KEEP) for r in RELATIONS},
    # As a new instrument's first status it still ends the unknown state (7.1), with what a snapshot's would say.
    (SESSION_CHANGE, NEW, EQUAL): (FOLLOWING, REMOVE),
    (SESSION_CHANGE, NEW, DIFFERENT): (SEPARATED, STORE),
}
# A group's message (1151 and 625): the second table of legacy 14.6. 625 is stored in every case.
GROUP_MESSAGE: dict[tuple[str, str], str] = {
    (SEPARATED, EQUAL): SEPARATED,
    (SEPARATED, DIFFERENT): SEPARATED,
    (FOLLOWING, EQUAL): FOLLOWING,
    (FOLLOWING, DIFFERENT): FOLLOWING,
    (NEW, EQUAL): NEW,
    (NEW, DIFFERENT): NEW,
}
# A snapshot's status (11.4: 625 and 326 may come together), and the first one after a channel reset, when the states of
# all instruments are sent again (13.9). It replaces what was known of the instrument, so membership does not matter;
# without the event, a state that differs from the phase is a separated one.
SNAPSHOT_STATUS: dict[tuple[int | None, str], Transition] = {
    **{(SEPARATES, r): (SEPARATED, STORE) for r in RELATIONS},
    **{(REJOINS, r): (FOLLOWING, INFER) for r in RELATIONS},
    (None, EQUAL): (FOLLOWING, REMOVE),
    (None, DIFFERENT): (SEPARATED, STORE),
    (SESSION_CHANGE, EQUAL): (FOLLOWING, REMOVE),
    (SESSION_CHANGE, DIFFERENT): (SEPARATED, STORE),
}
