"""How settings are read: from environment variables, and secrets from files too."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import AfterValidator, SecretStr, ValidationError, ValidationInfo, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict

from core.errors import SettingsError, own_words

PREFIX = "PRESSROOM_"
# The variable PRESSROOM_X_FILE names a file that holds the secret PRESSROOM_X.
FILE_SUFFIX = "_FILE"
MAX_SECRET_BYTES = 64 * 1024

# For these settings an empty value means: no limit.
MAY_BE_EMPTY = (
    *("rate_limit_default", "rate_limit_anonymous", "rate_limit_login"),
    *("mail_limit_mailbox", "mail_limit_domain", "mail_limit_list", "mail_limit_source"),
    *("quota_free", "quota_paid"),
)


class GivenSettings(BaseSettings):
    """Settings that ``read_settings`` reads; a process reads the class that has what it needs.

    The text below each setting says what it is. ``pressroom env`` alone reads these texts: the
    library would look for them in the source at each start, and take a tenth of a second.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
        # Each class is the ground of others, and a process reads values of one.
        defer_build=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _empty_is_unset(cls, values: dict[str, Any]) -> dict[str, Any]:
        # An empty line in an environment file leaves a setting as it is by default.
        return {
            name: value for name, value in values.items() if value != "" or name in MAY_BE_EMPTY
        }


S = TypeVar("S", bound=GivenSettings)


def read_settings(kind: type[S]) -> S:
    """Read the environment; raises ``SettingsError``, which names every wrong setting."""
    return read_values(kind, secrets_in_files(kind))


def read_values(kind: type[S], values: Mapping[str, str]) -> S:
    """Read these values before those of the environment; raises what ``read_settings`` raises."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        lines = [
            f"{variable_of(str(problem['loc'][0]))}: {own_words(problem['msg'])}"
            for problem in error.errors(include_input=False, include_url=False)
        ]
        raise SettingsError("\n".join(lines)) from None


def variable_of(setting: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + setting.upper()


def goes_with(*others: str) -> AfterValidator:
    """The setting and these, which are declared before it, are all set or none."""

    def check(value: Any, info: ValidationInfo) -> Any:
        # A setting that is wrong by itself is not among the data, and its own problem says so.
        given = [bool(info.data[name]) for name in others if name in info.data]
        if any(is_set != bool(value) for is_set in given):
            named = " and ".join(map(variable_of, others))
            every = "both" if len(others) == 1 else "all three"
            raise ValueError(f"goes together with {named}: set {every}, or none")
        return value

    return AfterValidator(check)


def is_secret(field: FieldInfo) -> bool:
    return SecretStr in (field.annotation, *get_args(field.annotation))


def secrets_in_files(kind: type[GivenSettings]) -> dict[str, str]:
    """The secrets that variables with ``FILE_SUFFIX`` name; raises ``SettingsError``.

    An empty file counts as not set, as an empty variable does.
    """
    found: dict[str, str] = {}
    problems: list[str] = []
    for name, field in kind.model_fields.items():
        variable = variable_of(name)
        path = os.environ.get(variable + FILE_SUFFIX) if is_secret(field) else None
        if not path:
            continue
        if os.environ.get(variable):
            problems.append(f"{variable} and {variable}{FILE_SUFFIX} are both set: set one of them")
            continue
        try:
            if secret := _secret_in(Path(path), may_be_empty=not field.is_required()):
                found[name] = secret
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            problems.append(f"{variable}{FILE_SUFFIX}: the file {path} can't be used: {reason}")
    if problems:
        raise SettingsError("\n".join(problems))
    return found


def _secret_in(path: Path, *, may_be_empty: bool) -> str:
    """The text of the file without the end of its last line."""
    with path.open("rb") as file:
        content = file.read(MAX_SECRET_BYTES + 1)
    if len(content) > MAX_SECRET_BYTES:
        raise ValueError(f"it has more than {MAX_SECRET_BYTES} bytes")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise ValueError("it is no UTF-8 text") from None
    secret = text.removesuffix("\n").removesuffix("\r")
    if not secret and not may_be_empty:
        raise ValueError("it is empty")
    return secret
