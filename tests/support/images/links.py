"""Helpers that request signed links to encrypted attachments."""

from collections.abc import Mapping

import httpx2

from tests.support.http.replies import data


def request_link(
    client: httpx2.Client, record: Mapping[str, object], expires_in: object = 60, **more: str
) -> httpx2.Response:
    body = {"expires_in": expires_in, **more}
    return client.post(f"/attachments/{record['hash_id']}/links", json=body)


def new_link(client: httpx2.Client, record: Mapping[str, object], **more: str) -> httpx2.URL:
    return httpx2.URL(data(request_link(client, record, **more))["url"])
