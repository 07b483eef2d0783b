"""Multicast in a network namespace that the test makes, so that nothing can leave this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHILD = Path(__file__).with_name("multicast_client.py")
NO_INTERFACES = 77


def test_lines_on_two_interfaces_are_joined_by_interface_and_give_the_books_of_the_exchange() -> None:
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("needs unshare (util-linux) and ip (iproute2)")
    namespace = ["unshare", "--map-root-user", "--net"]
    if (tried := subprocess.run([*namespace, "true"], capture_output=True, text=True)).returncode:
        pytest.skip(f"a network namespace is not permitted: {tried.stderr.strip()}")
    paths = os.pathsep.join([str(CHILD.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    child = subprocess.run(
        [*namespace, sys.executable, str(CHILD)],
        env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if child.returncode == NO_INTERFACES:
        pytest.skip(child.stdout.strip())
    assert child.returncode == 0, child.stdout + child.stderr
    assert "received by interface" in child.stdout
