"""API calls of the tracing tests, and the name of the first span in the trace of each call."""

from typing import Any

import httpx2

from tests.support.images.pictures import photo

COMPOSE = "POST /composer/metadata"
# The name under which the sandbox's language model counts the requests of the tracing tests.
MODEL_RUN = "traces"


def upload(client: httpx2.Client, name: str = "holiday.jpg", **options: Any) -> dict[str, Any]:
    """Upload a photo, wait until it is converted, and return the attachment."""
    headers = {"Prefer": "wait=60"}
    files = {"file": (name, photo())}
    reply = client.post("/attachments", files=files, headers=headers, **options)
    assert reply.status_code == 200, reply.text
    attachment: dict[str, Any] = reply.json()["data"]
    return attachment
