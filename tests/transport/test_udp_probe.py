from __future__ import annotations

from umdf.transport.udp_probe import granted_receive_buffer_bytes, multicast_error


def test_a_small_buffer_is_granted_and_an_absurd_one_is_not() -> None:
    assert granted_receive_buffer_bytes(64 << 10) == 64 << 10
    assert granted_receive_buffer_bytes(2**30 - 1) < 2**30 - 1


def test_multicast_error_is_empty_or_one_line() -> None:
    assert "\n" not in multicast_error()


def test_a_timeout_is_returned_as_text() -> None:
    assert isinstance(multicast_error(wait_s=1e-6), str)
