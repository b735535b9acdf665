"""Simulates owners who use the console: reads its pages, and submits its forms."""

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
from tests.support.people.visiting import Visitor, new_visitor

# The last part of the HTML code of the link "Refresh". A page whose content changes shows the link
# "Refresh" to people without JavaScript.
REFRESH_LINK_END = "autofocus>Refresh</a></p></noscript>"
RUNNING_MARK = 'aria-busy="true"'
_CURL_CALL = re.compile(r"<code>(curl .*?)</code>", re.DOTALL)
_INLINE = re.compile(r"<script(?! src=)|<style|\sstyle=|\son[a-z]+=|(?:href|src)=.javascript:")
# Maps options of curl to fields of ``ShownCall``.
_CURL_OPTIONS = {"--data": "body", "--request": "method"}


@dataclass
class OwnerAtConsole:
    """A logged-in owner, who uses a simulated browser and an API client."""

    owner: Owner
    visitor: Visitor
    api: httpx2.Client

    def see(self, path: str, status: int = 200, /, **query: str) -> str:
        """Open a page, check what every page of the console must have, and return its HTML."""
        return read_page(self.visitor.get(path, **query), status)

    def send(
        self, path: str, form: int = 0, without: tuple[str, ...] = (), /, **typed: str
    ) -> httpx2.Response:
        """Open a page, and submit one of its forms as a browser does.

        ``form``: the index of the form on the page. ``without``: the names of the checkboxes that
        the owner clears. ``typed``: maps names of form fields to the values that the owner enters.
        """
        page = self.visitor.get(path)
        assert page.status_code == 200, page.text
        action, values = forms_of(page)[form]
        remaining = {name: value for name, value in values.items() if name not in without}
        return self.visitor.client.post(action or path, data={**remaining, **typed})

    def do(self, path: str, form: int = 0, without: tuple[str, ...] = (), /, **typed: str) -> str:
        """Submit a form with ``send``, follow the redirect, and return the HTML of the new page."""
        reply = self.send(path, form, without, **typed)
        assert reply.status_code == 303, reply.text
        return read_page(self.visitor.client.get(reply.headers["location"]))


@contextmanager
def at_console(stack: Stack, owner: Owner | None = None) -> Iterator[OwnerAtConsole]:
    owner = owner or stack.create_owner()
    with new_visitor(stack) as visitor, stack.client(owner.key) as api:
        visitor.enter(owner.email)
        yield OwnerAtConsole(owner, visitor, api)


@contextmanager
def at_operators_console(stack: Stack) -> Iterator[OwnerAtConsole]:
    """Yield an operator of the deployment, with the second factor that operators need."""
    owner = stack.create_owner()
    with at_console(stack, owner) as operator:
        add_app(operator.visitor)
        with stack.resources.unit_of_work() as uow:
            accounts.set_operator(uow, email=owner.email, is_operator=True)
        yield operator


def read_page(reply: httpx2.Response, status: int = 200) -> str:
    """Check what every page of the console must have, and return the HTML of the page."""
    assert reply.status_code == status, reply.text.partition("<main")[2] or reply.text
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert reply.headers["cache-control"] == "no-store"
    assert reply.headers["x-robots-tag"] == "noindex"
    policy = reply.headers["content-security-policy"]
    for rule in ("default-src 'none'", "script-src 'self';", "style-src 'self'"):
        assert rule in policy
    assert "unsafe" not in policy
    text = reply.text
    # A page must not contain inline scripts or styles, because its Content-Security-Policy would
    # block them.
    assert _INLINE.findall(text) == []
    assert len(re.findall("<h1[ >]", text)) == 1
    assert "{{" not in text
    # The operator ~ of a template shows the fields of a time instead of its HTML.
    assert "DisplayedMoment(" not in text
    # Both a cell's label and the mark of a state are drawn before the text of their element.
    assert not re.search(r'<td class="[^"]*\b(good|warn|bad)\b[^"]*" data-label=', text)
    # A page must not reload itself, because each reload would take the focus from a form field.
    assert 'http-equiv="refresh"' not in text
    ids = re.findall(r'\sid="([^"]*)"', text)
    assert len(ids) == len(set(ids))
    return text


