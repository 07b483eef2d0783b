"""From a captured frame to its UDP payload and its flow.

Invariant: nothing is read at or past `end`, the end of the captured bytes; every header is checked before it is
read, so that arbitrary bytes are safe.
"""

from __future__ import annotations

import numpy as np

from ..kernels import (
    inlined,
    load_i32,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    load_u64,
    store_i32,
    store_i64,
    swap_u16,
    swap_u32,
)

# Outcomes of a record. Negative, so that a function can return a position or one of these.
NOT_IP = -1
NOT_UDP = -2
FRAGMENT = -3
MALFORMED = -4  # headers that are truncated or contradict each other
UNKNOWN_LINK = -5

LINK_NULL, LINK_ETHERNET, LINK_LOOP, LINK_SLL, LINK_SLL2 = 0, 1, 108, 113, 276
LINK_RAW, LINK_IPV4, LINK_IPV6 = 101, 228, 229
LINK_DLT_RAW, LINK_DLT_RAW_OPENBSD = 12, 14  # never assigned to files, but found in some

MAX_FLOWS = 65_535  # the range of uint16 without 0, the flow of all others
FLOW_SLOTS = 1 << 17
FLOW_BYTES = 40
MAX_PROBES = 64  # bounds the time that hostile addresses can cost

NO_IP_LENGTH = 1 << 62  # an IP length of zero: to be filled in by the sender's network card

MOST_TAGS = 4  # 802.1Q and the like, of a frame whose record may be damaged
LONGEST_TRAILER = 128  # bytes after an IP packet: padding, checksum, timestamp of a switch

# Checksums of UDP: none to check, right, wrong
UNCHECKED, RIGHT, WRONG = 0, 1, 2


@inlined
def u8(base, at):
    return np.int64(load_u8(base, at))


@inlined
def be16(base, at):
    return np.int64(swap_u16(load_u16(base, at)))


@inlined
def u16(base, at, swapped):
    value = load_u16(base, at)
    if swapped != 0:
        value = swap_u16(value)
    return np.int64(value)


@inlined
def u32(base, at, swapped):
    value = load_u32(base, at)
    if swapped != 0:
        value = swap_u32(value)
    return np.int64(value)


@inlined
def find_ip(buffer, at, end, link):
    """Where the IP header starts, or the outcome of the frame."""
    if link == LINK_ETHERNET:
        header_end = at + 14
        type_at = at + 12
    elif link == LINK_SLL:
        header_end = at + 16
        type_at = at + 14
    elif link == LINK_SLL2:
        header_end = at + 20
        type_at = at
    elif (
        link == LINK_RAW
        or link == LINK_IPV4
        or link == LINK_IPV6
        or link == LINK_DLT_RAW
        or link == LINK_DLT_RAW_OPENBSD
    ):
        return at
    elif link == LINK_NULL or link == LINK_LOOP:
        if end - at < 4:
            return MALFORMED
        # The protocol family in the byte order of the machine that captured, whichever that was; AF_INET is 2
        # everywhere, AF_INET6 is 10 (Linux), 24 (NetBSD), 28 (FreeBSD) or 30 (macOS).
        family = u32(buffer, at, 0)
        if family > 0xFFFF:
            family = u32(buffer, at, 1)
        if family == 2 or family == 10 or family == 24 or family == 28 or family == 30:
            return at + 4
        return NOT_IP
    else:
        return UNKNOWN_LINK
    if header_end > end:
        return MALFORMED
    kind = be16(buffer, type_at)
    # 802.1Q, 802.1ad and the older types of stacked tags, in any number
    while kind == 0x8100 or kind == 0x88A8 or kind == 0x9100 or kind == 0x9200 or kind == 0x9300:
        if end - header_end < 4:
            return MALFORMED
        kind = be16(buffer, header_end + 2)
        header_end += 4
    if kind == 0x0800 or kind == 0x86DD:
        return header_end
    return NOT_IP


