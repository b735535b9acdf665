"""Checks of the API and of other people's servers, by calls that cost and change nothing."""

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any, NamedTuple

from pydantic import SecretStr

from cli.doctor.examination import Diagnosis, fine, skipped, wrong
from core import clock
from core.languages.shown_lines import strip_invisible
from core.settings import Settings
from core.settings.given_settings import variable_of
from core.settings.mail_server import MailSender, MailServer
from core.signed_urls import SEEN_CALLERS, SEEN_HEADER
from integrations.http_client import (
    HttpBounds,
    HttpClient,
    HttpFailure,
    HttpReply,
    describe_failure,
)
from integrations.mail.port import Mail
from integrations.mail.smtp import SmtpMailer

_PROVIDER_BOUNDS = HttpBounds(max_seconds=8.0, max_connect_seconds=4.0, max_reply_bytes=1024 * 1024)
_SERVER_ERRORS = range(500, 600)
_WRONG_SECRET = b"invalid-input-secret"
# No such payment exists: a key that is accepted gets 404.
_NO_PAYMENT = "/v1/payment_intents/pi_pressroom_doctor"
_ONE_PHOTO = "/search/photos?query=paper&per_page=1"


class _Call(NamedTuple):
    check: str
    url: str
    # The setting that has the key.
    setting: str
    scheme: str = "Bearer"
    errors: frozenset[int] = frozenset({401, 403})
    noun: str = "key"


def ask_providers(settings: Settings) -> Iterator[Diagnosis]:
    is_asked = False
    with closing(HttpClient(_PROVIDER_BOUNDS)) as http:
        for call in _calls(settings):
            given: SecretStr | None = getattr(settings, call.setting)
            if given is None:
                continue
            is_asked = True
            secret = given.get_secret_value()
            if call.noun == "key":
                headers = {"Authorization": f"{call.scheme} {secret}"}
                yield _reply_to(http, call, "GET", headers=headers)
            else:
                # Providers name a wrong secret, whatever the token is.
                data = {"secret": secret, "response": "pressroom-doctor"}
                yield _reply_to(http, call, "POST", data=data)
    if not is_asked:
        yield skipped("keys", "this process has no key of a provider")


def _reply_to(http: HttpClient, call: _Call, method: str, **content: Any) -> Diagnosis:
    try:
        reply = http.send(method, call.url, **content)
    except HttpFailure as failure:
        advice = "Let this process call the internet, without a proxy."
        return wrong(call.check, f"not reached: {describe_failure(failure)}", advice)
    if reply.status in _SERVER_ERRORS:
        return wrong(call.check, f"it answers {reply.status}", "Ask again later.")
    refused = f"the {call.noun} is refused"
    if call.noun == "key":
        refused += f" ({reply.status})"
    if reply.status in call.errors or _WRONG_SECRET in reply.body:
        return wrong(call.check, refused, f"Check {variable_of(call.setting)}.")
    return fine(call.check, f"the {call.noun} is accepted")


def _calls(settings: Settings) -> Iterator[_Call]:
    # A restricted key may lack a right, and is accepted for all that.
    accepting = frozenset({401})
    url = _below(settings.stripe_base_url, _NO_PAYMENT)
    yield _Call("stripe", url, "stripe_secret_key", errors=accepting)
    url = _below(settings.payments_sandbox_url, _NO_PAYMENT)
    yield _Call("payments sandbox", url, "payments_sandbox_secret_key", errors=accepting)
    if settings.llm_provider == "openai":
        yield _Call("language model", _below(settings.llm_base_url, "/models"), "llm_api_key")
    url = _below(settings.unsplash_base_url, _ONE_PHOTO)
    yield _Call("unsplash", url, "unsplash_access_key", "Client-ID")
    for name in ("turnstile", "hcaptcha", "recaptcha"):
        url = str(getattr(settings, f"{name}_url"))
        yield _Call(name, url, f"{name}_secret", noun="secret")


def _below(base: object, path: str) -> str:
    return str(base).rstrip("/") + path


_PATH = "/healthz"
_BOUNDS = HttpBounds(max_seconds=8.0, max_connect_seconds=5.0, max_reply_bytes=64 * 1024)
_OK = 200
_NOT_FOUND = 404
# From a network for documents (RFC 5737): no caller has it.
_INVENTED_ADDRESS = "192.0.2.1"


