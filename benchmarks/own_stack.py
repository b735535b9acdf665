"""Starts a temporary stack for a single benchmark."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from devstack.harness.embedded_services import embedded_services
from devstack.harness.opening import open_stack
from devstack.harness.stack import Stack
from devstack.supervisor.ports import PortPicker


@contextmanager
def own_stack(name: str) -> Iterator[Stack]:
    """Run the services of a temporary stack during the ``with`` block.

    The caller must start the Pressroom processes that the benchmark needs.
    """
    with TemporaryDirectory(prefix="pressroom-bench-") as directory:
        home = Path(directory)
        port = PortPicker(home / "ports.json").pick("api")
        with (
            embedded_services(home) as services,
            open_stack(services, home, name, 1, port) as stack,
        ):
            yield stack
