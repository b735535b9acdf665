"""The actions by which a reader unsubscribes from a list and subscribes again."""

from collections.abc import Callable
from functools import partial

from core.errors import DomainError, requests
from core.languages.reader_languages import marked, translated
from models import OptOutKind
from services.subscriptions.members import unsubscribe

# The values of the buttons, by which a person leaves and comes back.
OPT_OUTS = {"leave": OptOutKind.LIST, "stop_mail": OptOutKind.EMAIL}
RETURNS: dict[str, Callable[..., None]] = {
    "undo": unsubscribe.undo_leave,
    "resume_mail": partial(unsubscribe.set_email, enabled=True),
}
# Reasons for an unsubscribe, from which readers may choose one. In their own words it would be a
# letter to the owner, and no owner reads the letters of a hundred thousand. The names are in rows:
# they never change.
REASONS = {
    "too_many": marked("It comes too often."),
    "other_topics": marked("It is not, or no more, about what interests me."),
    "never_asked": marked("I never asked for it."),
    "elsewhere": marked("I read it elsewhere."),
    "other": marked("Something else."),
}


def unknown_action() -> DomainError:
    rule = f"one of {', '.join((*OPT_OUTS, *RETURNS))}"
    return requests.BODY_INVALID(place="body.action", rule=rule)


def shown_reasons(language: str) -> dict[str, str]:
    return {name: translated(language, text) for name, text in REASONS.items()}
