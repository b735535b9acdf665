"""The configured challenge providers."""

from core.errors.mailing import CHALLENGE_NOT_CONFIGURED
from core.settings import Settings
from integrations.challenges.port import Challenge, ChallengeProviderName
from integrations.challenges.siteverify import BOUNDS, HCAPTCHA, RECAPTCHA, TURNSTILE, SiteVerify
from integrations.http_client import AsyncHttpClient


class Challenges:
    """The challenge providers that have a secret and a site key in the settings.

    Use one ``Challenges`` per process, because all providers share its HTTP client.
    """

    def __init__(self, given: Settings) -> None:
        accounts = (
            (TURNSTILE, given.turnstile_url, given.turnstile_secret, given.turnstile_site_key),
            (HCAPTCHA, given.hcaptcha_url, given.hcaptcha_secret, given.hcaptcha_site_key),
            (RECAPTCHA, given.recaptcha_url, given.recaptcha_secret, given.recaptcha_site_key),
        )
        self._client = AsyncHttpClient(BOUNDS)
        own_urls = (given.public_url, given.pages_url or given.public_url)
        hostnames = {*(str(each.host).lower() for each in own_urls), *given.challenge_hostnames}
        self._adapters = {
            profile.provider: SiteVerify(
                self._client, profile, str(url), secret, site_key, frozenset(hostnames)
            )
            for profile, url, secret, site_key in accounts
            if secret and site_key
        }
        self._for_accounts = given.account_challenge

    @property
    def configured(self) -> tuple[ChallengeProviderName, ...]:
        return tuple(self._adapters)

    @property
    def for_accounts(self) -> ChallengeProviderName | None:
        """Return the challenge provider for account pages, or ``None`` if they use no challenges.

        By default, account pages use the first configured challenge provider.
        """
        match self._for_accounts:
            case "none":
                return None
            case None:
                return next(iter(self._adapters), None)
            case name:
                return ChallengeProviderName(name)

    def challenge_for(self, provider: ChallengeProviderName) -> Challenge:
        if provider not in self._adapters:
            raise CHALLENGE_NOT_CONFIGURED(provider=provider)
        return self._adapters[provider]

    async def aclose(self) -> None:
        await self._client.aclose()