def await_ended_page(console: OwnerAtConsole, path: str) -> str:
    def find_ended_page() -> str | None:
        text = console.see(path)
        return None if RUNNING_MARK in text else text

    return eventually(find_ended_page, what=f"the end of {path}")


def heading(text: str) -> str:
    [markup] = re.findall(r"<h1[^>]*>(.*?)</h1>", text, re.DOTALL)
    return html.unescape(re.sub(r"<[^>]+>", "", markup))


def read_error(text: str, name: str) -> str:
    message = re.search(rf'<span class="wrong" id="{name}-wrong">(.*?)</span>', text)
    assert message, text
    return html.unescape(message[1])


def rows_of(text: str) -> list[list[str]]:
    rows = re.findall(r"<tr>(.*?)</tr>", text, re.DOTALL)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]
    return [[_plain(cell) for cell in row] for row in cells]


def _plain(markup: str) -> str:
    # Remove ``<wbr>`` tags, which allow line breaks in an address. Replace every HTML tag except
    # ``<wbr>`` by a space.
    text = re.sub(r"<[^>]+>", " ", markup.replace("<wbr>", ""))
    return " ".join(html.unescape(text).split())


@dataclass(frozen=True)
class ShownCall:
    method: str
    path: str
    body: Any


def calls_of(text: str) -> list[ShownCall]:
    return [_parse_call(html.unescape(each)) for each in _CURL_CALL.findall(text)]


def _parse_call(line: str) -> ShownCall:
    # Join lines that end with a backslash, as a shell does.
    words = shlex.split(line.replace("\\\n", " "))
    assert words.pop(0) == "curl"
    call: dict[str, Any] = {"method": "GET", "body": None}
    while words:
        word = words.pop(0)
        if word in _CURL_OPTIONS:
            call[_CURL_OPTIONS[word]] = words.pop(0)
        elif word.startswith("--"):
            words.pop(0)
        else:
            url = urlsplit(word)
            call["path"] = url.path + (f"?{url.query}" if url.query else "")
    body = call["body"] and json.loads(call["body"])
    return ShownCall(call["method"], call["path"], body)


class _FormParser(HTMLParser):
    """Collects the forms of a page, with the values that a browser would send."""

    def __init__(self) -> None:
        super().__init__()
        self.forms: list[tuple[str, dict[str, str]]] = []
        # The names of the form fields whose tags `<select>` and `<textarea>` are still open.
        self._select: str | None = None
        self._textarea: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append((attributes.get("action", ""), {}))
        if not self.forms:
            return
        values = self.forms[-1][1]
        name = attributes.get("name", "")
        value = attributes.get("value", "")
        if tag == "input" and name:
            is_box = attributes.get("type") in {"checkbox", "radio"}
            if not is_box or "checked" in attributes:
                values[name] = attributes.get("value", "on")
        elif tag == "textarea":
            self._textarea = name
            values[name] = ""
        elif tag == "select":
            self._select = name
        elif tag == "option" and self._select is not None:
            # If no option has the attribute `selected`, a browser sends the first option.
            earlier_value = values.get(self._select, value)
            values[self._select] = value if "selected" in attributes else earlier_value

    def handle_data(self, data: str) -> None:
        if self._textarea is not None:
            # A browser ignores a line break directly after the tag `<textarea>`.
            text = self.forms[-1][1][self._textarea] + data
            self.forms[-1][1][self._textarea] = text.removeprefix("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            self._textarea = None
        elif tag == "select":
            self._select = None


def forms_of(reply: httpx2.Response) -> list[tuple[str, dict[str, str]]]:
    """Return each form's action, and the values that the form sends if the user changes nothing."""
    parser = _FormParser()
    parser.feed(reply.text)
    base = str(reply.request.url.copy_with(raw_path=b"/")).rstrip("/")
    return [(action.removeprefix(base), values) for action, values in parser.forms]
