import threading
from collections.abc import Iterator

import pytest
import uvicorn

from devstack.ports import LOOPBACK
from devstack.sandbox.app import create_app
from tests.integrations.challenges.server import Server, serving
from tests.stack import eventually


@pytest.fixture(scope="session")
def sandbox() -> Iterator[str]:
    """The sandbox's URL."""
    config = uvicorn.Config(create_app(), host=LOOPBACK, port=0, log_config=None)
    server = uvicorn.Server(config)
    # A reply to a slow token is nothing to wait for.
    config.timeout_graceful_shutdown = 1
    thread = threading.Thread(target=server.run)
    thread.start()
    eventually(lambda: server.started, what="the sandbox")
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://{LOOPBACK}:{port}"
    server.should_exit = True
    thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    """A provider that says what the test tells it to."""
    with serving() as running:
        yield running
