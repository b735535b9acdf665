"""Parts of the types of settings: how what an operator wrote is read."""

from collections.abc import Callable
from typing import Any

from pydantic import AfterValidator, BeforeValidator, SecretStr


def _split(value: object) -> object:
    """The parts of a text between its commas, without the spaces around them."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


COMMA_SEPARATED = BeforeValidator(_split)


def readable_by(parse: Callable[[str], object]) -> AfterValidator:
    """Keeps a setting as it was written, once it could be parsed."""

    def check(value: Any) -> Any:
        if value is not None:
            parse(value.get_secret_value() if isinstance(value, SecretStr) else value)
        return value

    return AfterValidator(check)