@inlined
def frame_fits(buffer, at, end, frame_end, link):
    """Whether bytes look like the start of a frame that ends at `frame_end`, if its record may be damaged.

    No loop depends on the bytes, because it is called for every byte of a damaged range.
    """
    ip = at
    if link == LINK_ETHERNET or link == LINK_SLL or link == LINK_SLL2:
        type_at, ip = at + 12, at + 14
        if link == LINK_SLL:
            type_at, ip = at + 14, at + 16
        elif link == LINK_SLL2:
            type_at, ip = at, at + 20
        for _ in range(MOST_TAGS):
            if end - ip < 20:
                return False
            kind = be16(buffer, type_at)
            if kind != 0x8100 and kind != 0x88A8 and kind != 0x9100 and kind != 0x9200 and kind != 0x9300:
                break
            type_at, ip = ip + 2, ip + 4
        if end - ip < 20:
            return False
        kind = be16(buffer, type_at)
        if kind == 0x0806:
            return be16(buffer, ip) == 1 and be16(buffer, ip + 2) == 0x0800  # ARP, of IPv4 on Ethernet
        if kind != 0x0800 and kind != 0x86DD:
            return False
    elif link == LINK_NULL or link == LINK_LOOP:
        ip = at + 4
    elif find_ip(buffer, at, end, link) == UNKNOWN_LINK:
        return True
    if end - ip < 20:
        return False
    version = u8(buffer, ip) >> 4
    size = be16(buffer, ip + 2)
    if version == 6:
        size = be16(buffer, ip + 4)
        size += 40 if size != 0 else 0
    elif version != 4 or u8(buffer, ip) & 15 < 5:
        return False
    # Without a length the network card fills it in; after the packet there may be padding and a trailer.
    return size == 0 or (size >= 20 and 0 <= frame_end - ip - size <= LONGEST_TRAILER)


@inlined
def find_udp_ipv4(buffer, ip, end):
    """Where the UDP header starts (or the outcome of the packet), and where the IP packet ends."""
    if end - ip < 20:
        return MALFORMED, ip
    header = (u8(buffer, ip) & 15) * 4
    total = be16(buffer, ip + 2)
    packet_end = ip + total
    if total == 0:
        packet_end = NO_IP_LENGTH
    elif total < header:
        return MALFORMED, ip
    if header < 20:
        return MALFORMED, ip
    if be16(buffer, ip + 6) & 0x3FFF:  # more fragments, or an offset
        return FRAGMENT, ip
    if u8(buffer, ip + 9) != 17:
        return NOT_UDP, ip
    return ip + header, packet_end


@inlined
def find_udp_ipv6(buffer, ip, end):
    """The same for IPv6, after its extension headers (RFC 8200 section 4)."""
    if end - ip < 40:
        return MALFORMED, ip
    length = be16(buffer, ip + 4)
    packet_end = ip + 40 + length
    if length == 0:
        packet_end = NO_IP_LENGTH
    kind = u8(buffer, ip + 6)
    at = ip + 40
    while kind != 17:
        # hop-by-hop, routing, destination, mobility; fragment; authentication
        options = kind == 0 or kind == 43 or kind == 60 or kind == 135
        if not (options or kind == 44 or kind == 51):
            return NOT_UDP, ip
        if end - at < 8:
            return MALFORMED, ip
        if kind == 44:
            if be16(buffer, at + 2) & 0xFFF9:  # an offset, or more fragments; neither is an atomic one (RFC 6946)
                return FRAGMENT, ip
            size = 8
        elif kind == 51:
            size = (u8(buffer, at + 1) + 2) * 4
        else:
            size = (u8(buffer, at + 1) + 1) * 8
        kind = u8(buffer, at)
        at += size
    return at, packet_end


@inlined
def find_payload(buffer, at, end, link):
    """(IP header or outcome, start of the payload, its end by the headers: past `end` when the frame is truncated)."""
    ip = find_ip(buffer, at, end, link)
    if ip < 0:
        return ip, ip, ip
    if ip >= end:
        return MALFORMED, ip, ip
    version = u8(buffer, ip) >> 4
    if version == 4:
        udp, packet_end = find_udp_ipv4(buffer, ip, end)
    elif version == 6:
        udp, packet_end = find_udp_ipv6(buffer, ip, end)
    else:
        return MALFORMED, ip, ip
    if udp < 0:
        return udp, ip, ip
    if end - udp < 8:
        return MALFORMED, ip, ip
    # The lengths of the headers, not of the frame: short Ethernet frames are padded.
    length = be16(buffer, udp + 4)
    if length < 8 or udp + length > packet_end:
        return MALFORMED, ip, ip
    return ip, udp + 8, udp + length


