"""Calls to the traced stack, and the names of the spans that start their traces."""

from typing import Any

import httpx2

from tests.support.images.pictures import photo

UPLOAD = "POST /attachments"
IMPORT = "POST /lists/{list_id}/imports"
COMPOSE = "POST /composer/metadata"
# The run of the language model that the traced stack uses.
MODEL_RUN = "traces"


def upload(client: httpx2.Client, name: str = "holiday.jpg", **options: Any) -> dict[str, Any]:
    """Upload a photo, and return its attachment once it is converted."""
    headers = {"Prefer": "wait=60"}
    files = {"file": (name, photo())}
    reply = client.post("/attachments", files=files, headers=headers, **options)
    assert reply.status_code == 200, reply.text
    attachment: dict[str, Any] = reply.json()["data"]
    return attachment
