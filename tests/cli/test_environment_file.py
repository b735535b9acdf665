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
from tests.support.commands.running import ended
from tests.support.deployment import files
from tests.support.deployment.files import made_secrets

pytestmark = pytest.mark.tier("check")

URL = "https://news.example.com"
DRAWN = {
    "PRESSROOM_SECRET_KEYS": "secret_keys",
    "PRESSROOM_ENCRYPTION_KEYS": "encryption_keys",
    "PRESSROOM_S3_SECRET_KEY": "s3_secret_key",
    "PRESSROOM_FLOWER_PASSWORD": "flower_password",
    "PRESSROOM_METRICS_TOKEN": "metrics_token",
    "POSTGRES_PASSWORD": "postgres_password",
    "REDIS_PASSWORD": "redis_password",
    "MINIO_ROOT_PASSWORD": "s3_admin_secret_key",
}


def env(
    folder: Path, *words: str, url: str | None = URL, **environment: str
) -> subprocess.CompletedProcess[str]:
    asked = () if url is None else ("--public-url", url)
    with chdir(folder):
        return ended({"PATH": os.environ["PATH"], **environment}, "env", *asked, *words)


def written(folder: Path, **environment: str) -> dict[str, str]:
    """The variables of the file, as Compose reads them."""
    done = env(folder, **environment)
    assert done.returncode == 0, done.stderr
    lines = (folder / ".env").read_text().splitlines()
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    assert len({name for name, _, _ in pairs}) == len(pairs)
    return {name: value.strip("'") for name, _, value in pairs}


def test_generated_env_file_has_every_setting_with_default_or_generated_value(
    tmp_path: Path,
) -> None:
    found = written(tmp_path)
    expected = {name: each.value for name, each in files.env_example().items()}
    drawn = {*DRAWN, "POSTGRES_APP_PASSWORD"}
    assert set(found) == {*expected, *drawn}
    assert {name: found[name] for name in set(found) - drawn} == {
        **{name: value for name, value in expected.items() if name not in drawn},
        "PRESSROOM_PUBLIC_URL": URL,
    }
    assert all(found[name] for name in drawn)


def test_generated_env_file_is_private_and_its_secrets_are_not_printed(tmp_path: Path) -> None:
    done = env(tmp_path)
    file = tmp_path / ".env"
    assert file.stat().st_mode & 0o777 == 0o600
    text = file.read_text()
    for name in DRAWN:
        [value] = [line.partition("=")[2] for line in text.splitlines() if line.startswith(name)]
        assert value not in done.stdout + done.stderr


def test_existing_env_file_is_never_changed(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("PRESSROOM_SECRET_KEYS=mine\n")
    done = env(tmp_path)
    assert done.returncode == 1
    assert "the file already exists" in done.stderr
    assert (tmp_path / ".env").read_text() == "PRESSROOM_SECRET_KEYS=mine\n"


def test_two_generated_env_files_share_no_secret(tmp_path: Path) -> None:
    found = []
    for name in ("one", "another"):
        (tmp_path / name).mkdir()
        found.append(written(tmp_path / name))
    assert not [name for name in DRAWN if found[0][name] == found[1][name]]


def test_env_command_adopts_settings_from_its_environment(tmp_path: Path) -> None:
    given = {
        "PRESSROOM_MAIL_URL": "smtp://me:p%24ss%23word@mail.example.com",
        "PRESSROOM_MAIL_FROM": "The $ News <news@example.com>",
        "HTTPS_PORT": "8443",
    }
    found = written(tmp_path, **given)
    assert {name: found[name] for name in given} == given
    made = made_secrets(tmp_path, (tmp_path / ".env").read_text())
    assert (made / "mail_url").read_text() == given["PRESSROOM_MAIL_URL"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"PRESSROOM_LOG_LEVEL": "loud"}, "PRESSROOM_LOG_LEVEL: "),
        (
            {"PRESSROOM_MAIL_FROM": "O'Hara <o@example.com>"},
            "PRESSROOM_MAIL_FROM: must not contain",
        ),
    ],
)
def test_env_command_rejects_settings_that_no_process_would_accept(
    tmp_path: Path, given: dict[str, str], said: str
) -> None:
    done = env(tmp_path, **given)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / ".env").exists()


def test_env_command_requires_public_url_without_a_terminal(tmp_path: Path) -> None:
    done = env(tmp_path, url=None)
    assert done.returncode == 2
    assert "--public-url" in done.stderr
    assert env(tmp_path, url=None, PRESSROOM_PUBLIC_URL=URL).returncode == 0


