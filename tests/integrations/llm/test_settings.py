import pytest
from pydantic import ValidationError

from core.settings import Settings, SettingsError
from devstack.sandbox.sandbox_settings import LLM_API_KEY, build_llm_settings
from devstack.supervisor.environment import build_program_environment
from integrations.llm.registry import language_model
from tests.support.composer.language_model import (
    API_KEY,
    LanguageModelRun,
    build_question,
    ignore_usage,
)
from tests.support.stack.given_settings import settings

SANDBOX = "http://127.0.0.1:4000"


def openai_settings(**llm_settings: object) -> Settings:
    return settings(
        **{"llm_provider": "openai", "llm_model": "gpt", "llm_api_key": API_KEY, **llm_settings}
    )


def test_offline_writer_is_the_default_and_calls_no_llm() -> None:
    assert settings().llm_provider == "offline"
    assert language_model(settings(), ignore_usage) is None
    assert language_model(settings(llm_model="gpt", llm_api_key=API_KEY), ignore_usage) is None


def test_threads_of_a_process_share_the_learnt_llm_format(model_run: LanguageModelRun) -> None:
    llm_settings = openai_settings(llm_base_url=model_run.base_url, llm_model="sandbox-no-schema")
    for _ in range(2):
        model = language_model(llm_settings, ignore_usage)
        assert model is not None
        model.ask(build_question())
    assert model_run.forms == ["json_schema", "json_object", "json_object"]


@pytest.mark.parametrize(
    ("setting", "llm_settings"),
    [
        ("llm_model", {"llm_model": None}),
        ("llm_model", {"llm_model": "gpt; fallback"}),
        ("llm_model", {"llm_model": "gpt\r\nSet-Cookie: a"}),
        ("llm_model", {"llm_model": "g" * 101}),
        ("llm_api_key", {"llm_api_key": "two words"}),
        ("llm_api_key", {"llm_api_key": "clé"}),
        ("llm_base_url", {"llm_base_url": "https://user:secret@models.example/v1"}),
        ("llm_base_url", {"llm_base_url": "https://models.example/v1?key=secret"}),
        ("llm_base_url", {"llm_base_url": "ftp://models.example/v1"}),
        ("llm_provider", {"llm_provider": "oracle"}),
        ("llm_fallback", {"llm_fallback": "retry"}),
        ("llm_context_tokens", {"llm_context_tokens": 100}),
    ],
)
def test_invalid_llm_setting_is_rejected_by_name_without_its_value(
    setting: str, llm_settings: dict[str, object]
) -> None:
    with pytest.raises(ValidationError) as raised:
        openai_settings(**llm_settings)
    assert [problem["loc"][0] for problem in raised.value.errors()] == [setting]
    assert "secret" not in str(raised.value)


def test_llm_worker_requires_api_key_for_openai() -> None:
    # The API process starts without an LLM key, because only workers call the language model.
    llm_settings = openai_settings(llm_api_key=None)
    with pytest.raises(SettingsError, match=r"^PRESSROOM_LLM_API_KEY: is required for api.openai"):
        llm_settings.require_model_key()
    openai_settings().require_model_key()


def test_llm_server_with_own_url_requires_no_api_key() -> None:
    llm_settings = openai_settings(llm_base_url="http://models.internal:8000/v1", llm_api_key=None)
    llm_settings.require_model_key()
    assert language_model(llm_settings, ignore_usage) is not None


def test_devstack_uses_offline_writer_by_default() -> None:
    assert build_llm_settings(SANDBOX, {}) == {}


def test_devstack_uses_sandbox_llm_if_only_the_provider_is_set() -> None:
    devstack_settings = build_llm_settings(SANDBOX, {"PRESSROOM_LLM_PROVIDER": "openai"})
    assert devstack_settings == {
        "PRESSROOM_LLM_BASE_URL": f"{SANDBOX}/llm/v1",
        "PRESSROOM_LLM_API_KEY": LLM_API_KEY,
        "PRESSROOM_LLM_MODEL": "sandbox",
    }


def test_devstack_uses_the_sandbox_model_chosen_by_the_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PRESSROOM_LLM_PROVIDER", "openai")
    monkeypatch.setenv("PRESSROOM_LLM_MODEL", "sandbox-429")
    user_settings = {"PRESSROOM_LLM_PROVIDER": "openai", "PRESSROOM_LLM_MODEL": "sandbox-429"}
    environment = build_program_environment(build_llm_settings(SANDBOX, user_settings))
    assert environment["PRESSROOM_LLM_MODEL"] == "sandbox-429"
    assert environment["PRESSROOM_LLM_BASE_URL"] == f"{SANDBOX}/llm/v1"


@pytest.mark.parametrize("name", ["BASE_URL", "API_KEY"])
def test_devstack_leaves_llm_settings_to_the_user_if_url_or_key_is_set(name: str) -> None:
    user_settings = {"PRESSROOM_LLM_PROVIDER": "openai", f"PRESSROOM_LLM_{name}": "theirs"}
    assert build_llm_settings(SANDBOX, user_settings) == {}
