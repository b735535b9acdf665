"""The environments that the stack's programs get."""

import os
from collections.abc import Mapping

from core.settings import MAY_BE_EMPTY
from core.settings.provider_settings import PREFIX

# Each of these changes what an embedded server or its clients do: a second S3 login, another
# database host, an SSL mode that a loopback server can't meet.
_FOREIGN = ("AWS_", "S3_", "WEED_", "PG", "VALKEY_", "REDIS_")


def cleaned() -> dict[str, str]:
    """The user's environment without what would leak into the embedded services."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_FOREIGN) and not name.startswith(PREFIX)
    }


# An empty value switches these off. Any other setting that is empty counts as not set.
_MAY_BE_EMPTY = frozenset(PREFIX + name.upper() for name in MAY_BE_EMPTY)


def own_settings() -> dict[str, str]:
    """The PRESSROOM_ settings that the user has set."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(PREFIX) and (value or name in _MAY_BE_EMPTY)
    }


# Only what prepares the database has these: no program that serves may change tables.
_OWNERS = frozenset({f"{PREFIX}MIGRATION_DATABASE_URL"})


def without_owners(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in _OWNERS}


def for_programs(chosen: Mapping[str, str]) -> dict[str, str]:
    """What our programs see: the chosen settings, where the user's own do not win over them."""
    return {**cleaned(), "PYTHONUNBUFFERED": "1", **chosen, **own_settings()}
