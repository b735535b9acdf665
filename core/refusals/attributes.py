"""Fields and tags of members."""

from core.refusals.refusal import conflict, invalid, invalid_at, not_found

FIELD_NOT_FOUND = not_found("field.not_found", "There is no such field.")
FIELD_KEY = invalid_at(
    "body.key",
    "field.key",
    "has 1 to {most} of a-z, 0-9 and '_', and begins with a letter",
    most=40,
)
FIELD_KEY_TAKEN = conflict("field.key_taken", "You have a field with the key {key!r}.", key="city")
FIELD_LABEL = invalid_at(
    "body.label",
    "field.label",
    "has 1 to {most} characters in one line, at least one of them visible, and no control of the "
    "text's direction",
    most=100,
)
FIELD_CHOICES = invalid_at(
    "body.choices",
    "field.choices",
    "a field of the type choice, and no other, has 1 to {most} different choices, each of 1 to "
    "{characters} characters in one line, at least one of them visible, and no control of the "
    "text's direction",
    most=100,
    characters=100,
)
FIELD_TOO_MANY = conflict(
    "field.too_many",
    "An owner has at most {most} fields; {ever} with those that ended.",
    most=50,
    ever=1000,
)
FIELD_VALUE = invalid("field.value", "{rules}", rules="body.fields.city: is no field of this owner")

TAG_NOT_FOUND = not_found("tag.not_found", "There is no such tag on this list.")
TAG_NAME_TAKEN = conflict("tag.name_taken", "The list has a tag {name!r}.", name="VIP")
TAG_TOO_MANY = conflict("tag.too_many", "A list has at most {most} tags.", most=10_000)
TAG_TOO_MANY_OF_MEMBER = invalid(
    "tag.too_many_of_member", "A member has at most {most} tags.", most=100
)
