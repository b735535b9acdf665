"""Creates senders through the API. A sender is a registered source of reports about mails."""

from typing import Any

import httpx2

from tests.support.http.replies import data


def new_sender(client: httpx2.Client, **fields: object) -> dict[str, Any]:
    body = {"name": "Our mail server", "provider": "generic", **fields}
    return dict(data(client.post("/senders", json=body)))
