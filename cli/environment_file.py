"""The command ``pressroom env``, which writes a settings file with new random passwords."""

import ast
import base64
import inspect
import os
import re
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from textwrap import wrap
from typing import Annotated, Any
from urllib.parse import quote

import typer
from pydantic import AnyHttpUrl

from cli.output import Json, print_record
from core.errors import SettingsError
from core.errors.requests import FILE_NOT_WRITTEN
from core.settings import Settings
from core.settings.given_settings import GivenSettings, read_values, variable_of
from core.settings.mail_server import MailSender, MailServer

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_STDOUT = Path("-")
_MAX_LINE_CHARACTERS = 100
# Variables in docker-compose.yml that aren't settings of Pressroom, with defaults and descriptions.
_COMPOSE_VARIABLES = {
    "PRESSROOM_IMAGE": (
        "pressroom:local",
        "Image of the API; the workers' image has the suffix -worker",
    ),
    "MINIO_ROOT_USER": ("administrator", "User name of the object storage's administrator"),
    "HTTP_PORT": ("80", "HTTP port of the proxy, which redirects to HTTPS"),
    "HTTPS_PORT": ("443", "HTTPS port of the proxy"),
    "API_PORT": ("8000", "Port of the API on this machine"),
    "FLOWER_PORT": ("5555", "Port of Flower on this machine"),
    "PROMETHEUS_PORT": ("9090", "Port of Prometheus on this machine"),
    "GRAFANA_PORT": ("3000", "Port of Grafana on this machine"),
}
_TRACING_VARIABLES = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": "URL of the trace collector; empty disables tracing",
    "OTEL_EXPORTER_OTLP_TIMEOUT": (
        "Seconds before a request to the collector times out; the default is 10"
    ),
    "OTEL_EXPORTER_OTLP_COMPRESSION": "Compression of requests to the collector: gzip or none",
    "OTEL_TRACES_SAMPLER": (
        "Sampler that selects the recorded traces, such as parentbased_traceidratio"
    ),
    "OTEL_TRACES_SAMPLER_ARG": "Argument of the sampler, such as 0.1 for one trace in ten",
    "OTEL_RESOURCE_ATTRIBUTES": "Further attributes of each process in traces",
}
# Passwords that deploy/compose/secrets.sh reads from the file that ``pressroom env`` writes.
_PASSWORDS = {
    "POSTGRES_PASSWORD": "Password of the database role that owns the tables",
    "POSTGRES_APP_PASSWORD": "Password of the application's database role",
    "REDIS_PASSWORD": "Password of Redis",
    "MINIO_ROOT_PASSWORD": "Password of the object storage's administrator",
}
# docker-compose.yml sets these settings in its containers, so they need values only for validating
# the file.
_COMPOSE_SETTINGS = {
    "database_url": "postgresql://pressroom_app:password@postgres:5432/pressroom",
    "redis_url": "redis://pressroom:password@redis:6379/0",
    "s3_endpoint": "http://minio:9000",
}
# Maps important optional settings to the consequence of leaving them empty.
_MISSING_FEATURES = {
    "mail_url": "no mail is sent, so nobody can confirm a sign-up",
    "operator_mail": "nobody gets a mail when a check of pressroom doctor fails",
    "backup_url": "no backups are made",
    "stripe_secret_key": "nobody can buy credits",
    "security_contacts": "/.well-known/security.txt doesn't exist",
    "plan_contact": "the console names no contact for the paid plan",
}

# Characters that Docker Compose or secrets.sh would interpret without single quotes.
_SPECIAL_CHARACTER = re.compile(r"[\s#$\"\\`]")


@app.command()
def env(
    public_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The public URL of the API. Without this option, the command asks for the URL.",
        ),
    ] = None,
    mail_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The URL of the mail server. Without this option, the command asks for the mail "
            "server at a terminal. If the URL contains a password, set PRESSROOM_MAIL_URL instead, "
            "because other users can see options. An empty value leaves the setting empty.",
        ),
    ] = None,
    mail_from: Annotated[
        str | None,
        typer.Option(
            metavar="SENDER",
            help="The sender of all mail, as an address or Name <address>. Without this option, "
            "the command asks for the sender at a terminal.",
        ),
    ] = None,
    output: Annotated[
        Path,
        typer.Option(
            help="The file to create, or - for stdout. An existing file is never overwritten."
        ),
    ] = Path(".env"),
    as_json: Json = False,
) -> None:
    """Create a settings file for docker-compose.yml. All passwords and keys are generated.

    If a variable is set in the command's environment, the variable is copied to the file. To add
    the passwords and keys of your providers, set environment variables. Only you can read
    the file. An existing file is never overwritten. The command lists important settings that are
    still empty.
    """
    if output != _STDOUT and output.exists():
        raise FILE_NOT_WRITTEN(target=output, reason="the file already exists")
    values = _create_values()
    values |= {name: os.environ[name] for name in values if os.environ.get(name)}
    url = public_url or values[variable_of("public_url")]
    if not url:
        if not sys.stdin.isatty():
            problem = "is required without a terminal"
            raise typer.BadParameter(problem, param_hint="--public-url")
        url = typer.prompt("Public URL of the API, such as https://api.example.com", err=True)
    values[variable_of("public_url")] = url
    values |= _choose_mail_settings(values, mail_url, mail_from)
    _require_usable(values)
    text = "\n".join(_lines(values)) + "\n"
    empty = [name for name in _MISSING_FEATURES if not values[variable_of(name)]]
    if output == _STDOUT:
        typer.echo(text, nl=False)
        # Stdout contains the settings file, so print the names of empty settings to stderr.
        _print_empty_settings(empty, to_stderr=True)
        return
    try:
        # Create the file with its final permissions, so that other users can never read it.
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
    except OSError as error:
        raise FILE_NOT_WRITTEN(target=output, reason=error.strerror) from None
    if as_json:
        record = {"file": str(output), "settings": len(values)}
        print_record(record | {"empty": [*map(variable_of, empty)]}, as_json=True)
        return
    typer.echo(f"Wrote {output}. Only you can read this file.")
    _print_empty_settings(empty)
    typer.echo("Run: sh deploy/compose/secrets.sh && docker compose up --detach")


