import subprocess

import pytest

from core.keyring import Keyring
from core.settings import Settings, load_settings
from core.settings.given_settings import PREFIX
from tests.deployment import files

pytestmark = pytest.mark.check


def test_example_lists_every_setting_and_no_other() -> None:
    listed = {name for name in files.env_example() if name.startswith(PREFIX)}
    assert listed == set(files.setting_names())


def test_what_is_no_setting_is_a_variable_of_the_compose_file() -> None:
    used = {match[1] for match in files.VARIABLE.finditer(files.COMPOSE_FILE.read_text())}
    assert set(files.env_example()) - set(files.setting_names()) <= used


@pytest.mark.parametrize("name", files.setting_names())
def test_each_setting_is_described_as_where_it_is_declared(name: str) -> None:
    assert files.setting_names()[name] in files.env_example()[name].comments


def test_no_secret_has_a_value() -> None:
    secrets = [
        PREFIX + name.upper()
        for name, field in Settings.model_fields.items()
        if "SecretStr" in str(field.annotation)
    ]
    assert secrets
    for name in secrets:
        assert files.env_example()[name].value == ""


def test_the_recipe_for_a_key_makes_one() -> None:
    made = [_made_key(), _made_key()]
    assert made[0] != made[1]
    assert Keyring.parse(made[0]).current.id == "k1"


def test_filled_in_example_is_a_valid_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    filled = {name: entry.value for name, entry in files.env_example().items()}
    filled["PRESSROOM_SECRET_KEYS"] = _made_key()
    filled["PRESSROOM_ENCRYPTION_KEYS"] = _made_key()
    filled["PRESSROOM_S3_SECRET_KEY"] = "0123456789abcdef"
    filled["PRESSROOM_DATABASE_URL"] = "postgresql://pressroom:secret@postgres:5432/pressroom"
    filled["PRESSROOM_REDIS_URL"] = "redis://:secret@redis:6379/0"
    filled["PRESSROOM_S3_ENDPOINT"] = "http://minio:9000"
    for name in files.setting_names():
        monkeypatch.delenv(name, raising=False)
    for name, value in filled.items():
        monkeypatch.setenv(name, value)
    settings = load_settings.__wrapped__()
    assert settings.media_base_url is None
    assert settings.flower_password is None


def _made_key() -> str:
    return subprocess.run(
        files.key_recipe(), shell=True, check=True, capture_output=True, text=True
    ).stdout.strip()
