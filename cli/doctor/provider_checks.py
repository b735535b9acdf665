"""Are the keys of providers accepted? Asked by calls that cost nothing and change nothing."""

from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from pydantic import SecretStr

from cli.doctor.diagnoses import CheckAnswer, Part, fine, skipped, wrong
from core.settings import Settings
from core.settings.given_settings import variable_of
from integrations.http_client import HttpBounds, HttpClient, HttpFailure, reason_of

_BOUNDS = HttpBounds(max_seconds=8.0, max_connect_seconds=4.0, max_reply_bytes=1024 * 1024)
_KEY_REFUSED = {401, 403}
_SERVER_ERRORS = range(500, 600)
_WRONG_SECRET = b"invalid-input-secret"
# Nobody has it: a key that is accepted gets 404.
_NO_PAYMENT = "/v1/payment_intents/pi_pressroom_doctor"
_ONE_PHOTO = "/search/photos?query=paper&per_page=1"


class _Call(NamedTuple):
    check: str
    url: str
    key: SecretStr | None
    # The setting that has the key.
    setting: str
    scheme: str = "Bearer"
    refusals: frozenset[int] = frozenset(_KEY_REFUSED)


def _ask(settings: Settings) -> Iterator[CheckAnswer]:
    asked = False
    with closing(HttpClient(_BOUNDS)) as http:
        for call in _calls(settings):
            asked = True
            yield _keyed(http, call)
        for name in ("turnstile", "hcaptcha", "recaptcha"):
            secret: SecretStr | None = getattr(settings, f"{name}_secret")
            if secret is not None:
                asked = True
                yield _challenge(http, name, str(getattr(settings, f"{name}_url")), secret)
    if not asked:
        yield skipped("keys", "this process has no key of a provider")


PROVIDERS = Part("providers", _ask)


def _calls(settings: Settings) -> Iterator[_Call]:
    # A restricted key may lack a right, and is accepted for all that.
    accepting = frozenset({401})
    if settings.stripe_secret_key is not None:
        url = _below(settings.stripe_base_url, _NO_PAYMENT)
        key = settings.stripe_secret_key
        yield _Call("stripe", url, key, "stripe_secret_key", refusals=accepting)
    if settings.payments_sandbox_url is not None:
        url, own = _below(settings.payments_sandbox_url, _NO_PAYMENT), "payments_sandbox_secret_key"
        key_of_sandbox = settings.payments_sandbox_secret_key
        yield _Call("payments sandbox", url, key_of_sandbox, own, refusals=accepting)
    if settings.llm_provider == "openai" and settings.llm_api_key is not None:
        url = _below(settings.llm_base_url, "/models")
        yield _Call("language model", url, settings.llm_api_key, "llm_api_key")
    if settings.unsplash_access_key is not None:
        url, key = _below(settings.unsplash_base_url, _ONE_PHOTO), settings.unsplash_access_key
        yield _Call("unsplash", url, key, "unsplash_access_key", "Client-ID")


def _below(base: object, path: str) -> str:
    return str(base).rstrip("/") + path


def _keyed(http: HttpClient, call: _Call) -> CheckAnswer:
    key = call.key.get_secret_value() if call.key else ""
    try:
        reply = http.send("GET", call.url, headers={"Authorization": f"{call.scheme} {key}"})
    except HttpFailure as failure:
        return _unreachable(call.check, failure)
    if reply.status in call.refusals:
        return wrong(call.check, f"the key is refused ({reply.status})", _advice(call.setting))
    if reply.status in _SERVER_ERRORS:
        return wrong(call.check, f"it answers {reply.status}", "Ask again later.")
    return fine(call.check, "the key is accepted")


def _challenge(http: HttpClient, name: str, url: str, secret: SecretStr) -> CheckAnswer:
    """Providers name a wrong secret, whatever the token is."""
    sent = {"secret": secret.get_secret_value(), "response": "pressroom-doctor"}
    try:
        reply = http.send("POST", url, data=sent)
    except HttpFailure as failure:
        return _unreachable(name, failure)
    if reply.status in _SERVER_ERRORS:
        return wrong(name, f"it answers {reply.status}", "Ask again later.")
    if _WRONG_SECRET in reply.body or reply.status in _KEY_REFUSED:
        return wrong(name, "the secret is refused", _advice(f"{name}_secret"))
    return fine(name, "the secret is accepted")


def _unreachable(check: str, failure: HttpFailure) -> CheckAnswer:
    advice = "Let this process call the internet, without a proxy."
    return wrong(check, f"not reached: {reason_of(failure)}", advice)


def _advice(setting: str) -> str:
    return f"Check {variable_of(setting)}."
