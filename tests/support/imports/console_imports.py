"""Helpers for tests in which an owner uploads a file of members in the web console."""

import re
from typing import Any
from urllib.parse import urlsplit

import httpx2

from tests.support.http.replies import data
from tests.support.people.consoles import OwnerAtConsole, await_ended_page, forms_of

NEW_IMPORT = "/console/imports/new"


def send_file(
    console: OwnerAtConsole,
    list_id: object,
    content: bytes,
    name: str = "members.csv",
    /,
    **typed: str,
) -> httpx2.Response:
    [(action, values)] = forms_of(console.visitor.get(NEW_IMPORT))
    form = {**values, "list_id": str(list_id), **typed}
    form.pop("file")
    files = {"file": (name, content)} if name else {"file": ("", b"")}
    return console.visitor.client.post(action, data=form, files=files)


def preview_import(
    console: OwnerAtConsole, list_id: int, content: bytes, name: str = "members.csv", **typed: str
) -> str:
    """Upload a file in the console, wait for the preview, and return the path of the preview."""
    reply = send_file(console, list_id, content, name, **typed)
    assert reply.status_code == 303, reply.text
    path = urlsplit(reply.headers["location"]).path
    await_ended_page(console, path)
    return path


def get_import(console: OwnerAtConsole, path: str) -> dict[str, Any]:
    return dict(data(console.api.get(f"/imports/{path.rpartition('/')[2]}")))


def read_counts(text: str) -> dict[str, str]:
    return dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", text))
