"""Checks the API, the mail server and the providers with calls that cost nothing."""

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from http import HTTPStatus
from typing import Any, NamedTuple

from pydantic import SecretStr

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
from services.doctor.runner import Diagnosis, fine, skipped, warning, wrong

_PROVIDER_BOUNDS = HttpBounds(max_seconds=8.0, max_connect_seconds=4.0, max_reply_bytes=1024 * 1024)
_SERVER_ERRORS = range(500, 600)
_WRONG_SECRET_CODE = b"invalid-input-secret"
# The API path of a payment that doesn't exist. The payment provider returns 404 for this path if
# the key is valid.
_MISSING_PAYMENT_PATH = "/v1/payment_intents/pi_pressroom_doctor"
_PHOTO_SEARCH_PATH = "/search/photos?query=paper&per_page=1"
_HEALTH_PATH = "/healthz"
_API_BOUNDS = HttpBounds(max_seconds=8.0, max_connect_seconds=5.0, max_reply_bytes=64 * 1024)
# A forged client address, which shows whether the API trusts forged headers. No real caller has
# this address, because RFC 5737 reserves it for documentation.
_FORGED_ADDRESS = "192.0.2.1"
# The time limit for the test mail, which must be below the time limit for all checks.
_MAX_MAIL_SECONDS = 10.0
_MAIL_TEXT = "This test mail was sent by pressroom doctor. Sending mail works."


class _Call(NamedTuple):
    """A call that checks whether the key or secret for a provider is valid.

    Attributes:
        errors: the HTTP statuses with which the provider rejects an invalid key or secret.
        noun: the provider's term, ``key`` or ``secret``.
    """

    check: str
    url: str
    setting: str
    scheme: str = "Bearer"
    errors: frozenset[int] = frozenset({401, 403})
    noun: str = "key"


def check_providers(settings: Settings) -> Iterator[Diagnosis]:
    has_keys = False
    with closing(HttpClient(_PROVIDER_BOUNDS)) as http:
        for call in _list_calls(settings):
            hidden_secret: SecretStr | None = getattr(settings, call.setting)
            if hidden_secret is None:
                continue
            has_keys = True
            secret = hidden_secret.get_secret_value()
            if call.noun == "key":
                headers = {"Authorization": f"{call.scheme} {secret}"}
                yield _check_call(http, call, "GET", headers=headers)
            else:
                # The provider reports a wrong secret even if the challenge token is invalid.
                data = {"secret": secret, "response": "pressroom-doctor"}
                yield _check_call(http, call, "POST", data=data)
    if not has_keys:
        yield skipped("keys", "no provider key is set for this process")


def _check_call(http: HttpClient, call: _Call, method: str, **content: Any) -> Diagnosis:
    try:
        reply = http.send(method, call.url, **content)
    except HttpFailure as failure:
        advice = "Allow this process to connect to the internet without a proxy."
        return wrong(call.check, f"not reachable: {describe_failure(failure)}", advice)
    if reply.status in _SERVER_ERRORS:
        return wrong(call.check, f"the provider responded with {reply.status}", "Try again later.")
    refused = f"the {call.noun} was rejected"
    if call.noun == "key":
        refused += f" ({reply.status})"
    if reply.status in call.errors or _WRONG_SECRET_CODE in reply.body:
        return wrong(call.check, refused, f"Check {variable_of(call.setting)}.")
    return fine(call.check, f"the {call.noun} was accepted")


def _list_calls(settings: Settings) -> Iterator[_Call]:
    # Status 403 doesn't mean that a payment key is invalid, because a restricted key may lack the
    # permission for the call.
    payment_errors = frozenset({401})
    url = _join_url(settings.stripe_base_url, _MISSING_PAYMENT_PATH)
    yield _Call("stripe", url, "stripe_secret_key", errors=payment_errors)
    url = _join_url(settings.payments_sandbox_url, _MISSING_PAYMENT_PATH)
    yield _Call("payments sandbox", url, "payments_sandbox_secret_key", errors=payment_errors)
    if settings.llm_provider == "openai":
        yield _Call("language model", _join_url(settings.llm_base_url, "/models"), "llm_api_key")
    url = _join_url(settings.unsplash_base_url, _PHOTO_SEARCH_PATH)
    yield _Call("unsplash", url, "unsplash_access_key", "Client-ID")
    for name in ("turnstile", "hcaptcha", "recaptcha"):
        url = str(getattr(settings, f"{name}_url"))
        yield _Call(name, url, f"{name}_secret", noun="secret")


def _join_url(base: object, path: str) -> str:
    return str(base).rstrip("/") + path


