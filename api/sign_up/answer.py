"""The response to a browser that submits a sign-up form."""

from collections.abc import Mapping
from typing import Any

from fastapi import Request, Response
from pydantic import ValidationError

from api.errors import STATUS_OF
from api.html.frame import redirect
from api.html.problems import reader_language
from api.schemas.subscriptions import NewSubscription
from api.sign_up.form import Correction, SignUpPage, allowed_url, show_form
from api.sign_up.inputs import NO_ADDRESS, problems_of_fields
from api.sign_up.submission import submit
from api.state import State
from core.errors import DomainError, mailing
from core.languages.reader_languages import marked, translated
from integrations.challenges.port import ChallengeProviderName
from integrations.challenges.siteverify import WIDGETS
from models import MailingList
from services.subscriptions import page_urls

_NOT_PASSED = marked("The check that you are a person was not passed. Please do it once more.")
_LOOK_AGAIN = marked(
    "We can’t take one of the answers as it is written. Please look at them again."
)
# Errors that the person can correct on the page.
_CORRECTABLE = {
    mailing.CHALLENGE_MISSING.code: _NOT_PASSED,
    mailing.CHALLENGE_FAILED.code: _NOT_PASSED,
    mailing.CHALLENGE_PROVIDER_MISMATCH.code: _NOT_PASSED,
    mailing.CHALLENGE_UNAVAILABLE.code: marked(
        "We can’t check at the moment that you are a person. Please try again in a minute."
    ),
    mailing.FIELD_VALUE.code: _LOOK_AGAIN,
    mailing.LIST_BUSY.code: marked(
        "We are changing this list just now. Please try again in a minute."
    ),
}
_WRONG_ADDRESS = marked("This is no e-mail address that we could send to.")
_LONG_NAME = marked("This name is too long.")


async def answer_form(
    request: Request,
    state: State,
    mailing_list: MailingList,
    inputs: dict[str, Any],
    *,
    page_url: str | None = None,
) -> Response:
    """Submit the form and redirect; with errors that the person can correct, show it again."""
    settings = state.resources.settings
    url = allowed_url(state, mailing_list, inputs)
    language = reader_language(request)
    shown = await state.in_unit_of_work(SignUpPage.read, mailing_list, settings)
    try:
        wanted = NewSubscription.model_validate(_with_widget_token(mailing_list, inputs))
        await submit(
            request, state, mailing_list, wanted, is_form=True, page_url=page_url, language=language
        )
    except ValidationError as error:
        correction = _of_validation(language, error, inputs)
    except DomainError as error:
        if error.code not in _CORRECTABLE:
            raise
        correction = _of_error(language, error, shown)
    else:
        thanks = page_urls.subscribed_url(settings, mailing_list.id)
        return redirect(inputs["redirect_url"] if url else thanks)
    return show_form(language, state, shown, written=inputs, correction=correction)


def _with_widget_token(mailing_list: MailingList, inputs: dict[str, Any]) -> dict[str, Any]:
    if not mailing_list.challenge_enabled or mailing_list.challenge_provider is None:
        return inputs
    provider = ChallengeProviderName(mailing_list.challenge_provider)
    token = inputs.get(WIDGETS[provider].field)
    if not token or inputs.get("challenge-token"):
        return inputs
    # The provider itself says for which action the widget was shown.
    named = {"challenge-provider": provider.value, "challenge-action": "subscribe"}
    return {**inputs, **named, "challenge-token": token}


def _of_validation(language: str, error: ValidationError, inputs: Mapping[str, Any]) -> Correction:
    texts = {
        "email": _WRONG_ADDRESS if inputs.get("email") else NO_ADDRESS,
        "name": _LONG_NAME,
    }
    places = [str(each["loc"][0]) for each in error.errors()]
    found = {place: translated(language, texts.get(place, _LOOK_AGAIN)) for place in places}
    return Correction(422, None, found, {})


def _of_error(language: str, error: DomainError, shown: SignUpPage) -> Correction:
    is_of_fields = error.code == mailing.FIELD_VALUE.code
    found = problems_of_fields(language, shown.public, error) if is_of_fields else {}
    headers = {"Retry-After": str(error.retry_after)} if error.retry_after else {}
    problem = translated(language, _CORRECTABLE[error.code])
    return Correction(STATUS_OF[error.kind], problem, found, headers)
