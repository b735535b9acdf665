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
from services.accounts import page_paths
from services.subscriptions import page_urls

# The keys of the error renderer and of the page's language in the ASGI scope.
_RENDERER_KEY = "pressroom.problem_page"
_LANGUAGE_KEY = "pressroom.language"

_OPEN_AGAIN = marked(
    "Open the link in your e-mail again, or copy the whole link into your browser."
)
_SIGN_UP_AGAIN = marked("To subscribe, sign up again. You will get a new link.")
_ASK_THE_PROGRAM = (
    "The app’s request for access to your account is invalid. Please contact the makers of the app."
)
_DOES_NOT_WORK = marked("This link doesn’t work")
_INCOMPLETE = (
    marked("This link is incomplete"),
    marked("The end of the link is missing."),
)
_CHANGED = marked("The link was changed on its way to you.")

# Maps the path of a mailed link to the path of the page on which a user requests a new link.
_REQUEST_PATHS = {
    page_paths.REGISTRATION_PATH: page_paths.REGISTER_PATH,
    page_paths.RESET_PATH: page_paths.FORGOTTEN_PATH,
    page_paths.CONFIRM_EMAIL_PATH: page_paths.EMAIL_PATH,
    page_paths.LOGIN_LINK_PATH: page_paths.LOGIN_PATH,
}
# Maps an error code to the label and the path of the link with which the user can leave the error
# page.
_NEXT_PAGES = {
    people.ACCOUNT_LINK_USED.code: ("Log in", page_paths.LOGIN_PATH),
    "oauth.invalid_client": ("Go to the overview", page_paths.OVERVIEW_PATH),
    "oauth.invalid_request": ("Go to the overview", page_paths.OVERVIEW_PATH),
}
# The codes of errors whose page has a form for a new link to the preferences.
_ASK_CODES = {
    mailing.LIST_NOT_FOUND.code,
    mailing.TRACE_MISSING.code,
    mailing.TRACE_AMBIGUOUS.code,
    mailing.TRACE_INVALID.code,
    people.PREFERENCES_LINK_INVALID.code,
    people.PREFERENCES_LINK_USED.code,
    people.VISIT_OVER.code,
}
# Maps an error code to the heading and the sentences of the error page. Texts that are passed to
# ``marked`` are translated. Error texts that aren't passed to ``marked`` are always in English.
_TEXTS_BY_CODE: dict[str, tuple[str, ...]] = {
    mailing.TRACE_MISSING.code: _INCOMPLETE,
    mailing.TRACE_AMBIGUOUS.code: (_DOES_NOT_WORK, _CHANGED),
    mailing.TRACE_INVALID.code: (
        _DOES_NOT_WORK,
        marked("The link may have been shortened or changed on its way to you."),
    ),
    people.LINK_MISSING.code: (*_INCOMPLETE, _OPEN_AGAIN),
    people.LINK_AMBIGUOUS.code: (_DOES_NOT_WORK, _CHANGED, _OPEN_AGAIN),
    people.LINK_INVALID.code: (
        _DOES_NOT_WORK,
        marked("The link may have expired or may be incomplete."),
        _SIGN_UP_AGAIN,
    ),
    people.LINK_USED.code: (
        marked("This link has already been used"),
        marked("Each link works only once."),
        _SIGN_UP_AGAIN,
    ),
    mailing.SUBSCRIPTION_NOT_PENDING.code: (
        marked("There is nothing to confirm"),
        marked("This subscription no longer needs a confirmation."),
        _SIGN_UP_AGAIN,
    ),
    mailing.SUBSCRIPTION_CHANGED.code: (
        marked("Your change wasn’t saved"),
        marked("Your subscription was changed at the same time."),
        _OPEN_AGAIN,
    ),
    money.PAYMENT_LINK_INVALID.code: (
        "This link doesn’t work",
        "The link doesn’t belong to an order. If you have paid, your payment still counts.",
    ),
    "oauth.invalid_client": ("Unknown app", _ASK_THE_PROGRAM),
    "oauth.invalid_request": ("Invalid request from an app", _ASK_THE_PROGRAM),
    people.PREFERENCES_LINK_INVALID.code: (
        _DOES_NOT_WORK,
        marked("The link may have expired or may be incomplete."),
    ),
    people.PREFERENCES_LINK_USED.code: (
        marked("This link has already been used"),
        marked("Each link works only once."),
    ),
    people.VISIT_OVER.code: (
        marked("Your session has ended"),
        marked("This page closes one hour after you open the link from our e-mail."),
    ),
    mailing.LIST_BUSY.code: (
        marked("Please try again in a minute"),
        marked("This list is being updated right now."),
    ),
    people.ACCOUNT_LINK_INVALID.code: (
        "This link doesn’t work",
        "The link may have expired or may be incomplete.",
    ),
    people.ACCOUNT_LINK_USED.code: (
        "This link has already been used",
        "Each link works only once.",
    ),
    access.AUTH_LOGIN_AGAIN.code: (
        "Please log in again",
        (
            "You must have logged in within the last 15 minutes. Log out, log in, and open the page"
            " again."
        ),
    ),
    access.AUTH_SECOND_FACTOR.code: (
        "Please set up a second factor",
        "Your account requires a second factor. Log in to add a second factor.",
    ),
    people.SECOND_FACTOR_NOT_FOUND.code: (
        "Second factor not found",
        "The second factor has been removed, or it belongs to another account.",
    ),
    people.SECOND_FACTOR_MISSING.code: (
        "You have no second factor",
        "Recovery codes replace a second factor. Add an authenticator app or a passkey first.",
    ),
    access.AUTH_CSRF.code: (
        marked("We couldn’t verify your request"),
        marked("The form has expired, or your browser blocks cookies."),
        marked("Please open the page again."),
    ),
    requests.RATE_LIMITED.code: (
        marked("Too many requests"),
        marked("We received too many requests from your network."),
        marked("Please try again later."),
    ),
    access.LOGIN_BUSY.code: (
        "Too many people are logging in",
        "Please try again in a few seconds.",
    ),
    people.PASSWORD_CHANGED.code: (
        "Your change wasn’t saved",
        "Your password was changed at the same time. Please try again.",
    ),
    people.ADDRESS_TAKEN.code: (
        "This address is already in use",
        (
            "The address belongs to another account, and accounts can’t be merged. Log in to the"
            " other account, or ask for its deletion first. Your account has not been changed."
        ),
    ),
    access.SESSION_NOT_FOUND.code: (
        "Session not found",
        "The session has ended, or it belongs to another account.",
    ),
    access.API_KEY_NOT_FOUND.code: (
        "API key not found",
        "The key doesn’t belong to your account. The API keys page lists your active keys.",
    ),
    mailing.LIST_NOT_FOUND.code: (
        # The text is the same for an archived list and for an unknown one, so that strangers can't
        # find archived lists.
        marked("This newsletter isn’t here"),
        marked("The list is closed, or the address contains a mistake."),
        marked("For the new address, ask the publisher."),
    ),
}
_CLIENT_ERROR_TEXTS = (marked("That didn’t work"), _OPEN_AGAIN)
_SERVER_ERROR_TEXTS = (
    marked("Something went wrong"),
    marked("We’re sorry."),
    marked("Please try again in a few minutes."),
)