def _print_empty_settings(names: Sequence[str], *, to_stderr: bool = False) -> None:
    if names:
        typer.echo("These settings are empty:", err=to_stderr)
    for name in names:
        typer.echo(f"  {variable_of(name)}: {_MISSING_FEATURES[name]}", err=to_stderr)


def _choose_mail_settings(
    values: Mapping[str, str], mail_url: str | None, mail_from: str | None
) -> dict[str, str]:
    url_variable = variable_of("mail_url")
    from_variable = variable_of("mail_from")
    url = values[url_variable] if mail_url is None else mail_url
    sender = values[from_variable] if mail_from is None else mail_from
    if sys.stdin.isatty():
        if mail_url is None and not url:
            url = _ask_for_mail_server()
        if url and mail_from is None and from_variable not in os.environ:
            sender = typer.prompt(
                "Sender of all mail, such as News <news@example.com>",
                value_proc=_checked_by(MailSender.parse),
                err=True,
            )
    return {url_variable: url, from_variable: sender}


def _ask_for_mail_server() -> str:
    question = "Mail server, such as smtps://mail.example.com (empty: set it later)"
    url: str = typer.prompt(
        question, default="", show_default=False, value_proc=_checked_by(MailServer.parse), err=True
    )
    if not url or MailServer.parse(url).login is not None:
        return url
    user = typer.prompt(
        "User at the mail server (empty: no login)", default="", show_default=False, err=True
    )
    if not user:
        return url
    password = typer.prompt("Password at the mail server", hide_input=True, err=True)
    scheme, _, place = url.partition("://")
    return f"{scheme}://{quote(user, safe='')}:{quote(password, safe='')}@{place}"


def _checked_by(parse: Callable[[str], object]) -> Callable[[str], str]:
    """Return a function that checks an answer, so that the command asks again after a mistake."""

    def check(answer: str) -> str:
        answer = answer.strip()
        if answer:
            try:
                parse(answer)
            except ValueError as error:
                raise typer.BadParameter(str(error)) from None
        return answer

    return check


def _create_values() -> dict[str, str]:
    values = {variable_of(name): "" for name in Settings.model_fields}
    for name, field in Settings.model_fields.items():
        if not field.is_required() and field.default not in (None, ()):
            values[variable_of(name)] = _format_default(field.default)
    values |= {name: default for name, (default, _) in _COMPOSE_VARIABLES.items()}
    values |= dict.fromkeys(_TRACING_VARIABLES, "")
    values |= {name: _create_password() for name in _PASSWORDS}
    for name in ("secret_keys", "encryption_keys"):
        key = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
        values[variable_of(name)] = f"k1:{key}"
    for name in ("s3_secret_key", "flower_password", "metrics_token"):
        values[variable_of(name)] = _create_password()
    values[variable_of("s3_access_key")] = "pressroom"
    return values


def _format_default(default: Any) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, AnyHttpUrl):
        return str(default).rstrip("/")
    return f"{default:g}" if isinstance(default, float) else str(default)


def _create_password() -> str:
    return secrets.token_hex(24)


def _require_usable(values: Mapping[str, str]) -> None:
    unwritable = [name for name, value in values.items() if "'" in value or "\n" in value]
    if unwritable:
        reason = "must not contain single quotes or line breaks"
        raise SettingsError("\n".join(f"{name}: {reason}" for name in unwritable))
    settings = {
        name: values[variable_of(name)] or _COMPOSE_SETTINGS.get(name, "")
        for name in Settings.model_fields
    }
    read_values(Settings, settings)


def _lines(values: Mapping[str, str]) -> Iterator[str]:
    yield from _comment("Created by pressroom env. docs/settings.md describes each setting.")
    yield from _comment(
        "Run deploy/compose/secrets.sh after each change, because secrets are copied to files."
    )
    descriptions = read_setting_descriptions()
    texts = {variable_of(name): descriptions[name] for name in Settings.model_fields}
    texts |= {name: text for name, (_, text) in _COMPOSE_VARIABLES.items()}
    texts |= _TRACING_VARIABLES | _PASSWORDS
    for name, text in texts.items():
        yield ""
        yield from _comment(text)
        value = values[name]
        yield f"{name}='{value}'" if _SPECIAL_CHARACTER.search(value) else f"{name}={value}"


def read_setting_descriptions() -> dict[str, str]:
    """Return the description of each setting, which is the docstring below the setting."""
    texts: dict[str, str] = {}
    for kind in Settings.__mro__:
        if not issubclass(kind, GivenSettings):
            continue
        [class_definition] = ast.parse(inspect.getsource(kind)).body
        assert isinstance(class_definition, ast.ClassDef)
        for setting, next_statement in pairwise(class_definition.body):
            match setting, next_statement:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    texts.setdefault(name, " ".join(text.split()))
    return texts


def _comment(text: str) -> list[str]:
    return wrap(text, _MAX_LINE_CHARACTERS, initial_indent="# ", subsequent_indent="# ")
