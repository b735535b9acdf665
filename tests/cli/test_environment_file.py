"""Tests of the command ``env``, which generates the file ``.env``."""

import json
import os
import pty
import re
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import pytest

from core.settings import Settings, read_settings
from core.settings.given_settings import FILE_SUFFIX
from core.settings.product_settings import MediaSettings
from tests.support.commands.running import run_command
from tests.support.deployment import files
from tests.support.deployment.files import create_secrets

pytestmark = pytest.mark.tier("check")

PUBLIC_URL = "https://news.example.com"
SECRET_FILES = {
    "PRESSROOM_SECRET_KEYS": "secret_keys",
    "PRESSROOM_ENCRYPTION_KEYS": "encryption_keys",
    "PRESSROOM_S3_SECRET_KEY": "s3_secret_key",
    "PRESSROOM_FLOWER_PASSWORD": "flower_password",
    "PRESSROOM_METRICS_TOKEN": "metrics_token",
    "POSTGRES_PASSWORD": "postgres_password",
    "REDIS_PASSWORD": "redis_password",
    "MINIO_ROOT_PASSWORD": "s3_admin_secret_key",
}


def run_env_command(
    folder: Path, *options: str, url: str | None = PUBLIC_URL, **environment: str
) -> subprocess.CompletedProcess[str]:
    url_option = () if url is None else ("--public-url", url)
    with chdir(folder):
        return run_command(
            {"PATH": os.environ["PATH"], **environment}, "env", *url_option, *options
        )


def write_env_file(folder: Path, **environment: str) -> dict[str, str]:
    """Generate the file ``.env``, and return its variables as Docker Compose would read them."""
    process = run_env_command(folder, **environment)
    assert process.returncode == 0, process.stderr
    lines = (folder / ".env").read_text().splitlines()
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    assert len({name for name, _, _ in pairs}) == len(pairs)
    return {name: value.strip("'") for name, _, value in pairs}


def test_generated_env_file_has_every_setting_with_default_or_generated_value(
    tmp_path: Path,
) -> None:
    variables = write_env_file(tmp_path)
    expected = {name: setting.value for name, setting in files.env_example().items()}
    generated_names = {*SECRET_FILES, "POSTGRES_APP_PASSWORD"}
    assert set(variables) == {*expected, *generated_names}
    assert {name: variables[name] for name in set(variables) - generated_names} == {
        **{name: value for name, value in expected.items() if name not in generated_names},
        "PRESSROOM_PUBLIC_URL": PUBLIC_URL,
    }
    assert all(variables[name] for name in generated_names)


def test_generated_env_file_is_private_and_its_secrets_are_not_printed(tmp_path: Path) -> None:
    process = run_env_command(tmp_path)
    file = tmp_path / ".env"
    assert file.stat().st_mode & 0o777 == 0o600
    text = file.read_text()
    for name in SECRET_FILES:
        [value] = [line.partition("=")[2] for line in text.splitlines() if line.startswith(name)]
        assert value not in process.stdout + process.stderr


def test_existing_env_file_is_never_changed(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("PRESSROOM_SECRET_KEYS=mine\n")
    process = run_env_command(tmp_path)
    assert process.returncode == 1
    assert "the file already exists" in process.stderr
    assert (tmp_path / ".env").read_text() == "PRESSROOM_SECRET_KEYS=mine\n"


def test_two_generated_env_files_share_no_secret(tmp_path: Path) -> None:
    variables_of_files = []
    for name in ("one", "another"):
        (tmp_path / name).mkdir()
        variables_of_files.append(write_env_file(tmp_path / name))
    assert not [
        name for name in SECRET_FILES if variables_of_files[0][name] == variables_of_files[1][name]
    ]


def test_env_command_adopts_settings_from_its_environment(tmp_path: Path) -> None:
    environment = {
        "PRESSROOM_MAIL_URL": "smtp://me:p%24ss%23word@mail.example.com",
        "PRESSROOM_MAIL_FROM": "The $ News <news@example.com>",
        "HTTPS_PORT": "8443",
    }
    variables = write_env_file(tmp_path, **environment)
    assert {name: variables[name] for name in environment} == environment
    secrets_folder = create_secrets(tmp_path, (tmp_path / ".env").read_text())
    assert (secrets_folder / "mail_url").read_text() == environment["PRESSROOM_MAIL_URL"]


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"PRESSROOM_LOG_LEVEL": "loud"}, "PRESSROOM_LOG_LEVEL: "),
        (
            {"PRESSROOM_MAIL_FROM": "O'Hara <o@example.com>"},
            "PRESSROOM_MAIL_FROM: must not contain",
        ),
    ],
)
def test_env_command_rejects_settings_that_no_process_would_accept(
    tmp_path: Path, environment: dict[str, str], message: str
) -> None:
    process = run_env_command(tmp_path, **environment)
    assert process.returncode == 2
    assert message in process.stderr
    assert not (tmp_path / ".env").exists()


def test_env_command_requires_public_url_without_a_terminal(tmp_path: Path) -> None:
    process = run_env_command(tmp_path, url=None)
    assert process.returncode == 2
    assert "--public-url" in process.stderr
    assert run_env_command(tmp_path, url=None, PRESSROOM_PUBLIC_URL=PUBLIC_URL).returncode == 0


