"""Decides by the feedback type (RFC 5965) whether a person caused a complaint."""

# Feedback types of reports that programs send, for example about a virus or a wrong signature, and
# of reports that say that a mail isn't spam. All other types count as complaints, also unknown
# ones.
UNCOUNTED_FEEDBACK_TYPES = (
    "not-spam",
    "virus",
    "auth-failure",
    "authentication-failure",
    "dkim",
    "dmarc",
    "miscategorized",
)
_UNCOUNTED_WORDS = {each.replace("-", "") for each in UNCOUNTED_FEEDBACK_TYPES}


def is_from_person(feedback_type: object) -> bool:
    if not isinstance(feedback_type, str):
        return True
    letters = (character for character in feedback_type.casefold() if character.isalnum())
    return "".join(letters) not in _UNCOUNTED_WORDS
