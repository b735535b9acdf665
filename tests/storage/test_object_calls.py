import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from core.errors import ServerFailed
from storage import objects
from storage.objects import ObjectStore
from tests.stack import Stack

# Far more than the budget that the tests set, far less than an answer would take.
HANGING = 8.0


@contextmanager
def trickling(head: bytes, drip: bytes) -> Iterator[str]:
    """A server that answers with these bytes, and then drips without an end."""
    over = threading.Event()

    def answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(65536)
            connection.sendall(head)
            while not over.wait(0.05):
                connection.sendall(drip)

    def serve() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            over.set()


@pytest.mark.parametrize(
    ("head", "drip"),
    [(b"HTTP/1.1 200 OK\r\nX-Long: ", b"x"), (b"HTTP/1.1 200 OK\r\n\r\n", b"x"), (b"", b"")],
    ids=["header", "body", "silence"],
)
def test_answer_that_trickles_ends_within_the_budget_of_the_call(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, head: bytes, drip: bytes
) -> None:
    monkeypatch.setattr(objects, "MAX_CALL_SECONDS", 0.5)
    with trickling(head, drip) as url:
        settings = stack.settings().model_copy(
            update={"s3_endpoint": type(stack.settings().s3_endpoint)(url)}
        )
        store = ObjectStore(settings, connections=1)
        began = time.monotonic()
        with pytest.raises(ServerFailed):
            store.get("media/x")
        assert time.monotonic() - began < HANGING
