"""Reads settings from environment variables, and secrets also from files."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import AfterValidator, SecretStr, ValidationError, ValidationInfo, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict

from core.broken_rules import describe_broken_rule
from core.errors import SettingsError

PREFIX = "PRESSROOM_"
# The environment variable PRESSROOM_X_FILE contains the path of a file with the secret PRESSROOM_X.
FILE_SUFFIX = "_FILE"
MAX_SECRET_BYTES = 64 * 1024

# The settings for which an empty value means "no limit". For settings that aren't in
# ``MAY_BE_EMPTY``, an empty value means the default value.
MAY_BE_EMPTY = (
    "rate_limit_default",
    "rate_limit_anonymous",
    "rate_limit_login",
    "mail_limit_mailbox",
    "mail_limit_domain",
    "mail_limit_list",
    "mail_limit_source",
    "quota_free",
    "quota_paid",
)

S = TypeVar("S", bound="GivenSettings")


class GivenSettings(BaseSettings):
    """The base class of all settings classes.

    In a settings class, the string below each setting describes the setting. Only ``pressroom env``
    reads these descriptions, because parsing the source code would delay each startup by a tenth of
    a second.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
        # Build validators on first use, because a process uses only a few of the settings classes.
        defer_build=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _empty_is_unset(cls, values: dict[str, Any]) -> dict[str, Any]:
        # Drop empty values, so that a setting keeps its default if an environment file assigns an
        # empty value.
        return {
            name: value for name, value in values.items() if value != "" or name in MAY_BE_EMPTY
        }


def read_settings(kind: type[S]) -> S:
    return read_values(kind, read_secret_files(kind))


def read_values(kind: type[S], values: Mapping[str, str]) -> S:
    """Create a settings object from ``values``, and take missing values from the environment."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        lines = [
            f"{variable_of(str(problem['loc'][0]))}: {describe_broken_rule(problem)}"
            for problem in error.errors(include_input=False, include_url=False)
        ]
        raise SettingsError("\n".join(lines)) from None


def variable_of(setting: str) -> str:
    return PREFIX + setting.upper()


def required_together(*others: str) -> AfterValidator:
    """Return a validator that requires either all settings of a group or none of them.

    The class must declare ``others`` before the validated setting.
    """

    def check(value: Any, info: ValidationInfo) -> Any:
        # Invalid settings are missing in ``info.data``, because pydantic reports them separately.
        others_are_set = [bool(info.data[name]) for name in others if name in info.data]
        if any(is_set != bool(value) for is_set in others_are_set):
            variables = " and ".join(map(variable_of, others))
            quantity = "both" if len(others) == 1 else "all three"
            raise ValueError(f"must be set together with {variables}; set {quantity} or none")
        return value

    return AfterValidator(check)


def is_secret(field: FieldInfo) -> bool:
    return SecretStr in (field.annotation, *get_args(field.annotation))


def read_secret_files(kind: type[GivenSettings]) -> dict[str, str]:
    """Read secrets from the files to which the ``PRESSROOM_…_FILE`` variables point.

    An empty secret file means that an optional secret isn't set.
    """
    secrets: dict[str, str] = {}
    problems: list[str] = []
    for name, field in kind.model_fields.items():
        variable = variable_of(name)
        path = os.environ.get(variable + FILE_SUFFIX) if is_secret(field) else None
        if not path:
            continue
        if os.environ.get(variable):
            problems.append(
                f"{variable} and {variable}{FILE_SUFFIX} are both set; set only one of them"
            )
            continue
        try:
            if secret := _read_secret(Path(path), may_be_empty=not field.is_required()):
                secrets[name] = secret
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            problems.append(f"{variable}{FILE_SUFFIX}: the file {path} can't be used: {reason}")
    if problems:
        raise SettingsError("\n".join(problems))
    return secrets


def _read_secret(path: Path, *, may_be_empty: bool) -> str:
    with path.open("rb") as file:
        content = file.read(MAX_SECRET_BYTES + 1)
    if len(content) > MAX_SECRET_BYTES:
        raise ValueError(f"it has more than {MAX_SECRET_BYTES} bytes")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise ValueError("it is not valid UTF-8") from None
    secret = text.removesuffix("\n").removesuffix("\r")
    if not secret and not may_be_empty:
        raise ValueError("it is empty")
    return secret
