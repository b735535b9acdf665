"""Finds the form field that an error is about, for the account pages."""

from core.errors import DomainError, people

# Maps the code of an error to the name of the field that the user must correct.
_FIELD_OF_CODE = {
    people.EMAIL_INVALID.code: "email",
    people.PASSWORD_LENGTH.code: "password",
    people.PASSWORD_COMMON.code: "password",
    people.PASSWORD_PERSONAL.code: "password",
    people.PASSWORD_WRONG.code: "current",
    people.SECOND_FACTOR_WRONG.code: "code",
    people.PASSKEY_NAME.code: "name",
}


def place_message(error: DomainError) -> tuple[str | None, dict[str, str]]:
    """Return the error message for the whole form, or ``None``, and the messages of the fields."""
    field = _FIELD_OF_CODE.get(error.code)
    return (error.message, {}) if field is None else (None, {field: error.message})
