"""What a person reads where a program gets problem+json: what happened, and what they can do."""

from http import HTTPStatus

from fastapi.responses import Response
from starlette.types import Scope

from api.pages.frame import page

_OPEN_AGAIN = "Please open the link in your e-mail again, or copy all of it."
_SIGN_UP_AGAIN = "If you would like to subscribe, please sign up once more: you get a new link."
_ASK_THE_PROGRAM = (
    "It wanted access to your account, and got none. Whoever makes the program can put it right."
)

_BY_CODE = {
    "trace.missing": ("This link is incomplete", f"Its last part is missing. {_OPEN_AGAIN}"),
    "trace.ambiguous": ("This link doesn’t work", f"It got mixed up on its way. {_OPEN_AGAIN}"),
    "trace.invalid": (
        "This link doesn’t work",
        f"It may have been cut off or changed on its way. {_OPEN_AGAIN}",
    ),
    "link.missing": ("This link is incomplete", f"Its last part is missing. {_OPEN_AGAIN}"),
    "link.ambiguous": ("This link doesn’t work", f"It got mixed up on its way. {_OPEN_AGAIN}"),
    "link.invalid": (
        "This link doesn’t work",
        "It may be too old, or have been cut off on its way. " + _SIGN_UP_AGAIN,
    ),
    "link.used": ("This link has been used", f"It works once. {_SIGN_UP_AGAIN}"),
    "subscription.not_pending": (
        "There is nothing to confirm",
        f"This subscription doesn’t wait for it any more. {_SIGN_UP_AGAIN}",
    ),
    "subscription.changed": (
        "That didn’t go through",
        "Your subscription changed at the same moment. Please open the link in your e-mail again.",
    ),
    "payment.link_invalid": (
        "This link doesn’t work",
        "It doesn’t lead to an order. If you have paid, your payment counts all the same.",
    ),
    "oauth.invalid_client": ("This program is not known here", _ASK_THE_PROGRAM),
    "oauth.invalid_request": ("This program asked in a wrong way", _ASK_THE_PROGRAM),
    "account_link.invalid": (
        "This link doesn’t work",
        "It may be too old, or have been cut off on its way. Please ask for a new one.",
    ),
    "account_link.used": ("This link has been used", "It works once. Please log in."),
    "auth.csrf": (
        "That didn’t go through",
        "Your browser didn’t show that this came from a page of ours. Please open that again.",
    ),
    "rate.limited": (
        "Too many requests came from here",
        "From your network we got too many in a short time. Please wait a while, and try again.",
    ),
    "login.busy": (
        "Too many people log in at this moment",
        "Please try again in a few seconds.",
    ),
    "password.changed": (
        "That didn’t go through",
        "Your password was changed at the same moment. Please try again.",
    ),
    "user.exists": (
        "This address is in use already",
        "Another account, or a subscription of its own, has it by now. Nothing was changed.",
    ),
    "session.not_found": (
        "There is no such session",
        "It is over already, or it was never yours.",
    ),
    "list.not_found": (
        "This list is closed",
        "Nothing is sent from it any more, so there is nothing left to do.",
    ),
}
_ASKED_WRONGLY = ("That didn’t work", _OPEN_AGAIN)
_OUR_FAULT = ("Something went wrong here", "We’re sorry. Please try again in a few minutes.")


def problem_page(
    status: int, code: str, headers: dict[str, str], request_id: str | None
) -> Response:
    is_our_fault = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    heading, text = _BY_CODE.get(code, _OUR_FAULT if is_our_fault else _ASKED_WRONGLY)
    number = request_id if is_our_fault else None
    reply = page("problem.html", status=status, heading=heading, text=text, number=number)
    reply.headers.update(headers)
    return reply


def mark_as_page(scope: Scope) -> None:
    """Note that people look at the answer to this request."""
    scope[_IS_PAGE] = True


def is_for_browser(scope: Scope) -> bool:
    """Whether people look at the answer, a refusal included."""
    return _IS_PAGE in scope


_IS_PAGE = "pressroom.is_page"
