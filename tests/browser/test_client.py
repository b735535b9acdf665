"""Tests the TypeScript client on a page of another origin, in a browser."""

from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Page

from devstack.harness.stack import Owner, Stack
from tests.support.clients.building import build_typescript
from tests.support.http.servers import running_server

_USE_CLIENT = """async ([url, key]) => {
  const { ApiError, Pressroom } = await import("/index.js");
  const pressroom = new Pressroom(url, { credentials: key });
  const list = await pressroom.createList({ body: { title: "Page", slug: `page-${Date.now()}` } });
  const rows = Array.from({ length: 300 }, (_, n) => `reader${n}@example.com\\n`);
  const file = new File(["email\\n", ...rows], "members.csv");
  const states = [];
  const begun = await pressroom.importMembers({ list_id: list.id, file });
  const job = await pressroom.waitForJob(begun, {
    onProgress: ({ status }) => states.push(status),
    timeout: 60,
  });
  const emails = new Set();
  for await (const { email } of pressroom.listMembers({ list_id: list.id, limit: 70 })) {
    emails.add(email);
  }
  const canvas = document.createElement("canvas");
  const picture = await new Promise((done) => canvas.toBlob(done));
  const made = await pressroom.uploadAttachment({ file: { name: "canvas.png", content: picture } });
  const media = await pressroom.downloadMedia({ filename: made.filename });
  const error = await pressroom.readList({ list_id: "no-such-list" }).catch((error) => error);
  return {
    added: job.result.added,
    last: states.at(-1),
    emails: emails.size,
    bytes: (await media.blob()).size === made.size,
    code: error instanceof ApiError && error.code,
  };
}"""


@pytest.fixture
def page_url(tmp_path: Path) -> Iterator[str]:
    """The URL of a website with a copy of the JavaScript client, on another origin than the API."""
    folder = build_typescript(tmp_path) / "dist"
    (folder / "index.html").write_text("<link rel=icon href=data:,><h1>My letters</h1>")

    class Site(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Site, directory=str(folder)))
    with running_server(server) as url:
        yield url


@pytest.mark.tier("clients")
def test_typescript_client_works_on_a_page_of_another_origin(
    stack: Stack, owner: Owner, page_url: str, open_page: Callable[..., Page]
) -> None:
    assert open_page(page_url).evaluate(_USE_CLIENT, [stack.api_url, owner.key]) == {
        "added": 300,
        "last": "succeeded",
        "emails": 300,
        "bytes": True,
        "code": "list.not_found",
    }
