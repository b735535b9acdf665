"""Makes Stripe's library use our bounded client: its own ones follow redirects, or bound each read
alone."""

from collections.abc import Mapping
from typing import Any

import stripe

from integrations.http_client import HttpBounds, HttpClient, HttpFailure, reason_of

_MAX_CONNECT_SECONDS = 2.0
_MAX_REPLY_BYTES = 4 * 1024 * 1024


class StripeHttpClient(stripe.HTTPClient):
    """For any number of threads at once. ``seconds`` bounds one attempt."""

    name = "httpx"

    def __init__(self, seconds: float) -> None:
        super().__init__()
        bounds = HttpBounds(
            seconds, _MAX_CONNECT_SECONDS, _MAX_REPLY_BYTES, provider="payment provider"
        )
        self._client = HttpClient(bounds)

    def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None,
        post_data: Any = None,
        **_: object,
    ) -> tuple[str, int, Mapping[str, str]]:
        try:
            reply = self._client.send(method, url, headers=headers, content=post_data)
        except HttpFailure as failure:
            raise stripe.APIConnectionError(reason_of(failure), should_retry=True) from None  # type: ignore[no-untyped-call]
        return reply.body.decode("utf-8", "replace"), reply.status, reply.headers

    def close(self) -> None:
        self._client.close()
