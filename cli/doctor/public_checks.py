import json
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

from cli.doctor.diagnoses import CheckAnswer, Part, fine, skipped, wrong
from core import clock
from core.settings import Settings
from core.signed_urls import SEEN_CALLERS, SEEN_HEADER
from integrations.http_client import HttpBounds, HttpClient, HttpFailure, HttpReply, reason_of

_PATH = "/healthz"
_BOUNDS = HttpBounds(max_seconds=8.0, max_connect_seconds=5.0, max_reply_bytes=64 * 1024)
_OK = 200
# Of a network for documents (RFC 5737): no caller has it.
_INVENTED_ADDRESS = "192.0.2.1"


def _ask(settings: Settings) -> Iterator[CheckAnswer]:
    with closing(HttpClient(_BOUNDS)) as http:
        try:
            reply = _call(http, settings)
        except HttpFailure as failure:
            advice = "Check PRESSROOM_PUBLIC_URL, its name, its certificate and the proxy."
            yield wrong("reachable", f"{settings.public_base}: {reason_of(failure)}", advice)
            return
        if reply.status != _OK or b'"ok"' not in reply.body:
            found = f"{settings.public_base}{_PATH} answers {reply.status}"
            yield wrong("reachable", found, "Another server answers there, or the API is down.")
            return
        yield fine("reachable", f"{settings.public_base} answers")
        if SEEN_HEADER not in reply.headers:
            advice = "Give this process the secret keys of the API, and set its clock."
            yield skipped("proxy headers", "the API does not say what it sees", advice)
            return
        yield _seen(settings, json.loads(reply.headers[SEEN_HEADER]))
        forged = _call(http, settings, **{"X-Forwarded-For": _INVENTED_ADDRESS})
        yield _believed(json.loads(forged.headers.get(SEEN_HEADER, "{}")))


PUBLIC_URL = Part("public URL", _ask)


def _call(http: HttpClient, settings: Settings, **headers: str) -> HttpReply:
    lifetime, now = timedelta(minutes=1), clock.now()
    base = settings.public_base
    url, _ = SEEN_CALLERS.create(settings.keyring, _PATH, base=base, lifetime=lifetime, now=now)
    return http.send("GET", url, headers=headers)


def _seen(settings: Settings, seen: dict[str, Any]) -> CheckAnswer:
    found = f"{seen['address']} by {seen['scheme']}, from {seen['peer']}"
    if seen["is_forwarded"] and not seen["is_trusted"]:
        advice = f"Name the proxy {seen['peer']} in PRESSROOM_TRUSTED_PROXIES."
        return wrong("proxy headers", f"{found}: all callers count as one", advice)
    if seen["scheme"] != settings.public_url.scheme:
        advice = "Let the proxy send X-Forwarded-Proto, and name it in PRESSROOM_TRUSTED_PROXIES."
        return wrong("proxy headers", found, advice)
    return fine("proxy headers", found)


def _believed(seen: dict[str, Any]) -> CheckAnswer:
    if seen.get("address") == _INVENTED_ADDRESS:
        advice = "Let the proxy set X-Forwarded-For anew, and trust no network that callers are in."
        return wrong("invented address", "the API believes what a caller says of itself", advice)
    return fine("invented address", "the API does not believe it")
