from http import HTTPStatus

from fastapi.responses import Response

from api.console.console_frame import console_page
from api.pages.problems import ShownProblem
from core.refusals.access import AUTH_CSRF
from core.refusals.requests import RATE_LIMITED, REQUEST_INVALID
from core.settings import Settings

_BY_CODE = {
    AUTH_CSRF.code: (
        "That didn’t go through",
        "Your browser didn’t show that this came from a page of ours. Please open that page again.",
    ),
    RATE_LIMITED.code: (
        "Too many requests came from here",
        "We got too many in a short time. Please wait a while, and try again.",
    ),
}
_NOT_FOUND = ("There is nothing here", "It is gone, or it was never yours.")
_OUR_FAULT = ("Something went wrong here", "We’re sorry. Please try again in a few minutes.")


def console_problem(settings: Settings, problem: ShownProblem) -> Response:
    """The page that tells of a refusal in the console."""
    status = problem.status
    if status == HTTPStatus.NOT_FOUND or _is_no_path(problem):
        # All alike, so that the page of another owner's thing tells nothing of it.
        status, (heading, text) = HTTPStatus.NOT_FOUND, _NOT_FOUND
    elif status == HTTPStatus.INTERNAL_SERVER_ERROR:
        heading, text = _OUR_FAULT
    else:
        heading, text = _BY_CODE.get(problem.code, ("That didn’t work", problem.message))
    number = problem.request_id if problem.is_our_fault else None
    values = {
        "base": settings.public_base,
        "heading": heading,
        "text": text,
        "number": number,
    }
    return console_page("console_problem.html", values, status=status)


def _is_no_path(problem: ShownProblem) -> bool:
    """Whether the path has something else where an id stands in the paths of our pages."""
    return problem.code == REQUEST_INVALID.code and problem.message.startswith("path.")
