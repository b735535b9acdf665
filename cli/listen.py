"""Following an account's events, and posting them to a server of one's own, for development."""

import base64
import secrets
import time
from typing import Annotated, Any

import orjson
import typer

from cli.output import Json
from core import clock
from core.errors.webhooks import LISTEN_REFUSED
from core.process.garbage_collection import end_start
from integrations.http_client import (
    HttpBounds,
    HttpClient,
    HttpFailure,
    HttpReply,
    describe_failure,
)
from services.webhooks import signing

_PAUSE_SECONDS = 1.0
_PAGE_EVENTS = 1000
# An answer of the API has a page of events.
_BOUNDS = HttpBounds(max_seconds=30.0, max_connect_seconds=5.0, max_reply_bytes=16 * 1024 * 1024)
_SERVER_ERRORS = range(500, 600)
# Too many requests, and those that a server that starts answers.
_PASSING = {429, *_SERVER_ERRORS}
_SUCCESSES = range(200, 300)

app = typer.Typer(add_completion=False, rich_markup_mode=None)

Key = Annotated[str, typer.Option(help="API key of the account.", envvar="API_KEY")]
Forward = Annotated[str, typer.Option("--forward-to", help="URL that gets the events.")]
Secret = Annotated[
    str | None, typer.Option(help="Secret that signs, whsec_…; without it a new one is shown.")
]
Api = Annotated[str | None, typer.Option(help="URL of the API, in place of the running stack's.")]
Types = Annotated[list[str] | None, typer.Option("--type", help="These types alone.")]
Since = Annotated[str | None, typer.Option(help="Cursor to go on from; without it, from now on.")]


@app.command()
def listen(
    *,
    forward_to: Forward,
    key: Key,
    secret: Secret = None,
    api: Api = None,
    types: Types = None,
    cursor: Since = None,
    as_json: Json = False,
) -> None:
    """Post the account's events to a URL as signed webhooks. Ctrl+C ends it."""
    signs = secret or signing.SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()
    if api is None:
        from cli.connection import use_running_stack
        from core.settings import load_settings

        use_running_stack()
        api = load_settings().public_base
    follower = Follower(api, key, types or [])
    forwarder = Forwarder(forward_to, base64.b64decode(signs.removeprefix(signing.SECRET_PREFIX)))
    position = cursor or follower.newest()
    typer.echo(f"Events go to {forward_to}, signed by {signs}", err=True)
    end_start()
    while True:
        events, position = follower.after(position)
        for event in events:
            result = forwarder.forward(event)
            words = " ".join(map(str, result.values()))
            typer.echo(orjson.dumps(result).decode() if as_json else words)
        if events:
            typer.echo(f"Go on after these with --cursor {position}", err=True)
        else:
            time.sleep(_PAUSE_SECONDS)


class Follower:
    """Reads the feed by its cursor. A cursor outlives the API that gave it."""

    def __init__(self, api: str, key: str, types: list[str]) -> None:
        self._url = f"{api.rstrip('/')}/events"
        self._headers = {"Authorization": f"Bearer {key}"}
        self._types = types
        self._http = HttpClient(_BOUNDS)

    def newest(self) -> str | None:
        """The cursor after all events of now."""
        position: str | None = None
        while True:
            events, position = self.after(position)
            if len(events) < _PAGE_EVENTS:
                return position

    def after(self, cursor: str | None) -> tuple[list[dict[str, Any]], str]:
        """The next events, and the cursor after them; waits for an API that is away."""
        query: dict[str, Any] = {"limit": _PAGE_EVENTS, "type": self._types}
        query |= {} if cursor is None else {"cursor": cursor}
        while True:
            try:
                reply = self._http.send("GET", self._url, params=query, headers=self._headers)
            except HttpFailure as failure:
                reason = describe_failure(failure)
            else:
                if reply.status not in _PASSING:
                    return self._page(reply)
                reason = f"it answers {reply.status}"
            typer.echo(f"The API is away ({reason}); trying again.", err=True)
            time.sleep(_PAUSE_SECONDS)

    def _page(self, reply: HttpReply) -> tuple[list[dict[str, Any]], str]:
        body = orjson.loads(reply.body)
        if reply.status not in _SUCCESSES:
            raise LISTEN_REFUSED(status=reply.status, message=body.get("message", ""))
        page = body["data"]
        return page["items"], page["pagination"]["next_cursor"]


class Forwarder:
    """Posts events as webhooks do, to a server that may be on this machine."""

    def __init__(self, url: str, secret: bytes) -> None:
        self._url = url
        self._secret = secret
        self._http = HttpClient(_BOUNDS)

    def forward(self, event: dict[str, Any]) -> dict[str, Any]:
        """Post it until there is an answer, and say what that was."""
        body = signing.serialise_event(event)
        while True:
            message_id = signing.build_message_id(event["id"])
            headers = signing.sign_message([self._secret], message_id, clock.now(), body)
            headers |= {"Content-Type": "application/json"}
            try:
                reply = self._http.send("POST", self._url, content=body, headers=headers)
            except HttpFailure as failure:
                typer.echo(f"{self._url}: {describe_failure(failure)}; trying again.", err=True)
                time.sleep(_PAUSE_SECONDS)
            else:
                return {"id": message_id, "type": event["type"], "status": reply.status}