@dataclass(frozen=True)
class ErrorDetails:
    status: int
    code: str
    message: str
    request_id: str | None
    path: str = ""

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
        ask_path=_find_path(problem, page_urls.ASK_PREFERENCES_PATH)
        if problem.code in _ASK_CODES
        else None,
        next_page=find_next_page(problem),
    )


def find_next_page(problem: ErrorDetails) -> tuple[str, str] | None:
    next_page = _NEXT_PAGES.get(problem.code)
    if problem.code == people.ACCOUNT_LINK_INVALID.code and problem.path in _REQUEST_PATHS:
        next_page = ("Request a new link", _REQUEST_PATHS[problem.path])
    if next_page is None:
        return None
    label, path = next_page
    return label, _find_path(problem, path)


def _find_path(problem: ErrorDetails, path: str) -> str:
    """The URL is relative, because a proxy may serve all pages below a prefix."""
    levels_up = problem.path.count("/") - 1
    return "../" * levels_up + path.removeprefix("/")


def describe_error(code: str) -> tuple[str, str] | None:
    heading, *sentences = _TEXTS_BY_CODE.get(code, ("",))
    return (heading, " ".join(sentences)) if heading else None


def mark_page_request(scope: Scope, renderer: ProblemRenderer = render_problem) -> None:
    scope[_RENDERER_KEY] = renderer


def find_problem_renderer(scope: Scope) -> ProblemRenderer | None:
    """Return ``None`` for the request of a program, which gets errors as JSON."""
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
    """Pages for owners and operators are always in English."""
    language: str = request.scope.get(_LANGUAGE_KEY, ENGLISH)
    return language
