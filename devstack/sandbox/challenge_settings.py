"""The bot challenges' part of the sandbox, as the settings name it."""

from collections.abc import Mapping

SANDBOX_PREFIX = "/challenges"
SITEVERIFY_PATHS = {
    "turnstile": "/turnstile/v0/siteverify",
    "hcaptcha": "/hcaptcha/siteverify",
    "recaptcha": "/recaptcha/api/siteverify",
}
# Where the sandbox says that a token was made; the pages of `make run` are there too.
HOSTNAME = "localhost"


def sandbox_secret(provider: str) -> str:
    """Known to everybody: the sandbox listens on the loopback address and guards nothing."""
    return f"sandbox-{provider}-secret"


def sandbox_site_key(provider: str) -> str:
    return f"sandbox-{provider}-site-key"


def sandbox_settings(sandbox_url: str, own: Mapping[str, str]) -> dict[str, str]:
    """Settings that send the challenges to the sandbox.

    A provider of which the user's `own` settings name anything is left to them altogether, so
    that a secret never goes to a service that it isn't for. Host names are set only when every
    provider is the sandbox's: another one's pages are somewhere else.
    """
    chosen: dict[str, str] = {}
    for provider, path in SITEVERIFY_PATHS.items():
        trio = _trio(provider, f"{sandbox_url}{SANDBOX_PREFIX}{path}")
        if own.keys().isdisjoint(trio):
            chosen |= trio
    if len(chosen) == 3 * len(SITEVERIFY_PATHS):
        chosen["PRESSROOM_CHALLENGE_HOSTNAMES"] = HOSTNAME
    return chosen


def _trio(provider: str, url: str) -> dict[str, str]:
    name = f"PRESSROOM_{provider.upper()}"
    return {
        f"{name}_URL": url,
        f"{name}_SECRET": sandbox_secret(provider),
        f"{name}_SITE_KEY": sandbox_site_key(provider),
    }
