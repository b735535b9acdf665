import json
import subprocess
from pathlib import Path

import pytest

from core.keyring import Keyring
from core.settings import Settings, read_settings
from core.settings.given_settings import FILE_SUFFIX, PREFIX
from tests.support.deployment import files
from tests.support.deployment.files import ENV_EXAMPLE, create_secrets

pytestmark = pytest.mark.tier("check")


def read_key_command() -> str:
    """Return the command in .env.example that creates a key."""
    line = next(each for each in ENV_EXAMPLE.read_text().splitlines() if "A key:" in each)
    return line.partition("A key:")[2].strip()


def test_env_example_lists_every_setting_with_its_description() -> None:
    entries = files.env_example()
    settings = files.setting_names()
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


def test_documented_key_command_generates_valid_keys() -> None:
    keys = [_run_key_command(), _run_key_command()]
    assert keys[0] != keys[1]
    assert Keyring.parse(keys[0]).current.id == "k1"


def _run_key_command() -> str:
    return subprocess.run(
        read_key_command(), shell=True, check=True, capture_output=True, text=True
    ).stdout.strip()


# The secrets of the database role that owns the tables, and of the administrator of the object
# storage.
OWNER_SECRETS = {"migration_database_url", "postgres_password"}
ADMINISTRATOR_SECRETS = {"s3_admin_secret_key"}


@pytest.mark.parametrize("name", files.our_services())
def test_compose_processes_see_only_the_secrets_their_variables_name(name: str) -> None:
    service = files.our_services()[name]
    secrets = files.secrets()
    paths = {
        variable: path for variable, path in service["environment"].items() if variable in secrets
    }
    assert paths == {each: f"{files.SECRETS_FOLDER}/{secrets[each]}" for each in paths}
    assert sorted(service["secrets"]) == sorted(secrets[each] for each in paths)


def test_every_compose_secret_is_used_by_a_service_and_made_by_the_script(tmp_path: Path) -> None:
    declared = files.compose()["secrets"]
    assert declared == {name: {"file": f"secrets/{name}"} for name in declared}
    services = files.services() | files.observability_services()
    used = {name for each in services.values() for name in each.get("secrets", [])}
    assert used == set(declared)
    created = {file.name for file in create_secrets(tmp_path).iterdir()}
    assert created == set(declared)


def test_compose_file_passes_secrets_only_as_files() -> None:
    for service in files.services().values():
        for name, value in service.get("environment", {}).items():
            if name.endswith(("PASSWORD", "KEY", "KEYS", "TOKEN", "AUTH")):
                # Two kinds of keys aren't secret: an access key is a kind of user name, and a
                # challenge's site key appears in public pages.
                is_public = name.endswith(("ACCESS_KEY", "SITE_KEY"))
                assert is_public, f"{name} is a variable"
                assert files.VARIABLE.fullmatch(value), f"{name} is written out"
            if name.endswith(FILE_SUFFIX) and value.startswith(files.SECRETS_FOLDER):
                assert value.rpartition("/")[2] in service["secrets"]


def test_only_one_off_commands_and_their_servers_see_owner_and_admin_secrets(
    tmp_path: Path,
) -> None:
    """Only `postgres` and `migrate` get the password of the database's owner.

    Only `minio` and `bucket` get the password of the object storage's administrator.
    """
    secrets_of_services = {
        name: set(each.get("secrets", [])) for name, each in files.services().items()
    }
    for secrets, services in (
        (OWNER_SECRETS, {"postgres", "migrate"}),
        (ADMINISTRATOR_SECRETS, {"minio", "bucket"}),
    ):
        assert {name for name, used in secrets_of_services.items() if used & secrets} == services
    folder = create_secrets(tmp_path)
    owner = files.services()["postgres"]["environment"]["POSTGRES_USER"]
    password = (folder / "postgres_password").read_text()
    assert f"//{owner}:{password}@" in (folder / "migration_database_url").read_text()
    assert f"//{owner}:" not in (folder / "database_url").read_text()
    assert password not in (folder / "database_url").read_text()


def test_compose_command_lines_contain_no_secrets() -> None:
    for name, each in files.services().items():
        words = json.dumps([each.get("command"), each.get("healthcheck")])
        assert not files.VARIABLE.search(words), name


def test_settings_accept_every_secret_that_the_script_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = create_secrets(tmp_path)
    for variable, name in files.secrets().items():
        monkeypatch.delenv(variable.removesuffix(FILE_SUFFIX), raising=False)
        if (folder / name).exists():
            monkeypatch.setenv(variable, str(folder / name))
    for name in ("S3_ACCESS_KEY", "S3_ADMIN_ACCESS_KEY"):
        monkeypatch.setenv(f"PRESSROOM_{name}", name)
    monkeypatch.setenv("PRESSROOM_S3_ENDPOINT", "http://minio:9000")
    monkeypatch.setenv("PRESSROOM_PUBLIC_URL", "https://api.example.com")
    settings = read_settings(Settings)
    assert settings.mail_url is None


def test_two_deployments_share_no_secret(tmp_path: Path) -> None:
    first, second = (_read_files(create_secrets(tmp_path / name)) for name in ("one", "another"))
    assert first.keys() == second.keys()
    assert not [name for name, text in first.items() if text and text == second[name]]


def test_secrets_script_keeps_existing_secrets_and_adopts_env_file_values(
    tmp_path: Path,
) -> None:
    before = _read_files(create_secrets(tmp_path))
    env_values = {"mail_url": "smtp://u:p%24@mail.example.com", "s3_secret_key": "one's own"}
    lines = f'PRESSROOM_MAIL_URL={env_values["mail_url"]}\nPRESSROOM_S3_SECRET_KEY="one\'s own"\n'
    after = _read_files(create_secrets(tmp_path, lines))
    assert after == before | env_values
    # The script keeps the secrets that it read from the env file earlier, although the env file no
    # longer contains these secrets.
    assert _read_files(create_secrets(tmp_path)) == after


def test_secret_files_are_hidden_from_other_users_and_readable_by_containers(
    tmp_path: Path,
) -> None:
    folder = create_secrets(tmp_path)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o444}
    assert "/secrets/" in (files.ROOT / ".gitignore").read_text().splitlines()


def _read_files(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in folder.iterdir()}
