"""The buttons with which a reader unsubscribes from a list or subscribes again."""

from collections.abc import Callable
from functools import partial

from core.errors import DomainError, requests
from core.languages.reader_languages import marked, translate
from models import OptOutKind
from services.subscriptions.members import unsubscribe
from services.subscriptions.members.departures import StatedReason

# Maps the value of a button to the opt-out that it sets.
OPT_OUTS = {"leave": OptOutKind.LIST, "stop_mail": OptOutKind.EMAIL}
# Maps the value of a button to the function that lifts an opt-out.
LIFT_OPT_OUT: dict[str, Callable[..., None]] = {
    "undo": unsubscribe.undo_leave,
    "resume_mail": partial(unsubscribe.set_email, enabled=True),
}
# The reasons for unsubscribing that a reader can choose. Readers can't type a reason, because no
# owner can read 100,000 texts.
REASONS = {
    StatedReason.TOO_MANY.value: marked("I get too many e-mails."),
    StatedReason.OTHER_TOPICS.value: marked("The topics don’t interest me."),
    StatedReason.NEVER_ASKED.value: marked("I never signed up."),
    StatedReason.ELSEWHERE.value: marked("I read it elsewhere."),
    StatedReason.OTHER.value: marked("Another reason."),
}


def build_unknown_action_error() -> DomainError:
    actions = ", ".join((*OPT_OUTS, *LIFT_OPT_OUT))
    return requests.BODY_INVALID(place="body.action", rule=f"must be one of {actions}")


def translate_reasons(language: str) -> dict[str, str]:
    return {name: translate(language, text) for name, text in REASONS.items()}
