"""Renders errors as HTML pages.

Routes of HTML pages store a mark and the page's language in the request, so that errors become
pages too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus

from fastapi import Request
from fastapi.responses import Response
from starlette.types import Scope

from api.html.frame import render_page
from core.errors import access, mailing, money, people, requests
from core.languages import reader_languages
from core.languages.reader_languages import ENGLISH, marked, translate

# The keys of the error renderer and of the page's language in the ASGI scope.
_RENDERER_KEY = "pressroom.problem_page"
_LANGUAGE_KEY = "pressroom.language"

_OPEN_AGAIN = marked("Please open the link in your e-mail again, or copy all of it.")
_SIGN_UP_AGAIN = marked(
    "If you would like to subscribe, please sign up once more: you get a new link."
)
_ASK_AGAIN = marked("At the end of any e-mail of the list is a page that mails you a new one.")
_ASK_THE_PROGRAM = (
    "It wanted access to your account, and got none. The makers of the program can put it right."
)
_DOES_NOT_WORK = marked("This link doesn’t work")
_INCOMPLETE = (marked("This link is incomplete"), marked("Its last part is missing."), _OPEN_AGAIN)
_MIXED_UP = (_DOES_NOT_WORK, marked("It got mixed up on its way."), _OPEN_AGAIN)

# Maps an error code to the heading and the sentences of the error page. Texts that are passed to
# ``marked`` are translated. All other error texts are always in English.
_TEXTS_BY_CODE: dict[str, tuple[str, ...]] = {
    mailing.TRACE_MISSING.code: _INCOMPLETE,
    mailing.TRACE_AMBIGUOUS.code: _MIXED_UP,
    mailing.TRACE_INVALID.code: (
        _DOES_NOT_WORK,
        marked("It may have been cut off or changed on its way."),
        _OPEN_AGAIN,
    ),
    people.LINK_MISSING.code: _INCOMPLETE,
    people.LINK_AMBIGUOUS.code: _MIXED_UP,
    people.LINK_INVALID.code: (
        _DOES_NOT_WORK,
        marked("It may be too old, or have been cut off on its way."),
        _SIGN_UP_AGAIN,
    ),
    people.LINK_USED.code: (
        marked("This link has been used"),
        marked("It works once."),
        _SIGN_UP_AGAIN,
    ),
    mailing.SUBSCRIPTION_NOT_PENDING.code: (
        marked("There is nothing to confirm"),
        marked("This subscription doesn’t wait for it any more."),
        _SIGN_UP_AGAIN,
    ),
    mailing.SUBSCRIPTION_CHANGED.code: (
        marked("That didn’t go through"),
        marked("Your subscription changed at the same moment."),
        _OPEN_AGAIN,
    ),
    money.PAYMENT_LINK_INVALID.code: (
        "This link doesn’t work",
        "It doesn’t lead to an order. If you have paid, your payment counts all the same.",
    ),
    "oauth.invalid_client": ("This program is not known here", _ASK_THE_PROGRAM),
    "oauth.invalid_request": ("This program asked in a wrong way", _ASK_THE_PROGRAM),
    people.PREFERENCES_LINK_INVALID.code: (
        _DOES_NOT_WORK,
        marked("It may be too old, or have been cut off on its way."),
        _ASK_AGAIN,
    ),
    people.PREFERENCES_LINK_USED.code: (
        marked("This link has been used"),
        marked("It works once."),
        _ASK_AGAIN,
    ),
    people.VISIT_OVER.code: (
        marked("Please ask for a new link"),
        marked("This page opens for an hour after a link that was mailed to you."),
        _ASK_AGAIN,
    ),
    mailing.LIST_BUSY.code: (
        marked("Please try again in a minute"),
        marked("We are changing this list just now."),
    ),
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
        marked("That didn’t go through"),
        marked("Your browser didn’t show that this came from a page of ours."),
        marked("Please open that again."),
    ),
    requests.RATE_LIMITED.code: (
        marked("Too many requests came from here"),
        marked("From your network we got too many in a short time."),
        marked("Please wait a while, and try again."),
    ),
    access.LOGIN_BUSY.code: (
        "Too many people log in at this moment",
        "Please try again in a few seconds.",
    ),
    people.PASSWORD_CHANGED.code: (
        "That didn’t go through",
        "Your password was changed at the same moment. Please try again.",
    ),
    people.ADDRESS_TAKEN.code: (
        "This address has an account",
        (
            "It belongs to another account, with a login, lists, keys or credits. Two accounts"
            " don’t become one. Log in to that one, or have it erased first. Nothing was changed."
        ),
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
        # The text is the same for an archived list and for an unknown one, so that strangers can't
        # find archived lists.
        marked("There is no open list here"),
        marked(
            "If a list was here, it is closed, and nothing is sent from it any more. Otherwise the"
            " address has a mistake."
        ),
    ),
}
_CLIENT_ERROR_TEXTS = (marked("That didn’t work"), _OPEN_AGAIN)
_SERVER_ERROR_TEXTS = (
    marked("Something went wrong here"),
    marked("We’re sorry."),
    marked("Please try again in a few minutes."),
)


@dataclass(frozen=True)
class ErrorDetails:
    """The details of an error for an HTML page."""

    status: int
    code: str
    message: str
    request_id: str | None

    @property
    def is_server_error(self) -> bool:
        return self.status >= HTTPStatus.INTERNAL_SERVER_ERROR


ProblemRenderer = Callable[[ErrorDetails], Response]


def render_problem(problem: ErrorDetails, *, language: str = ENGLISH) -> Response:
    default_texts = _SERVER_ERROR_TEXTS if problem.is_server_error else _CLIENT_ERROR_TEXTS
    texts = _TEXTS_BY_CODE.get(problem.code, default_texts)
    heading, *sentences = (translate(language, text) for text in texts)
    return render_page(
        "problem.html",
        language=language,
        status=problem.status,
        heading=heading,
        text=" ".join(sentences),
        number=problem.request_id if problem.is_server_error else None,
    )


def describe_error(code: str) -> tuple[str, str] | None:
    """Return the English heading and text for an error, or ``None`` if there are no texts."""
    heading, *sentences = _TEXTS_BY_CODE.get(code, ("",))
    return (heading, " ".join(sentences)) if heading else None


def mark_page_request(scope: Scope, renderer: ProblemRenderer = render_problem) -> None:
    """Mark a request as expecting HTML, even for errors.

    ``renderer``: the function that renders an error as an HTML page.
    """
    scope[_RENDERER_KEY] = renderer


def find_problem_renderer(scope: Scope) -> ProblemRenderer | None:
    """Return the function that renders an error as an HTML page.

    Return ``None`` for the request of a program, which gets errors as JSON.
    """
    renderer: ProblemRenderer | None = scope.get(_RENDERER_KEY)
    return renderer


def is_for_browser(scope: Scope) -> bool:
    return _RENDERER_KEY in scope


def mark_reader_request(scope: Scope) -> None:
    """Mark a request as expecting HTML in the language that the browser prefers."""
    accepted = b",".join(value for name, value in scope["headers"] if name == b"accept-language")
    language = reader_languages.choose_language(accepted.decode("latin-1"))
    scope[_LANGUAGE_KEY] = language
    mark_page_request(scope, partial(render_problem, language=language))


def is_reader_page(scope: Scope) -> bool:
    return _LANGUAGE_KEY in scope


def get_reader_language(request: Request) -> str:
    """Return the language of the requested page.

    Pages for owners and operators are always in English.
    """
    language: str = request.scope.get(_LANGUAGE_KEY, ENGLISH)
    return language
