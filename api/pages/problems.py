"""The pages that people get where programs get problem+json: what happened, and what to do."""

from http import HTTPStatus

from fastapi.responses import Response
from starlette.types import Scope

from api.pages.frame import page
from core.refusals import access, mailing, money, people, requests

_OPEN_AGAIN = "Please open the link in your e-mail again, or copy all of it."
_SIGN_UP_AGAIN = "If you would like to subscribe, please sign up once more: you get a new link."
_ASK_THE_PROGRAM = (
    "It wanted access to your account, and got none. The makers of the program can put it right."
)
_TWO_ACCOUNTS = (
    "It belongs to an account of its own, with a login, lists, keys or credits. Two accounts don’t "
    "become one. Log in to that one, or have it erased first. Nothing was changed."
)
_INCOMPLETE = ("This link is incomplete", f"Its last part is missing. {_OPEN_AGAIN}")
_MIXED_UP = ("This link doesn’t work", f"It got mixed up on its way. {_OPEN_AGAIN}")

_BY_CODE = {
    mailing.TRACE_MISSING.code: _INCOMPLETE,
    mailing.TRACE_AMBIGUOUS.code: _MIXED_UP,
    mailing.TRACE_INVALID.code: (
        "This link doesn’t work",
        f"It may have been cut off or changed on its way. {_OPEN_AGAIN}",
    ),
    people.LINK_MISSING.code: _INCOMPLETE,
    people.LINK_AMBIGUOUS.code: _MIXED_UP,
    people.LINK_INVALID.code: (
        "This link doesn’t work",
        "It may be too old, or have been cut off on its way. " + _SIGN_UP_AGAIN,
    ),
    people.LINK_USED.code: ("This link has been used", f"It works once. {_SIGN_UP_AGAIN}"),
    mailing.SUBSCRIPTION_NOT_PENDING.code: (
        "There is nothing to confirm",
        f"This subscription doesn’t wait for it any more. {_SIGN_UP_AGAIN}",
    ),
    mailing.SUBSCRIPTION_CHANGED.code: (
        "That didn’t go through",
        "Your subscription changed at the same moment. Please open the link in your e-mail again.",
    ),
    money.PAYMENT_LINK_INVALID.code: (
        "This link doesn’t work",
        "It doesn’t lead to an order. If you have paid, your payment counts all the same.",
    ),
    "oauth.invalid_client": ("This program is not known here", _ASK_THE_PROGRAM),
    "oauth.invalid_request": ("This program asked in a wrong way", _ASK_THE_PROGRAM),
    people.ACCOUNT_LINK_INVALID.code: (
        "This link doesn’t work",
        "It may be too old, or have been cut off on its way. Please ask for a new one.",
    ),
    people.ACCOUNT_LINK_USED.code: ("This link has been used", "It works once. Please log in."),
    access.AUTH_LOGIN_AGAIN.code: (
        "Please log in once more",
        "This needs a login of the last 15 minutes. Log out, log in, and open it again.",
    ),
    access.AUTH_SECOND_FACTOR.code: (
        "Please set up a second factor",
        "Your account needs one. Log in, and the page that sets one up opens.",
    ),
    people.SECOND_FACTOR_NOT_FOUND.code: (
        "There is no such second factor",
        "It is removed already, or it was never yours.",
    ),
    people.SECOND_FACTOR_MISSING.code: (
        "You have no second factor",
        "Recovery codes stand for one. Add an authenticator app or a passkey first.",
    ),
    access.AUTH_CSRF.code: (
        "That didn’t go through",
        "Your browser didn’t show that this came from a page of ours. Please open that again.",
    ),
    requests.RATE_LIMITED.code: (
        "Too many requests came from here",
        "From your network we got too many in a short time. Please wait a while, and try again.",
    ),
    access.LOGIN_BUSY.code: (
        "Too many people log in at this moment",
        "Please try again in a few seconds.",
    ),
    people.PASSWORD_CHANGED.code: (
        "That didn’t go through",
        "Your password was changed at the same moment. Please try again.",
    ),
    people.USER_ADDRESS_TAKEN.code: (
        "This address is in use already",
        "Another account, or a subscription of its own, has it by now. Nothing was changed.",
    ),
    people.ADDRESS_HAS_ACCOUNT.code: ("This address has an account", _TWO_ACCOUNTS),
    people.ADDRESS_UNDOABLE.code: (
        "That is too early",
        "Come back when your change of address can’t be undone any more, three days after it.",
    ),
    access.SESSION_NOT_FOUND.code: (
        "There is no such session",
        "It is over already, or it was never yours.",
    ),
    access.API_KEY_NOT_FOUND.code: (
        "There is no such key",
        "It was never yours. The page of your keys lists all that open something.",
    ),
    mailing.LIST_NOT_FOUND.code: (
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
    """Note that this request's answer is for a browser, a refusal too."""
    scope[_IS_PAGE] = True


def is_for_browser(scope: Scope) -> bool:
    """Whether the answer is for a browser, and so a page."""
    return _IS_PAGE in scope


_IS_PAGE = "pressroom.is_page"