@inlined
def sum_words(base, start, size):
    """The sum of little-endian words (RFC 1071 section 2: any byte order works), not folded."""
    total = np.uint64(0)
    for place in range(size >> 3):
        words = load_u64(base, start + place * 8)
        total += (words & np.uint64(0xFFFFFFFF)) + (words >> np.uint64(32))
    tail = start + (size & ~7)
    if size & 4:
        total += np.uint64(load_u32(base, tail))
        tail += 4
    if size & 2:
        total += np.uint64(load_u16(base, tail))
        tail += 2
    if size & 1:
        total += np.uint64(load_u8(base, tail))
    return np.int64(total)


@inlined
def folded(total):
    """A sum of 16-bit or 32-bit words, folded to 16 bits."""
    total = (total & 0xFFFFFFFF) + (total >> 32)
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    return (total & 0xFFFF) + (total >> 16)


@inlined
def check_udp(buffer, ip, udp, end):
    """Whether the checksum of a complete UDP packet is right (RFC 768; RFC 8200 section 8.1 for IPv6)."""
    checksum = np.int64(load_u16(buffer, udp + 6))
    if checksum == 0:
        return UNCHECKED
    if u8(buffer, ip) >> 4 == 4:
        pseudo = sum_words(buffer, ip + 12, 8)
    elif udp == ip + 40:
        pseudo = sum_words(buffer, ip + 8, 32)
    else:  # after a routing header the destination differs from the one in the sum
        return UNCHECKED
    pseudo += (17 << 8) + np.int64(load_u16(buffer, udp + 4))
    if folded(pseudo + sum_words(buffer, udp, end - udp)) == 0xFFFF:
        return RIGHT
    # Packets captured on their sender: the network card completes the sum later, so it covers only the pseudo header.
    return UNCHECKED if checksum == folded(pseudo) else WRONG


@inlined
def find_flow(slots, flows, flow_count, buffer, ip, udp):
    """(index of the packet's flow, number of flows known now); index 0 once the table is full."""
    ports = load_i32(buffer, udp)
    if u8(buffer, ip) >> 4 == 4:
        source_0, source_1 = np.int64(load_u32(buffer, ip + 12)), np.int64(0)
        dest_0, dest_1 = np.int64(load_u32(buffer, ip + 16)), np.int64(0)
        tail = np.int64(ports) & 0xFFFFFFFF | 4 << 32
    else:
        source_0, source_1 = load_i64(buffer, ip + 8), load_i64(buffer, ip + 16)
        dest_0, dest_1 = load_i64(buffer, ip + 24), load_i64(buffer, ip + 32)
        tail = np.int64(ports) & 0xFFFFFFFF | 6 << 32
    hashed = source_0 * 0x1E3779B97F4A7C15 ^ source_1 * 0x27D4EB2F165667C5
    hashed = (hashed ^ hashed >> 31 ^ dest_0) * 0x165667B19E3779F9 ^ dest_1 * 0x3F58476D1CE4E5B9
    hashed = (hashed ^ hashed >> 29 ^ tail) * 0x14D049BB133111EB
    slot = hashed >> 32
    for _ in range(MAX_PROBES):
        slot &= FLOW_SLOTS - 1
        flow = np.int64(load_i32(slots, slot * 4))
        if flow == 0:
            if flow_count == MAX_FLOWS:
                return flow, flow_count
            flow_count += 1
            store_i32(slots, slot * 4, np.int32(flow_count))
            record = flow_count * FLOW_BYTES
            store_i64(flows, record, source_0)
            store_i64(flows, record + 8, source_1)
            store_i64(flows, record + 16, dest_0)
            store_i64(flows, record + 24, dest_1)
            store_i64(flows, record + 32, tail)
            return flow_count, flow_count
        record = flow * FLOW_BYTES
        if (
            load_i64(flows, record) == source_0
            and load_i64(flows, record + 8) == source_1
            and load_i64(flows, record + 16) == dest_0
            and load_i64(flows, record + 24) == dest_1
            and load_i64(flows, record + 32) == tail
        ):
            return flow, flow_count
        slot += 1
    return np.int64(0), flow_count