def ask_public_url(settings: Settings) -> Iterator[Diagnosis]:
    with closing(HttpClient(_BOUNDS)) as http:
        try:
            reply = _call(http, settings)
        except HttpFailure as failure:
            advice = "Check PRESSROOM_PUBLIC_URL, its name, its certificate and the proxy."
            yield wrong("reachable", f"{settings.public_base}: {describe_failure(failure)}", advice)
            return
        if reply.status != _OK or b'"ok"' not in reply.body:
            finding = f"{settings.public_base}{_PATH} answers {reply.status}"
            yield wrong("reachable", finding, "Another server answers there, or the API is down.")
            return
        yield fine("reachable", f"{settings.public_base} answers")
        if settings.pages_url is not None:
            yield _pages_host(http, settings.pages_base)
        if SEEN_HEADER not in reply.headers:
            advice = "Give this process the secret keys of the API, and set its clock."
            yield skipped("proxy headers", "the API does not say what it sees", advice)
            return
        yield _seen(settings, json.loads(reply.headers[SEEN_HEADER]))
        forged = _call(http, settings, **{"X-Forwarded-For": _INVENTED_ADDRESS})
        seen = json.loads(forged.headers.get(SEEN_HEADER, "{}"))
        if seen.get("address") == _INVENTED_ADDRESS:
            finding = "the API believes what a caller says of itself"
            advice = "Let the proxy set X-Forwarded-For anew, and trust no network that callers are"
            yield wrong("invented address", finding, f"{advice} in.")
        else:
            yield fine("invented address", "the API does not believe it")


def _pages_host(http: HttpClient, base: str) -> Diagnosis:
    try:
        health = http.send("GET", base + _PATH)
        login = http.send("GET", f"{base}/login")
    except HttpFailure as failure:
        advice = "Check PRESSROOM_PAGES_URL, its name, its certificate and the proxy."
        return wrong("readers' pages", f"{base}: {describe_failure(failure)}", advice)
    if health.status != _OK:
        advice = "Another server answers there, or the API is down."
        return wrong("readers' pages", f"{base}{_PATH} answers {health.status}", advice)
    if login.status != _NOT_FOUND:
        advice = "Let the proxy pass the Host header on, and give PRESSROOM_PAGES_URL to the API."
        return wrong("readers' pages", f"{base} has a login, as the public URL has", advice)
    return fine("readers' pages", f"{base} answers, and has no login")


def _call(http: HttpClient, settings: Settings, **headers: str) -> HttpReply:
    lifetime = timedelta(minutes=1)
    now = clock.now()
    base = settings.public_base
    url, _ = SEEN_CALLERS.create(settings.keyring, _PATH, base=base, lifetime=lifetime, now=now)
    return http.send("GET", url, headers=headers)


def _seen(settings: Settings, seen: dict[str, Any]) -> Diagnosis:
    finding = f"{seen['address']} by {seen['scheme']}, from {seen['peer']}"
    if seen["is_forwarded"] and not seen["is_trusted"]:
        advice = f"Name the proxy {seen['peer']} in PRESSROOM_TRUSTED_PROXIES."
        return wrong("proxy headers", f"{finding}: all callers count as one", advice)
    if seen["scheme"] != settings.public_url.scheme:
        advice = "Let the proxy send X-Forwarded-Proto, and name it in PRESSROOM_TRUSTED_PROXIES."
        return wrong("proxy headers", finding, advice)
    return fine("proxy headers", finding)


# Less than a mail may take: the whole examination has little more.
_MAX_MAIL_SECONDS = 10.0
_TEXT = "This mail was sent by pressroom doctor. Mail works."


def ask_mail(send_to: str | None, settings: Settings) -> Iterator[Diagnosis]:
    """``send_to``: the address that gets a mail; without it the server is only logged in to."""
    if settings.mail_url is None:
        advice = "Ask where mail is sent from: a worker of the queue mail."
        yield skipped("login", "PRESSROOM_MAIL_URL is not set for this process", advice)
        return
    server = MailServer.parse(settings.mail_url.get_secret_value())
    sender = MailSender.parse(settings.mail_from)
    mailer = SmtpMailer(server, sender, timeout=_MAX_MAIL_SECONDS)
    mailer.log_in()
    login = "logged in to" if server.login else "no login is asked of us by"
    yield fine("login", f"{login} {server.host}:{server.port}, {server.security}")
    if send_to is None:
        yield skipped("sending", "nothing was sent", "Give --send ADDRESS for a mail.")
        return
    mailer.send(Mail(strip_invisible(send_to), "Pressroom sends mail", _TEXT, f"<p>{_TEXT}</p>"))
    yield fine("sending", f"the server took a mail to {send_to}, from {sender.address}")
