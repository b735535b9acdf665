"""Owners in front of the console, without a browser: what pages show, and what forms send."""

import html
import json
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlsplit

import httpx2

from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from services.accounts import accounts
from tests.support.people.authenticator import add_app
from tests.support.people.visiting import Visitor, a_visitor

# What a page has that changes by itself, for who has no JavaScript.
LOOK_AGAIN = "autofocus>Refresh</a></p></noscript>"
RUNNING = 'aria-busy="true"'
_CALL = re.compile(r"<code>(curl .*?)</code>", re.DOTALL)
_INLINE = re.compile(r"<script(?! src=)|<style|\sstyle=|\son[a-z]+=|(?:href|src)=.javascript:")
_DATA = {"--data": "body", "--request": "method"}


@dataclass
class OwnerAtConsole:
    """An owner who is logged in, with a browser and a program of theirs."""

    owner: Owner
    visitor: Visitor
    api: httpx2.Client

    def see(self, path: str, status: int = 200, /, **query: str) -> str:
        """The page as text, after a look at what every page of the console has."""
        return shown(self.visitor.get(path, **query), status)

    def send(
        self, path: str, form: int = 0, without: tuple[str, ...] = (), /, **typed: str
    ) -> httpx2.Response:
        """Open a page and send one of its forms as a browser does, with this typed into it.

        ``without``: the boxes that are not ticked then.
        """
        opened = self.visitor.get(path)
        assert opened.status_code == 200, opened.text
        action, values = forms_of(opened)[form]
        sent = {name: value for name, value in values.items() if name not in without}
        return self.visitor.client.post(action or path, data={**sent, **typed})

    def do(self, path: str, form: int = 0, without: tuple[str, ...] = (), /, **typed: str) -> str:
        """The same, and the page to which it leads."""
        reply = self.send(path, form, without, **typed)
        assert reply.status_code == 303, reply.text
        return shown(self.visitor.client.get(reply.headers["location"]))


@contextmanager
def at_console(stack: Stack, owner: Owner | None = None) -> Iterator[OwnerAtConsole]:
    owner = owner or stack.create_owner()
    with a_visitor(stack) as visitor, stack.client(owner.key) as api:
        visitor.enter(owner.email)
        yield OwnerAtConsole(owner, visitor, api)


@contextmanager
def at_operators_console(stack: Stack) -> Iterator[OwnerAtConsole]:
    """A person who runs the deployment, with the second factor that they need."""
    owner = stack.create_owner()
    with at_console(stack, owner) as operator:
        add_app(operator.visitor)
        with stack.resources.unit_of_work() as uow:
            accounts.set_operator(uow, email=owner.email, is_operator=True)
        yield operator


def shown(reply: httpx2.Response, status: int = 200) -> str:
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert reply.headers["cache-control"] == "no-store"
    assert reply.headers["x-robots-tag"] == "noindex"
    policy = reply.headers["content-security-policy"]
    for rule in ("default-src 'none'", "script-src 'self';", "style-src 'self'"):
        assert rule in policy
    assert "unsafe" not in policy
    text = reply.text
    # No script and no style stands in the page: the policy would keep them from working.
    assert _INLINE.findall(text) == []
    assert len(re.findall("<h1[ >]", text)) == 1
    assert "{{" not in text
    # A page that loads itself takes the focus away each time.
    assert 'http-equiv="refresh"' not in text
    ids = re.findall(r'\sid="([^"]*)"', text)
    assert len(ids) == len(set(ids))
    return text


def ended(console: OwnerAtConsole, path: str) -> str:
    """The page once it changes no more by itself."""

    def look() -> str | None:
        text = console.see(path)
        return None if RUNNING in text else text

    return eventually(look, what=f"the end of {path}")


def heading(text: str) -> str:
    [found] = re.findall(r"<h1[^>]*>(.*?)</h1>", text, re.DOTALL)
    return html.unescape(re.sub(r"<[^>]+>", "", found))


def wrong_beside(text: str, name: str) -> str:
    """What stands beside a field that was refused."""
    found = re.search(rf'<span class="wrong" id="{name}-wrong">(.*?)</span>', text)
    assert found, text
    return html.unescape(found[1])


def rows_of(text: str) -> list[list[str]]:
    """The cells of all tables on the page, row by row, as text."""
    rows = re.findall(r"<tr>(.*?)</tr>", text, re.DOTALL)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]
    return [[_plain(cell) for cell in row] for row in cells]


def _plain(markup: str) -> str:
    # A ``<wbr>`` tag allows a line break inside an address, and isn't a space.
    text = re.sub(r"<[^>]+>", " ", markup.replace("<wbr>", ""))
    return " ".join(html.unescape(text).split())


@dataclass(frozen=True)
class ShownCall:
    """A call of the API that a page shows."""

    method: str
    path: str
    body: Any


def calls_of(text: str) -> list[ShownCall]:
    return [_call(html.unescape(each)) for each in _CALL.findall(text)]


def _call(line: str) -> ShownCall:
    # The shell joins lines that end so.
    words = shlex.split(line.replace("\\\n", " "))
    assert words.pop(0) == "curl"
    found: dict[str, Any] = {"method": "GET", "body": None}
    while words:
        word = words.pop(0)
        if word in _DATA:
            found[_DATA[word]] = words.pop(0)
        elif word.startswith("--"):
            words.pop(0)
        else:
            url = urlsplit(word)
            found["path"] = url.path + (f"?{url.query}" if url.query else "")
    body = found["body"] and json.loads(found["body"])
    return ShownCall(found["method"], found["path"], body)


class _Forms(HTMLParser):
    """The forms of a page, with what a browser would send of each."""

    def __init__(self) -> None:
        super().__init__()
        self.forms: list[tuple[str, dict[str, str]]] = []
        self._choosing: str | None = None
        self._writing: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append((given.get("action", ""), {}))
        if not self.forms:
            return
        values, name = self.forms[-1][1], given.get("name", "")
        if tag == "input" and name:
            is_box = given.get("type") in {"checkbox", "radio"}
            if not is_box or "checked" in given:
                values[name] = given.get("value", "on")
        elif tag == "textarea":
            self._writing, values[name] = name, ""
        elif tag == "select":
            self._choosing = name
        elif tag == "option" and self._choosing is not None:
            # A browser sends the first one unless another is selected.
            first = values.get(self._choosing, given.get("value", ""))
            values[self._choosing] = given.get("value", "") if "selected" in given else first

    def handle_data(self, data: str) -> None:
        if self._writing is not None:
            # A browser leaves out the line end right after the tag.
            written = self.forms[-1][1][self._writing] + data
            self.forms[-1][1][self._writing] = written.removeprefix("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            self._writing = None
        elif tag == "select":
            self._choosing = None


def forms_of(reply: httpx2.Response) -> list[tuple[str, dict[str, str]]]:
    """Where each form leads, and what it sends as it stands."""
    parser = _Forms()
    parser.feed(reply.text)
    base = str(reply.request.url.copy_with(raw_path=b"/")).rstrip("/")
    return [(action.removeprefix(base), values) for action, values in parser.forms]
