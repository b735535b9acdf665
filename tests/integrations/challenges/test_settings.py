import pytest

from core.errors import DomainError, Kind
from core.settings import Settings, SettingsError
from devstack.sandbox.sandbox_settings import build_challenge_settings
from devstack.supervisor import environment
from integrations.challenges.port import Challenge, ChallengeProviderName
from integrations.challenges.registry import Challenges
from tests.support.challenges.setting import ask_challenges
from tests.support.stack.given_settings import Load, settings

SANDBOX = "http://127.0.0.1:4000"
for_each_provider = pytest.mark.parametrize("provider", ChallengeProviderName)


async def list_adapters(challenges: Challenges) -> dict[ChallengeProviderName, Challenge]:
    return {each: challenges.challenge_for(each) for each in challenges.configured}


@for_each_provider
def test_challenge_provider_is_enabled_by_its_secret_and_site_key(
    provider: ChallengeProviderName,
) -> None:
    provider_settings = settings(**{f"{provider}_secret": "s", f"{provider}_site_key": "public"})
    adapters = ask_challenges(provider_settings, list_adapters)
    assert list(adapters) == [provider]
    assert adapters[provider].site_key == "public"


def test_no_challenge_provider_is_enabled_by_default() -> None:
    assert ask_challenges(settings(), list_adapters) == {}


@for_each_provider
def test_disabled_challenge_provider_returns_not_configured(
    provider: ChallengeProviderName,
) -> None:
    async def ask(challenges: Challenges) -> None:
        challenges.challenge_for(provider)

    with pytest.raises(DomainError) as raised:
        ask_challenges(settings(), ask)
    assert (raised.value.kind, raised.value.code) == (Kind.UNAVAILABLE, "challenge.not_configured")


@for_each_provider
@pytest.mark.parametrize("setting_name", ["SECRET", "SITE_KEY"])
def test_challenge_secret_and_site_key_must_be_set_together(
    load: Load, provider: ChallengeProviderName, setting_name: str
) -> None:
    with pytest.raises(SettingsError) as raised:
        load(**{f"{provider.upper()}_{setting_name}": "canary"})
    assert f"PRESSROOM_{provider.upper()}_SECRET" in str(raised.value)
    assert f"PRESSROOM_{provider.upper()}_SITE_KEY" in str(raised.value)
    assert "canary" not in str(raised.value)


def test_challenge_hostnames_are_split_at_commas_and_lower_cased(load: Load) -> None:
    loaded_settings = load(CHALLENGE_HOSTNAMES="WWW.Example.com, localhost,")
    assert loaded_settings.challenge_hostnames == ("www.example.com", "localhost")


@pytest.mark.parametrize(
    "invalid_value", ["https://example.com", "example.com:443", "a b", "*.example"]
)
def test_invalid_challenge_hostname_is_rejected_with_the_setting_name(
    load: Load, invalid_value: str
) -> None:
    with pytest.raises(SettingsError, match="PRESSROOM_CHALLENGE_HOSTNAMES"):
        load(CHALLENGE_HOSTNAMES=invalid_value)


def test_account_pages_use_the_first_challenge_provider_unless_configured(load: Load) -> None:
    two_providers = {
        f"{provider}_{setting_name}": "x"
        for provider in ("HCAPTCHA", "RECAPTCHA")
        for setting_name in ("SECRET", "SITE_KEY")
    }

    def find_account_provider(account_settings: Settings) -> ChallengeProviderName | None:
        async def ask(challenges: Challenges) -> ChallengeProviderName | None:
            return challenges.for_accounts

        return ask_challenges(account_settings, ask)

    assert find_account_provider(load()) is None
    assert find_account_provider(load(**two_providers)) is ChallengeProviderName.HCAPTCHA
    named_settings = load(**two_providers, ACCOUNT_CHALLENGE="recaptcha")
    assert find_account_provider(named_settings) is ChallengeProviderName.RECAPTCHA
    assert find_account_provider(load(**two_providers, ACCOUNT_CHALLENGE="none")) is None
    for invalid_value in ("turnstile", "unheard-of"):
        with pytest.raises(SettingsError, match="PRESSROOM_ACCOUNT_CHALLENGE"):
            load(**two_providers, ACCOUNT_CHALLENGE=invalid_value)


@for_each_provider
@pytest.mark.parametrize("setting_suffix", ["URL", "SECRET", "SITE_KEY"])
@pytest.mark.usefixtures("no_settings")
def test_devstack_leaves_challenge_provider_to_the_user_if_any_setting_is_given(
    provider: ChallengeProviderName, setting_suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_name = f"PRESSROOM_{provider.upper()}_{setting_suffix}"
    monkeypatch.setenv(own_name, "http://mine.example")
    devstack_settings = build_challenge_settings(SANDBOX, environment.read_user_settings())
    programs = environment.build_program_environment(devstack_settings)
    provider_variables = {
        name for name in programs if name.startswith(f"PRESSROOM_{provider.upper()}_")
    }
    assert provider_variables == {own_name}
    assert programs[own_name] == "http://mine.example"
    other_providers = set(ChallengeProviderName) - {provider}
    assert all(f"PRESSROOM_{other.upper()}_URL" in programs for other in other_providers)
    assert "PRESSROOM_CHALLENGE_HOSTNAMES" not in programs


def test_challenge_hostnames_of_the_user_override_the_devstack_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PRESSROOM_CHALLENGE_HOSTNAMES", "127.0.0.1")
    devstack_settings = build_challenge_settings(SANDBOX, environment.read_user_settings())
    assert (
        environment.build_program_environment(devstack_settings)["PRESSROOM_CHALLENGE_HOSTNAMES"]
        == "127.0.0.1"
    )
