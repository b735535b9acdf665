"""Checks of the API and of other people's servers, by calls that cost and change nothing."""

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any, NamedTuple

from pydantic import SecretStr

from cli.doctor.examination import Diagnosis, fine, judged, skipped, wrong
from core import clock
from core.settings import Settings
from core.settings.given_settings import variable_of
from core.settings.mail_server import MailSender, MailServer
from core.signed_urls import SEEN_CALLERS, SEEN_HEADER
from integrations.http_client import HttpBounds, HttpClient, HttpFailure, HttpReply, reason_of
from integrations.mail.port import Mail
from integrations.mail.smtp import SmtpMailer

_PROVIDER_BOUNDS = HttpBounds(max_seconds=8.0, max_connect_seconds=4.0, max_reply_bytes=1024 * 1024)
_KEY_REFUSED = {401, 403}
_SERVER_ERRORS = range(500, 600)
_WRONG_SECRET = b"invalid-input-secret"
# No such payment exists: a key that is accepted gets 404.
_NO_PAYMENT = "/v1/payment_intents/pi_pressroom_doctor"
_ONE_PHOTO = "/search/photos?query=paper&per_page=1"


class _Call(NamedTuple):
    check: str
    url: str
    key: SecretStr | None
    # The setting that has the key.
    setting: str
    scheme: str = "Bearer"
    errors: frozenset[int] = frozenset(_KEY_REFUSED)
    noun: str = "key"


def ask_providers(settings: Settings) -> Iterator[Diagnosis]:
    asked = False
    with closing(HttpClient(_PROVIDER_BOUNDS)) as http:
        for call in _calls(settings):
            asked = True
            key = call.key.get_secret_value() if call.key else ""
            headers = {"Authorization": f"{call.scheme} {key}"}
            yield _reply_to(http, call, "GET", headers=headers)
        for name in ("turnstile", "hcaptcha", "recaptcha"):
            secret: SecretStr | None = getattr(settings, f"{name}_secret")
            if secret is not None:
                asked = True
                url = str(getattr(settings, f"{name}_url"))
                call = _Call(name, url, secret, f"{name}_secret", noun="secret")
                # Providers name a wrong secret, whatever the token is.
                sent = {"secret": secret.get_secret_value(), "response": "pressroom-doctor"}
                yield _reply_to(http, call, "POST", data=sent)
    if not asked:
        yield skipped("keys", "this process has no key of a provider")


def _reply_to(http: HttpClient, call: _Call, method: str, **content: Any) -> Diagnosis:
    try:
        reply = http.send(method, call.url, **content)
    except HttpFailure as failure:
        advice = "Let this process call the internet, without a proxy."
        return wrong(call.check, f"not reached: {reason_of(failure)}", advice)
    if reply.status in _SERVER_ERRORS:
        return wrong(call.check, f"it answers {reply.status}", "Ask again later.")
    refused = f"the {call.noun} is refused"
    if call.noun == "key":
        refused += f" ({reply.status})"
    is_refused = reply.status in call.errors or _WRONG_SECRET in reply.body
    return judged(
        call.check,
        refused if is_refused else f"the {call.noun} is accepted",
        is_wrong=is_refused,
        advice=f"Check {variable_of(call.setting)}.",
    )


def _calls(settings: Settings) -> Iterator[_Call]:
    # A restricted key may lack a right, and is accepted for all that.
    accepting = frozenset({401})
    if settings.stripe_secret_key is not None:
        url = _below(settings.stripe_base_url, _NO_PAYMENT)
        key = settings.stripe_secret_key
        yield _Call("stripe", url, key, "stripe_secret_key", errors=accepting)
    if settings.payments_sandbox_url is not None:
        url, own = _below(settings.payments_sandbox_url, _NO_PAYMENT), "payments_sandbox_secret_key"
        key_of_sandbox = settings.payments_sandbox_secret_key
        yield _Call("payments sandbox", url, key_of_sandbox, own, errors=accepting)
    if settings.llm_provider == "openai" and settings.llm_api_key is not None:
        url = _below(settings.llm_base_url, "/models")
        yield _Call("language model", url, settings.llm_api_key, "llm_api_key")
    if settings.unsplash_access_key is not None:
        url, key = _below(settings.unsplash_base_url, _ONE_PHOTO), settings.unsplash_access_key
        yield _Call("unsplash", url, key, "unsplash_access_key", "Client-ID")


