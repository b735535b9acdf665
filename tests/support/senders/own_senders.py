"""Creates senders through the API."""

from typing import Any

import httpx2

from tests.support.http.replies import data


def new_sender(client: httpx2.Client, **fields: object) -> dict[str, Any]:
    """Create a sender, and return the response, which contains the secret."""
    body = {"name": "Our mail server", "provider": "generic", **fields}
    return dict(data(client.post("/senders", json=body)))
