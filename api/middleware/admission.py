"""Refuses requests at once while too many requests are in progress, before any other work."""

import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import problem_response
from api.limits.body_budgets import name_address_holder
from api.limits.places import Place, Places, set_current_place
from api.limits.rate_limits import build_caller_rate_key
from api.middleware.intake_busy import INTAKE_PATH
from core.errors import DomainError
from core.settings import Settings
from services.access import api_keys

# The key of an API key and its cached caller, in the ASGI scope. ``identify_cached_caller`` uses
# the caller, so that the API key's HMAC is computed only once.
CACHED_CALLER_KEY = "pressroom.cached_caller"
_MAX_WAIT_SECONDS = 2.0
# Charges and reports may wait longer, because a refusal costs their callers more.
_MAX_WAIT_SECONDS_OF_CHARGES_AND_REPORTS = 5.0
_CONSUME_PATH = re.compile(r"/auxilia/credits/consume\Z")
# The methods and paths that are never refused: leaving a list, turning off its mail, refusing to
# be recorded, and the checks
# of machines.
_NEVER_REFUSED = re.compile(
    r"DELETE /subscriptions/[^/]+"
    r"|PUT /subscriptions/[^/]+/(email|engagement)"
    r"|POST /subscriptions/[^/]+/delete"
    r"|(GET|HEAD|POST) /(unsubscribe|preferences|engagement|preferences/engagement)"
    r"|(GET|HEAD) /(healthz|readyz|metrics)"
)


def is_never_refused(method: str, path: str) -> bool:
    return _NEVER_REFUSED.fullmatch(f"{method} {path}") is not None


def split_authorization(header: str) -> tuple[str, str]:
    scheme, _, credential = header.replace("\t", " ").partition(" ")
    return scheme.lower(), credential.strip()


class AdmissionMiddleware:
    """Gives each request a place among the requests in progress, or refuses the request.

    A request with an API key that this process has checked recently is counted for the key's user.
    A post of reports is counted for its sender. All other requests are counted for their IP
    address, because only the database knows the owner of their credentials.
    """

    def __init__(self, app: ASGIApp, *, settings: Settings) -> None:
        self._app = app
        self._key_header = settings.api_key_header.lower().encode()
        self._places = Places()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        place = self._create_place(scope)
        try:
            place.take()
        except DomainError as error:
            await problem_response(error)(scope, receive, send)
            return
        set_current_place(place)

        async def send_and_leave(message: Message) -> None:
            # A caller who reads the response slowly holds no place.
            place.leave()
            await send(message)

        try:
            await self._app(scope, receive, send_and_leave)
        finally:
            place.leave()

    def _create_place(self, scope: Scope) -> Place:
        path = scope["path"].rstrip("/")
        address = name_address_holder(scope["client"][0] if scope.get("client") else None)
        if is_never_refused(scope["method"], path):
            return Place(self._places, f"leaving {address}", is_never_refused=True)
        sender = INTAKE_PATH.match(path)
        if sender is not None:
            account = f"sender {sender['id']}"
        else:
            account = self._find_user(scope) or f"address {address}"
        is_patient = sender is not None or _CONSUME_PATH.match(path)
        return Place(
            self._places,
            account,
            scope=scope,
            max_wait_seconds=_MAX_WAIT_SECONDS_OF_CHARGES_AND_REPORTS
            if is_patient
            else _MAX_WAIT_SECONDS,
            is_sender=sender is not None,
        )

    def _find_user(self, scope: Scope) -> str | None:
        """Return the rate limit key of the API key's user, if known."""
        for name, value in scope["headers"]:
            secret = None
            if name == self._key_header:
                secret = value.decode("latin-1")
            elif name == b"authorization":
                _, secret = split_authorization(value.decode("latin-1"))
            if secret is not None:
                state = scope["app"].state.pressroom
                keyring = state.resources.keyring
                caller = api_keys.find_cached_caller(state.used_keys, keyring, secret)
                scope[CACHED_CALLER_KEY] = (secret, caller)
                return None if caller is None else build_caller_rate_key(caller)
        return None