def _below(base: object, path: str) -> str:
    return str(base).rstrip("/") + path


_PATH = "/healthz"
_BOUNDS = HttpBounds(max_seconds=8.0, max_connect_seconds=5.0, max_reply_bytes=64 * 1024)
_OK, _NOT_FOUND = 200, 404
# From a network for documents (RFC 5737): no caller has it.
_INVENTED_ADDRESS = "192.0.2.1"


def ask_public_url(settings: Settings) -> Iterator[Diagnosis]:
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
        if settings.pages_url is not None:
            yield _pages_host(http, settings.pages_base)
        if SEEN_HEADER not in reply.headers:
            advice = "Give this process the secret keys of the API, and set its clock."
            yield skipped("proxy headers", "the API does not say what it sees", advice)
            return
        yield _seen(settings, json.loads(reply.headers[SEEN_HEADER]))
        forged = _call(http, settings, **{"X-Forwarded-For": _INVENTED_ADDRESS})
        is_believed = (
            json.loads(forged.headers.get(SEEN_HEADER, "{}")).get("address") == _INVENTED_ADDRESS
        )
        yield judged(
            "invented address",
            "the API believes what a caller says of itself"
            if is_believed
            else "the API does not believe it",
            is_wrong=is_believed,
            advice="Let the proxy set X-Forwarded-For anew, and trust no network that callers are"
            " in.",
        )


def _pages_host(http: HttpClient, base: str) -> Diagnosis:
    try:
        health, login = http.send("GET", base + _PATH), http.send("GET", f"{base}/login")
    except HttpFailure as failure:
        advice = "Check PRESSROOM_PAGES_URL, its name, its certificate and the proxy."
        return wrong("readers' pages", f"{base}: {reason_of(failure)}", advice)
    if health.status != _OK:
        advice = "Another server answers there, or the API is down."
        return wrong("readers' pages", f"{base}{_PATH} answers {health.status}", advice)
    if login.status != _NOT_FOUND:
        advice = "Let the proxy pass the Host header on, and give PRESSROOM_PAGES_URL to the API."
        return wrong("readers' pages", f"{base} has a login, as the public URL has", advice)
    return fine("readers' pages", f"{base} answers, and has no login")


def _call(http: HttpClient, settings: Settings, **headers: str) -> HttpReply:
    lifetime, now = timedelta(minutes=1), clock.now()
    base = settings.public_base
    url, _ = SEEN_CALLERS.create(settings.keyring, _PATH, base=base, lifetime=lifetime, now=now)
    return http.send("GET", url, headers=headers)


def _seen(settings: Settings, seen: dict[str, Any]) -> Diagnosis:
    found = f"{seen['address']} by {seen['scheme']}, from {seen['peer']}"
    if seen["is_forwarded"] and not seen["is_trusted"]:
        advice = f"Name the proxy {seen['peer']} in PRESSROOM_TRUSTED_PROXIES."
        return wrong("proxy headers", f"{found}: all callers count as one", advice)
    if seen["scheme"] != settings.public_url.scheme:
        advice = "Let the proxy send X-Forwarded-Proto, and name it in PRESSROOM_TRUSTED_PROXIES."
        return wrong("proxy headers", found, advice)
    return fine("proxy headers", found)


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
    mailer.send(Mail(send_to, "Pressroom sends mail", _TEXT, f"<p>{_TEXT}</p>"))
    yield fine("sending", f"the server took a mail to {send_to}, from {sender.address}")
