"""Imports that an owner starts in the console."""

from urllib.parse import urlsplit

import httpx2

from tests.support.people.consoles import OwnerAtConsole, ended, forms_of

NEW_IMPORT = "/console/imports/new"


def send_file(
    console: OwnerAtConsole,
    list_id: object,
    content: bytes,
    name: str = "members.csv",
    /,
    **typed: str,
) -> httpx2.Response:
    """Open the form of a new import, and send it. Like a browser, put the file last."""
    [(action, values)] = forms_of(console.visitor.get(NEW_IMPORT))
    form = {**values, "list_id": str(list_id), **typed}
    form.pop("file")
    files = {"file": (name, content)} if name else {"file": ("", b"")}
    return console.visitor.client.post(action, data=form, files=files)


def preview_import(
    console: OwnerAtConsole, list_id: int, content: bytes, name: str = "members.csv", **typed: str
) -> str:
    """Upload a file, wait for the preview of its import, and return the path of the preview."""
    reply = send_file(console, list_id, content, name, **typed)
    assert reply.status_code == 303, reply.text
    path = urlsplit(reply.headers["location"]).path
    ended(console, path)
    return path
