"""The command ``pressroom listen``, which sends an account's events to a developer's server."""

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
# The size limit is large, because a response may contain 1,000 events.
_BOUNDS = HttpBounds(max_seconds=30.0, max_connect_seconds=5.0, max_reply_bytes=16 * 1024 * 1024)
_SERVER_ERRORS = range(500, 600)
# A call to the API is retried after a response with one of these statuses. A server that is
# starting may respond with any 5xx status.
_TEMPORARY_STATUSES = {429, *_SERVER_ERRORS}
_SUCCESSES = range(200, 300)

app = typer.Typer(add_completion=False, rich_markup_mode=None)

Key = Annotated[str, typer.Option(help="An API key of the account.", envvar="API_KEY")]
Forward = Annotated[str, typer.Option("--forward-to", help="The URL to send events to.")]
Secret = Annotated[
    str | None,
    typer.Option(
        help=(
            "The signing secret (whsec_…). Without this option, the command creates and shows a "
            "new secret."
        )
    ),
]
Api = Annotated[
    str | None,
    typer.Option(help="The URL of the API. The default is the running development stack."),
]
Types = Annotated[
    list[str] | None,
    typer.Option(
        "--type", help="Forward only this event type. Repeat the option for several types."
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        help="The cursor to continue from. Without this option, only new events are forwarded."
    ),
]


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
    """Forward an account's events to a URL as signed webhooks. Stop with Ctrl+C."""
    new_secret = signing.SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()
    signing_secret = secret or new_secret
    if api is None:
        from cli.connection import use_running_stack
        from core.settings import load_settings

        use_running_stack()
        api = load_settings().public_base
    follower = Follower(api, key, types or [])
    secret_bytes = base64.b64decode(signing_secret.removeprefix(signing.SECRET_PREFIX))
    forwarder = Forwarder(forward_to, secret_bytes)
    position = cursor or follower.find_newest_cursor()
    typer.echo(f"Forwarding events to {forward_to}, signed with {signing_secret}", err=True)
    end_start()
    while True:
        events, position = follower.fetch_events(position)
        for event in events:
            result = forwarder.forward(event)
            line = " ".join(map(str, result.values()))
            typer.echo(orjson.dumps(result).decode() if as_json else line)
        if events:
            typer.echo(f"To continue later, use --cursor {position}", err=True)
        else:
            time.sleep(_PAUSE_SECONDS)


class Follower:
    """Reads the events in the feed of an account. Cursors stay valid when the API restarts."""

    def __init__(self, api: str, key: str, types: list[str]) -> None:
        self._url = f"{api.rstrip('/')}/events"
        self._headers = {"Authorization": f"Bearer {key}"}
        self._types = types
        self._http = HttpClient(_BOUNDS)

    def find_newest_cursor(self) -> str | None:
        position: str | None = None
        while True:
            events, position = self.fetch_events(position)
            if len(events) < _PAGE_EVENTS:
                return position

    def fetch_events(self, cursor: str | None) -> tuple[list[dict[str, Any]], str]:
        """Return the events after a cursor, and the next cursor, once the API is reachable."""
        query: dict[str, Any] = {"limit": _PAGE_EVENTS, "type": self._types}
        query |= {} if cursor is None else {"cursor": cursor}
        while True:
            try:
                reply = self._http.send("GET", self._url, params=query, headers=self._headers)
            except HttpFailure as failure:
                reason = describe_failure(failure)
            else:
                if reply.status not in _TEMPORARY_STATUSES:
                    return self._parse_page(reply)
                reason = f"status {reply.status}"
            typer.echo(f"The API is not reachable ({reason}). Retrying.", err=True)
            time.sleep(_PAUSE_SECONDS)

    def _parse_page(self, reply: HttpReply) -> tuple[list[dict[str, Any]], str]:
        body = orjson.loads(reply.body)
        if reply.status not in _SUCCESSES:
            raise LISTEN_REFUSED(status=reply.status, message=body.get("message", ""))
        page = body["data"]
        return page["items"], page["pagination"]["next_cursor"]


class Forwarder:
    """Sends signed webhooks to a server, which may run on the local machine."""

    def __init__(self, url: str, secret: bytes) -> None:
        self._url = url
        self._secret = secret
        self._http = HttpClient(_BOUNDS)

    def forward(self, event: dict[str, Any]) -> dict[str, Any]:
        body = signing.serialise_event(event)
        while True:
            message_id = signing.build_message_id(event["id"])
            headers = signing.sign_message([self._secret], message_id, clock.now(), body)
            headers |= {"Content-Type": "application/json"}
            try:
                reply = self._http.send("POST", self._url, content=body, headers=headers)
            except HttpFailure as failure:
                typer.echo(f"{self._url}: {describe_failure(failure)}. Retrying.", err=True)
                time.sleep(_PAUSE_SECONDS)
            else:
                return {"id": message_id, "type": event["type"], "status": reply.status}
