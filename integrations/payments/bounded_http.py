"""How Stripe's library talks HTTP when we let it: bounded in time and size, never elsewhere.

The library's own clients follow redirects or bound each read alone.
"""

import time
from collections.abc import Mapping
from typing import Any

import httpx
import stripe

_CONNECT_SECONDS = 2.0
_MAX_REPLY_BYTES = 4 * 1024 * 1024


class _Cut(Exception):
    """A reply too long or too slow to be read to its end."""


class BoundedHttp(stripe.HTTPClient):
    """For any number of threads at once. ``seconds`` is what one attempt may take."""

    name = "httpx"

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds
        self._client = httpx.Client(
            timeout=httpx.Timeout(seconds, connect=min(seconds, _CONNECT_SECONDS)),
            headers={"Accept-Encoding": "identity"},
            follow_redirects=False,
            trust_env=False,
        )

    def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None,
        post_data: Any = None,
        **_: object,
    ) -> tuple[str, int, Mapping[str, str]]:
        deadline = time.monotonic() + self._seconds
        try:
            with self._client.stream(method, url, headers=headers, content=post_data) as reply:
                return _read(reply, deadline), reply.status_code, reply.headers
        except (httpx.HTTPError, _Cut) as error:
            # Not its text: that may quote addresses.
            raise stripe.APIConnectionError(type(error).__name__, should_retry=True) from None  # type: ignore[no-untyped-call]

    def close(self) -> None:
        self._client.close()


def _read(reply: httpx.Response, deadline: float) -> str:
    body = bytearray()
    for part in reply.iter_raw():
        body += part
        if len(body) > _MAX_REPLY_BYTES or time.monotonic() > deadline:
            raise _Cut
    return body.decode("utf-8", "replace")
