"""Free loopback ports for what tests start, of which no two tests get the same."""

import os
from pathlib import Path

from devstack.supervisor.ports import RANGE, PortPicker

# A server listens a second or two after its port was picked, and in between the port looks free.
# So each of the processes in which tests run picks from ports of its own.
_PROCESS = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_PROCESSES = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))

OUR_PORTS = RANGE[_PROCESS::_PROCESSES]

# A picker gives each port once. This one keeps no choice for the next run.
PICKER = PortPicker(Path(os.devnull), among=OUR_PORTS)


def free_port() -> int:
    return PICKER.pick(f"test server {len(PICKER.chosen)}")
