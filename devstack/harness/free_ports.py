"""Picks free loopback ports. No two programs in a test run get the same port."""

import os
from pathlib import Path

from devstack.supervisor.ports import STACK_PORTS, PortPicker

# Each pytest-xdist process picks from a separate set of ports, because a port looks free until its
# server listens.
_PROCESS = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_PROCESSES = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))

OUR_PORTS = STACK_PORTS[_PROCESS::_PROCESSES]

# Write the chosen ports to ``os.devnull``, so that ``PICKER`` remembers no ports between test runs.
PICKER = PortPicker(Path(os.devnull), among=OUR_PORTS)


def free_port() -> int:
    return PICKER.pick(f"test server {len(PICKER.chosen_ports)}")
