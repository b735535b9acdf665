from core.refusals.mailing import CHALLENGE_NOT_CONFIGURED
from core.settings import Settings
from integrations.challenges.port import Challenge, ChallengeProviderName
from integrations.challenges.siteverify import BOUNDS, HCAPTCHA, RECAPTCHA, TURNSTILE, SiteVerify
from integrations.http_client import AsyncHttpClient


class Challenges:
    """The providers for which the settings have a secret and a site key; one for a process."""

    def __init__(self, given: Settings) -> None:
        accounts = (
            (TURNSTILE, given.turnstile_url, given.turnstile_secret, given.turnstile_site_key),
            (HCAPTCHA, given.hcaptcha_url, given.hcaptcha_secret, given.hcaptcha_site_key),
            (RECAPTCHA, given.recaptcha_url, given.recaptcha_secret, given.recaptcha_site_key),
        )
        self._client = AsyncHttpClient(BOUNDS)
        self._adapters = {
            profile.provider: SiteVerify(
                self._client, profile, str(url), secret, site_key, given.challenge_hostnames
            )
            for profile, url, secret, site_key in accounts
            if secret and site_key
        }

    @property
    def configured(self) -> tuple[ChallengeProviderName, ...]:
        return tuple(self._adapters)

    def challenge_for(self, provider: ChallengeProviderName) -> Challenge:
        """The provider's adapter.

        Raises ``challenge.not_configured`` (unavailable): the operator can mend it, not the caller.
        """
        if provider not in self._adapters:
            raise CHALLENGE_NOT_CONFIGURED(provider=provider)
        return self._adapters[provider]

    async def aclose(self) -> None:
        await self._client.aclose()
