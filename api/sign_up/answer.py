"""Builds the response to a submitted sign-up form."""

from collections.abc import Mapping
from typing import Any

from fastapi import Response

from api.errors import STATUS_OF
from api.html.frame import redirect_to
from api.sign_up.form import FormErrors, ListForm, find_redirect_url, render_form
from api.sign_up.inputs import EMPTY_ADDRESS, describe_field_errors
from api.sign_up.sealed_answers import SentAnswers, set_answers_cookie
from api.state import State
from core import clock
from core.errors import DomainError, mailing, requests
from core.languages.reader_languages import marked, translate
from models import MailingList
from services.subscriptions import page_urls
from services.subscriptions.sign_up_origins import clean_origin

# ``marked`` selects a text for translation into the reader's language.
_INVALID_ADDRESS = marked("This isn’t a valid e-mail address.")
_LONG_NAME = marked("This name is too long.")
_INVALID_VALUES = marked("One of your answers isn’t valid. Please check your answers.")
_FAILED_CHALLENGE = marked("We couldn’t verify that you are human. Please try again.")
# Maps the code of an error that the user can correct to a message.
_MESSAGES = {
    mailing.CHALLENGE_MISSING.code: _FAILED_CHALLENGE,
    mailing.CHALLENGE_FAILED.code: _FAILED_CHALLENGE,
    mailing.CHALLENGE_PROVIDER_MISMATCH.code: _FAILED_CHALLENGE,
    mailing.CHALLENGE_UNAVAILABLE.code: marked(
        "The check that you are human is unavailable. Please try again in a minute."
    ),
    mailing.FIELD_VALUE.code: _INVALID_VALUES,
    mailing.LIST_BUSY.code: marked(
        "This list is being updated right now. Please try again in a minute."
    ),
}


def render_error(
    state: State, form: ListForm, inputs: Mapping[str, Any], language: str, error: DomainError
) -> Response:
    """Show the form again with a message, or raise ``error`` if the visitor can't correct it."""
    errors = _build_form_errors(language, error, form, inputs)
    if errors is None:
        raise error
    return render_form(language, state, form, values=inputs, errors=errors)


def redirect_subscriber(
    state: State, mailing_list: MailingList, inputs: Mapping[str, Any]
) -> Response:
    redirect_url = find_redirect_url(state, mailing_list, inputs)
    if redirect_url is not None:
        return redirect_to(redirect_url)
    response = redirect_to(page_urls.subscribed_url(state.resources.settings, mailing_list.id))
    names = ("email", "name", "fields")
    values = {name: inputs[name] for name in names if name in inputs} | {**clean_origin(inputs)}
    now = clock.now()
    set_answers_cookie(response, state, SentAnswers(mailing_list.id, values, now, now))
    return response


def _build_form_errors(
    language: str, error: DomainError, form: ListForm, inputs: Mapping[str, Any]
) -> FormErrors | None:
    """Return ``None`` if the user can't correct the error."""
    status = STATUS_OF[error.kind]
    if error.code == requests.BODY_INVALID.code:
        texts = {
            "email": _INVALID_ADDRESS if inputs.get("email") else EMPTY_ADDRESS,
            "name": _LONG_NAME,
        }
        names = [
            problem.field.removeprefix("body.").partition(".")[0] for problem in error.problems
        ]
        by_input = {name: translate(language, texts.get(name, _INVALID_VALUES)) for name in names}
        return FormErrors(status, None, by_input, {})
    if error.code not in _MESSAGES:
        return None
    by_input = {}
    if error.code == mailing.FIELD_VALUE.code:
        by_input = describe_field_errors(language, form.fields, error)
    headers = {"Retry-After": str(error.retry_after)} if error.retry_after else {}
    return FormErrors(status, translate(language, _MESSAGES[error.code]), by_input, headers)