def answered(folder: Path, *words: str, answers: list[tuple[str, str]]) -> str:
    """Run the command at a terminal, give each answer after its question, and return the output."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "cli.main", "env", *words],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(files.ROOT)},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    output = ""
    for question, answer in answers:
        start = len(output)
        while not re.search(re.escape(question) + ".*: $", output[start:]):
            output += os.read(ours, 4096).decode()
        os.write(ours, f"{answer}\n".encode())
    try:
        while block := os.read(ours, 4096):
            output += block.decode()
    except OSError:
        # Linux raises an error after the process has closed the terminal.
        pass
    assert process.wait() == 0, output
    os.close(ours)
    return output


def test_env_command_asks_for_the_public_url_and_the_mail_server_at_a_terminal(
    tmp_path: Path,
) -> None:
    output = answered(
        tmp_path,
        answers=[
            ("Public URL", URL),
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
    assert f"PRESSROOM_PUBLIC_URL={URL}\n" in text
    login = "me%40example.com:p%20w%2F%3A%25"
    assert f"PRESSROOM_MAIL_URL=smtps://{login}@mail.example.com:2465\n" in text
    assert "PRESSROOM_MAIL_FROM='News <news@example.com>'\n" in text


def test_env_command_takes_mail_settings_from_options_and_lists_what_is_still_empty(
    tmp_path: Path,
) -> None:
    for name in ("with", "without"):
        (tmp_path / name).mkdir()
    mail = ("--mail-url", "smtp://mail", "--mail-from", "news@example.com")
    done = env(tmp_path / "with", "--json", *mail)
    empty = json.loads(done.stdout)["empty"]
    assert {"PRESSROOM_BACKUP_URL", "PRESSROOM_STRIPE_SECRET_KEY"} < set(empty)
    assert "PRESSROOM_MAIL_URL" not in empty
    text = (tmp_path / "with" / ".env").read_text()
    assert "PRESSROOM_MAIL_URL=smtp://mail\n" in text
    assert "PRESSROOM_MAIL_FROM=news@example.com\n" in text
    # Without a terminal, the command doesn't wait for answers.
    done = env(tmp_path / "without")
    assert "  PRESSROOM_MAIL_URL: no mail is sent" in done.stdout
    # At a terminal, the user can skip the question about the mail server.
    (tmp_path / "without" / ".env").unlink()
    output = answered(tmp_path / "without", "--public-url", URL, answers=[("Mail server", "")])
    assert "  PRESSROOM_MAIL_URL: no mail is sent" in output


def test_generated_env_file_satisfies_every_compose_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables without a default have a value, and each process takes what it is handed."""
    found = written(tmp_path)
    made = made_secrets(tmp_path, (tmp_path / ".env").read_text())
    for variable, secret in DRAWN.items():
        assert (made / secret).read_text() == found[variable]
    for name in files.ours():
        environment = files.ours()[name]["environment"]
        for variable in set(files.setting_names()) | set(files.secrets()):
            monkeypatch.delenv(variable, raising=False)
        for variable, value in environment.items():
            filled = files.VARIABLE.sub(lambda each: _filled(each, found), str(value))
            is_file = variable.endswith(FILE_SUFFIX) and filled.startswith(files.SECRETS_FOLDER)
            place = str(made / filled.rpartition("/")[2]) if is_file else filled
            monkeypatch.setenv(variable, place)
        if {"PRESSROOM_PUBLIC_URL", "PRESSROOM_DATABASE_URL_FILE"} <= set(environment):
            signs = "PRESSROOM_SECRET_KEYS_FILE" in environment
            settings = read_settings(Settings if signs else MediaSettings)
            assert settings.public_base == URL
            assert found["POSTGRES_APP_PASSWORD"] in settings.database_url.get_secret_value()


def _filled(found: re.Match[str], values: dict[str, str]) -> str:
    name = found[1]
    operator = found[2]
    otherwise = found[3]
    value = values.get(name, "")
    if operator == ":?":
        assert value, f"Compose stops without {name}"
    is_missing = not value if operator and operator.startswith(":") else name not in values
    return (otherwise or "") if is_missing else value


def test_generated_env_file_describes_each_setting_in_a_comment(tmp_path: Path) -> None:
    done = env(tmp_path)
    assert done.returncode == 0, done.stderr
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
    done = env(tmp_path, "--output", "-")
    assert done.returncode == 0, done.stderr
    assert "PRESSROOM_BACKUP_URL: no backups are made" in done.stderr
    assert "settings are empty" not in done.stdout