def check_public_url(settings: Settings) -> Iterator[Diagnosis]:
    with closing(HttpClient(_API_BOUNDS)) as http:
        try:
            reply = _call_api(http, settings)
        except HttpFailure as failure:
            advice = "Check PRESSROOM_PUBLIC_URL, its DNS name, its certificate and the proxy."
            yield wrong("reachable", f"{settings.public_base}: {describe_failure(failure)}", advice)
            return
        if reply.status != HTTPStatus.OK or b'"ok"' not in reply.body:
            finding = f"{settings.public_base}{_HEALTH_PATH} responded with {reply.status}"
            yield wrong(
                "reachable",
                finding,
                "Check that the API is running and that the URL leads to the API.",
            )
            return
        yield fine("reachable", f"{settings.public_base} responds")
        if settings.pages_url is not None:
            yield _check_pages_host(http, settings.pages_base)
        if SEEN_HEADER not in reply.headers:
            advice = "Use the API's PRESSROOM_SECRET_KEYS for this command, and check the clock."
            yield skipped("proxy headers", "the API did not report the caller's address", advice)
            return
        yield _check_seen_caller(settings, json.loads(reply.headers[SEEN_HEADER]))
        forged_reply = _call_api(http, settings, **{"X-Forwarded-For": _FORGED_ADDRESS})
        caller = json.loads(forged_reply.headers.get(SEEN_HEADER, "{}"))
        if caller.get("address") == _FORGED_ADDRESS:
            finding = "the API trusts a forged client address"
            advice = (
                "Configure the proxy to overwrite X-Forwarded-For, and remove callers' networks "
                "from"
            )
            yield wrong("invented address", finding, f"{advice} PRESSROOM_TRUSTED_PROXIES.")
        else:
            yield fine("invented address", "the API ignores a forged client address")


def _check_pages_host(http: HttpClient, base: str) -> Diagnosis:
    try:
        health = http.send("GET", base + _HEALTH_PATH)
        login = http.send("GET", f"{base}/login")
    except HttpFailure as failure:
        advice = "Check PRESSROOM_PAGES_URL, its DNS name, its certificate and the proxy."
        return wrong("readers' pages", f"{base}: {describe_failure(failure)}", advice)
    if health.status != HTTPStatus.OK:
        advice = "Check that the API is running and that the URL leads to the API."
        return wrong(
            "readers' pages", f"{base}{_HEALTH_PATH} responded with {health.status}", advice
        )
    if login.status != HTTPStatus.NOT_FOUND:
        advice = (
            "Configure the proxy to forward the Host header, and set PRESSROOM_PAGES_URL for the "
            "API."
        )
        return wrong(
            "readers' pages", f"{base} has a login page, but only the public URL should", advice
        )
    return fine("readers' pages", f"{base} responds and has no login page")


def _call_api(http: HttpClient, settings: Settings, **headers: str) -> HttpReply:
    url, _ = SEEN_CALLERS.create(
        settings.keyring,
        _HEALTH_PATH,
        base=settings.public_base,
        lifetime=timedelta(minutes=1),
        now=clock.now(),
    )
    return http.send("GET", url, headers=headers)


def _check_seen_caller(settings: Settings, caller: dict[str, Any]) -> Diagnosis:
    """Check which IP address and URL scheme the API sees when this command calls the API."""
    finding = f"{caller['address']} by {caller['scheme']}, from {caller['peer']}"
    if caller["is_forwarded"] and not caller["is_trusted"]:
        advice = f"Add the proxy {caller['peer']} to PRESSROOM_TRUSTED_PROXIES."
        return wrong("proxy headers", f"{finding}: all callers share one rate limit", advice)
    if caller["scheme"] != settings.public_url.scheme:
        advice = (
            "Configure the proxy to send X-Forwarded-Proto, and add its address to "
            "PRESSROOM_TRUSTED_PROXIES."
        )
        return wrong("proxy headers", finding, advice)
    return fine("proxy headers", finding)


def check_mail(send_to: str | None, settings: Settings) -> Iterator[Diagnosis]:
    if settings.mail_url is None:
        yield warning(
            "login",
            "not checked, because PRESSROOM_MAIL_URL is not set for this process",
            "Run pressroom doctor in the worker of the queue mail, with Compose: docker compose "
            "exec worker-waiting pressroom doctor. If the setting is missing there too, no mail is "
            "sent.",
        )
        return
    server = MailServer.parse(settings.mail_url.get_secret_value())
    sender = MailSender.parse(settings.mail_from)
    mailer = SmtpMailer(server, sender, timeout=_MAX_MAIL_SECONDS)
    mailer.log_in()
    login = "logged in to" if server.login else "no login required by"
    yield fine("login", f"{login} {server.host}:{server.port}, {server.security}")
    if send_to is None:
        yield skipped("sending", "no test mail was sent", "Use --send ADDRESS to send a test mail.")
        return
    html = f"<p>{_MAIL_TEXT}</p>"
    mailer.send(Mail(strip_invisible(send_to), "Pressroom test mail", _MAIL_TEXT, html))
    yield fine("sending", f"the server accepted a mail from {sender.address} to {send_to}")
