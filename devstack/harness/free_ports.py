"""Picks free loopback ports. No two programs in a test run get the same port."""

import os
from pathlib import Path

from devstack.supervisor.ports import STACK_PORTS, PortPicker

# A server starts to listen a second or two after its port was picked, and until then the port looks
# free. Therefore each test process of pytest-xdist picks from a different set of ports.
_PROCESS = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_PROCESSES = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))

OUR_PORTS = STACK_PORTS[_PROCESS::_PROCESSES]

# A picker returns each port only once. ``os.devnull`` makes this picker forget the choices of
# earlier runs.
PICKER = PortPicker(Path(os.devnull), among=OUR_PORTS)


def free_port() -> int:
    return PICKER.pick(f"test server {len(PICKER.chosen_ports)}")
