import time

import pytest

from core.errors import ServerFailed
from devstack.harness.stack import Stack
from storage import objects
from storage.objects import ObjectStore
from tests.support.http.servers import trickling_server

# The maximum duration of a call to a storage server whose response never ends. MAX_SECONDS is much
# longer than the call budget of 0.5 seconds, because a slow machine may abort the call late.
MAX_SECONDS = 8.0


@pytest.mark.parametrize(
    ("head", "drip"),
    [(b"HTTP/1.1 200 OK\r\nX-Long: ", b"x"), (b"HTTP/1.1 200 OK\r\n\r\n", b"x"), (b"", b"")],
    ids=["header", "body", "silence"],
)
def test_trickling_or_silent_storage_response_is_aborted_within_the_call_budget(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, head: bytes, drip: bytes
) -> None:
    monkeypatch.setattr(objects, "MAX_CALL_SECONDS", 0.5)
    with trickling_server(head, drip) as url:
        settings = stack.settings().model_copy(
            update={"s3_endpoint": type(stack.settings().s3_endpoint)(url)}
        )
        store = ObjectStore(settings, connections=1)
        began_at = time.monotonic()
        with pytest.raises(ServerFailed):
            store.get("media/x")
        assert time.monotonic() - began_at < MAX_SECONDS