def answer_questions(folder: Path, *options: str, answers: list[tuple[str, str]]) -> str:
    """Run the command at a terminal, give each answer after its question, and return the output."""
    controller_fd, terminal_fd = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "cli.main", "env", *options],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(files.ROOT)},
        stdin=terminal_fd,
        stdout=terminal_fd,
        stderr=terminal_fd,
    )
    os.close(terminal_fd)
    output = ""
    for question, answer in answers:
        start = len(output)
        while not re.search(re.escape(question) + ".*: $", output[start:]):
            output += os.read(controller_fd, 4096).decode()
        os.write(controller_fd, f"{answer}\n".encode())
    try:
        while block := os.read(controller_fd, 4096):
            output += block.decode()
    except OSError:
        # Linux raises an error after the process has closed the terminal.
        pass
    assert process.wait() == 0, output
    os.close(controller_fd)
    return output


def test_env_command_asks_for_the_public_url_and_the_mail_server_at_a_terminal(
    tmp_path: Path,
) -> None:
    output = answer_questions(
        tmp_path,
        answers=[
            ("Public URL", PUBLIC_URL),
            ("Mail server", "mail.example.com"),
            # The first answer has no scheme, so the command asks again.
            ("Mail server", "smtps://mail.example.com:2465"),
            ("User at", "me@example.com"),
            ("Password at", "p w/:%"),
            ("Sender", "News <news@example.com>"),
        ],
    )
    assert "p w/:%" not in output
    assert "must be smtp://" in output
    text = (tmp_path / ".env").read_text()
    assert f"PRESSROOM_PUBLIC_URL={PUBLIC_URL}\n" in text
    login = "me%40example.com:p%20w%2F%3A%25"
    assert f"PRESSROOM_MAIL_URL=smtps://{login}@mail.example.com:2465\n" in text
    assert "PRESSROOM_MAIL_FROM='News <news@example.com>'\n" in text


def test_env_command_takes_mail_settings_from_options_and_lists_what_is_still_empty(
    tmp_path: Path,
) -> None:
    for name in ("with", "without"):
        (tmp_path / name).mkdir()
    mail_options = ("--mail-url", "smtp://mail", "--mail-from", "news@example.com")
    process = run_env_command(tmp_path / "with", "--json", *mail_options)
    empty_settings = json.loads(process.stdout)["empty"]
    assert {"PRESSROOM_BACKUP_URL", "PRESSROOM_STRIPE_SECRET_KEY"} < set(empty_settings)
    assert "PRESSROOM_MAIL_URL" not in empty_settings
    text = (tmp_path / "with" / ".env").read_text()
    assert "PRESSROOM_MAIL_URL=smtp://mail\n" in text
    assert "PRESSROOM_MAIL_FROM=news@example.com\n" in text
    # Without a terminal, the command doesn't wait for answers.
    process = run_env_command(tmp_path / "without")
    assert "  PRESSROOM_MAIL_URL: no mail is sent" in process.stdout
    # At a terminal, the user can skip the question about the mail server.
    (tmp_path / "without" / ".env").unlink()
    output = answer_questions(
        tmp_path / "without", "--public-url", PUBLIC_URL, answers=[("Mail server", "")]
    )
    assert "  PRESSROOM_MAIL_URL: no mail is sent" in output


def test_generated_env_file_satisfies_every_compose_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process in the Compose file must accept the settings that the file ``.env`` contains.

    The file ``.env`` must contain each variable that has no default in the Compose file.
    """
    variables = write_env_file(tmp_path)
    secrets_folder = create_secrets(tmp_path, (tmp_path / ".env").read_text())
    for variable, secret in SECRET_FILES.items():
        assert (secrets_folder / secret).read_text() == variables[variable]
    for name in files.our_services():
        environment = files.our_services()[name]["environment"]
        for variable in set(files.setting_names()) | set(files.secrets()):
            monkeypatch.delenv(variable, raising=False)
        for variable, value in environment.items():
            filled_value = files.VARIABLE.sub(lambda match: _fill_in(match, variables), str(value))
            is_file = variable.endswith(FILE_SUFFIX) and filled_value.startswith(
                files.SECRETS_FOLDER
            )
            setting_value = (
                str(secrets_folder / filled_value.rpartition("/")[2]) if is_file else filled_value
            )
            monkeypatch.setenv(variable, setting_value)
        if {"PRESSROOM_PUBLIC_URL", "PRESSROOM_DATABASE_URL_FILE"} <= set(environment):
            needs_secret_keys = "PRESSROOM_SECRET_KEYS_FILE" in environment
            settings = read_settings(Settings if needs_secret_keys else MediaSettings)
            assert settings.public_base == PUBLIC_URL
            assert variables["POSTGRES_APP_PASSWORD"] in settings.database_url.get_secret_value()


def _fill_in(match: re.Match[str], values: dict[str, str]) -> str:
    name = match[1]
    operator = match[2]
    default = match[3]
    value = values.get(name, "")
    if operator == ":?":
        assert value, f"Compose stops without {name}"
    is_missing = not value if operator and operator.startswith(":") else name not in values
    return (default or "") if is_missing else value


def test_generated_env_file_describes_each_setting_in_a_comment(tmp_path: Path) -> None:
    process = run_env_command(tmp_path)
    assert process.returncode == 0, process.stderr
    texts: dict[str, str] = {}
    for paragraph in (tmp_path / ".env").read_text().split("\n\n")[1:]:
        *lines, setting = paragraph.splitlines()
        assert lines, setting
        assert all(line.startswith("# ") for line in lines), setting
        texts[setting.partition("=")[0]] = " ".join(line[2:] for line in lines)
    assert texts["PRESSROOM_DATABASE_URL"] == (
        "URL of the Postgres database: postgresql://user:password@host:port/db"
    )


def test_env_command_lists_empty_settings_outside_a_file_on_stdout(tmp_path: Path) -> None:
    process = run_env_command(tmp_path, "--output", "-")
    assert process.returncode == 0, process.stderr
    assert "PRESSROOM_BACKUP_URL: no backups are made" in process.stderr
    assert "settings are empty" not in process.stdout
