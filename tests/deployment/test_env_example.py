import json
import subprocess

import pytest

from core.keyring import Keyring
from core.settings import Settings, load_settings
from core.settings.given_settings import PREFIX
from tests.deployment import files

pytestmark = pytest.mark.check


def test_example_has_every_setting_with_its_description_and_every_variable_of_compose() -> None:
    entries, settings = files.env_example(), files.setting_names()
    used = {match[1] for match in files.VARIABLE.finditer(json.dumps(files.compose()))}
    assert entries.keys() == settings.keys() | used
    assert [name for name, text in settings.items() if text not in entries[name].comments] == []
    secrets = [
        PREFIX + name.upper()
        for name, field in Settings.model_fields.items()
        if "SecretStr" in str(field.annotation)
    ]
    assert secrets
    assert [name for name in secrets if entries[name].value] == []


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
