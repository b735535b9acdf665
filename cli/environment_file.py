"""The command ``pressroom env``, which writes a settings file with new random passwords."""

import ast
import base64
import inspect
import os
import re
import secrets
import sys
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from textwrap import wrap
from typing import Annotated, Any

import typer
from pydantic import AnyHttpUrl

from cli.output import Json, print_record
from core.errors import SettingsError
from core.errors.requests import FILE_NOT_WRITTEN
from core.settings import Settings
from core.settings.given_settings import GivenSettings, read_values, variable_of

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_STDOUT = Path("-")
_MAX_LINE_CHARACTERS = 100
# Variables in docker-compose.yml that aren't settings of Pressroom, with defaults and descriptions.
_COMPOSE_VARIABLES = {
    "PRESSROOM_IMAGE": (
        "pressroom:local",
        "Image of the API and what runs beside it; the workers' has -worker behind that name",
    ),
    "MINIO_ROOT_USER": ("administrator", "Name of the administrator of the object storage"),
    "HTTP_PORT": ("80", "Port where the proxy sends callers on to HTTPS"),
    "HTTPS_PORT": ("443", "Port where the proxy takes calls"),
    "API_PORT": ("8000", "Port on this machine where the API is published"),
    "FLOWER_PORT": ("5555", "Port on this machine where Flower is published"),
    "PROMETHEUS_PORT": ("9090", "Port on this machine where Prometheus is published"),
    "GRAFANA_PORT": ("3000", "Port on this machine where Grafana is published"),
}
_TRACING_VARIABLES = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": "URL of the collector of traces; none are kept without it",
    "OTEL_EXPORTER_OTLP_TIMEOUT": "Seconds that the collector has to take what it is sent; 10 "
    "without it",
    "OTEL_EXPORTER_OTLP_COMPRESSION": "How what is sent to the collector is compressed: gzip, or "
    "none",
    "OTEL_TRACES_SAMPLER": "Which traces are recorded, such as parentbased_traceidratio",
    "OTEL_TRACES_SAMPLER_ARG": "Argument of that, such as 0.1 for each tenth",
    "OTEL_RESOURCE_ATTRIBUTES": "What the collector is told of each process beside its name",
}
# Passwords that deploy/compose/secrets.sh reads from the file that ``pressroom env`` writes.
_PASSWORDS = {
    "POSTGRES_PASSWORD": "Password of the owner of the database's tables",
    "POSTGRES_APP_PASSWORD": "Password of the application's role in the database",
    "REDIS_PASSWORD": "Password of Redis",
    "MINIO_ROOT_PASSWORD": "Password of the administrator of the object storage",
}
# docker-compose.yml sets these settings in its containers, so they need values only for validating
# the file.
_COMPOSE_SETTINGS = {
    "database_url": "postgresql://pressroom_app:password@postgres:5432/pressroom",
    "redis_url": "redis://pressroom:password@redis:6379/0",
    "s3_endpoint": "http://minio:9000",
}
# Characters that Docker Compose or secrets.sh would interpret without single quotes.
_SPECIAL_CHARACTER = re.compile(r"[\s#$\"\\`]")


@app.command()
def env(
    public_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="URL of the API for its callers; asked for without it."),
    ] = None,
    output: Annotated[
        Path, typer.Option(help="The file to make, which must not be there; - for stdout.")
    ] = Path(".env"),
    as_json: Json = False,
) -> None:
    """Write a file of all settings for docker-compose.yml. Passwords and keys are drawn anew.

    Values that the environment of this command sets are written instead: give it the secrets of
    your providers so. Only you can read the file, and one that is there is never changed.
    """
    if output != _STDOUT and output.exists():
        raise FILE_NOT_WRITTEN(target=output, reason="it is there already")
    values = _create_values()
    values |= {name: os.environ[name] for name in values if os.environ.get(name)}
    url = public_url or values[variable_of("public_url")]
    if not url:
        if not sys.stdin.isatty():
            problem = "is needed where nobody can be asked"
            raise typer.BadParameter(problem, param_hint="--public-url")
        url = typer.prompt("URL of the API for its callers, such as https://api.example.com")
    values[variable_of("public_url")] = url
    _require_usable(values)
    text = "\n".join(_lines(values)) + "\n"
    if output == _STDOUT:
        typer.echo(text, nl=False)
        return
    try:
        # Create the file with its final permissions, so that other users can never read it.
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
    except OSError as error:
        raise FILE_NOT_WRITTEN(target=output, reason=error.strerror) from None
    next_step = "Run: sh deploy/compose/secrets.sh && docker compose up --detach"
    if as_json:
        print_record({"file": str(output), "settings": len(values)}, as_json=True)
    else:
        typer.echo(f"Wrote {output}, which only you can read. {next_step}")


def _create_values() -> dict[str, str]:
    """Return the variables for the file, with new random passwords and keys."""
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
    """Check that the values are valid settings and can be written to the settings file.

    Raises ``SettingsError``.
    """
    unwritable = [name for name, value in values.items() if "'" in value or "\n" in value]
    if unwritable:
        reason = "has a single quote or an end of line, which this file can't have"
        raise SettingsError("\n".join(f"{name}: {reason}" for name in unwritable))
    settings = {
        name: values[variable_of(name)] or _COMPOSE_SETTINGS.get(name, "")
        for name in Settings.model_fields
    }
    read_values(Settings, settings)


def _lines(values: Mapping[str, str]) -> Iterator[str]:
    yield from _comment("Made by pressroom env. docs/settings.md says what each setting does.")
    yield from _comment("Run deploy/compose/secrets.sh after a change: a secret is a file there.")
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
