"""The buttons that let a reader unsubscribe from a list and subscribe again."""

from collections.abc import Callable
from functools import partial

from core.errors import DomainError, requests
from core.languages.reader_languages import marked, translate
from models import OptOutKind
from services.subscriptions.members import unsubscribe

# The opt-outs, by the values of the buttons that set them.
OPT_OUTS = {"leave": OptOutKind.LIST, "stop_mail": OptOutKind.EMAIL}
# The functions that lift an opt-out, by the values of the buttons that call them.
RETURNS: dict[str, Callable[..., None]] = {
    "undo": unsubscribe.undo_leave,
    "resume_mail": partial(unsubscribe.set_email, enabled=True),
}
# The reasons to unsubscribe, from which a reader may choose one. There is no field for a text,
# because no owner could read the texts of 100,000 readers. The names are stored in rows, so they
# never change.
REASONS = {
    "too_many": marked("It comes too often."),
    "other_topics": marked("It is not, or no more, about what interests me."),
    "never_asked": marked("I never asked for it."),
    "elsewhere": marked("I read it elsewhere."),
    "other": marked("Something else."),
}


def unknown_action_error() -> DomainError:
    """Return the error for a button that doesn't exist."""
    rule = f"one of {', '.join((*OPT_OUTS, *RETURNS))}"
    return requests.BODY_INVALID(place="body.action", rule=rule)


def translate_reasons(language: str) -> dict[str, str]:
    return {name: translate(language, text) for name, text in REASONS.items()}
