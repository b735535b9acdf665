"""Subscribes an e-mail address that was submitted without a login, in a form or as JSON."""

from functools import partial
from typing import Any

from fastapi import Response
from pydantic import ValidationError

from api.errors import body_error
from api.limits.keyed_bulkheads import CHANGES_BY_LIST
from api.response_timing import pad_duration
from api.schemas.subscriptions import NewSubscription
from api.sign_up import answer
from api.sign_up.form import ListForm
from api.state import State
from core.errors import DomainError, FieldProblem, mailing
from core.languages.reader_languages import ENGLISH
from integrations.challenges.port import (
    Challenge,
    ChallengeAction,
    ChallengeProviderName,
    ChallengeResponse,
)
from integrations.challenges.siteverify import WIDGETS
from models import MailingList
from services.subscriptions import sign_up
from services.subscriptions.sign_up import Visitor


async def subscribe_by_form(
    state: State,
    form: ListForm,
    inputs: dict[str, Any],
    visitor: Visitor,
    *,
    page_url: str | None = None,
) -> Response:
    mailing_list = form.mailing_list
    try:
        submission = parse_inputs(_add_widget_token(mailing_list, inputs))
        await subscribe_stranger(
            state, mailing_list, submission, visitor, is_form=True, page_url=page_url
        )
    except DomainError as error:
        return answer.render_error(state, form, inputs, visitor.language or ENGLISH, error)
    return answer.redirect_subscriber(state, mailing_list, inputs)


def parse_inputs(inputs: dict[str, Any]) -> NewSubscription:
    try:
        return NewSubscription.model_validate(inputs)
    except ValidationError as error:
        raise body_error(error) from None


def _add_widget_token(mailing_list: MailingList, inputs: dict[str, Any]) -> dict[str, Any]:
    """Copy the token of a challenge widget from the form to the API's challenge fields."""
    if not mailing_list.challenge_enabled or mailing_list.challenge_provider is None:
        return inputs
    provider = ChallengeProviderName(mailing_list.challenge_provider)
    token = inputs.get(WIDGETS[provider].field)
    if not token or inputs.get("challenge-token"):
        return inputs
    return {
        **inputs,
        "challenge-provider": provider.value,
        # Add the challenge's action, which the form lacks but the challenge provider checks.
        "challenge-action": "subscribe",
        "challenge-token": token,
    }


async def subscribe_stranger(
    state: State,
    mailing_list: MailingList,
    submission: NewSubscription,
    visitor: Visitor,
    *,
    is_form: bool,
    page_url: str | None = None,
) -> None:
    """The duration of the request doesn't reveal whether the address was already on the list."""
    if mailing_list.challenge_enabled:
        challenge, response = _read_challenge(state, mailing_list, submission, visitor)
        await challenge.check(response)
    subscribe = partial(
        sign_up.sign_up_visitor,
        mailing_list=mailing_list,
        visitor=visitor,
        email=submission.email,
        name=submission.name,
        values=submission.fields,
        origin=submission.model_dump(),
        is_text=is_form,
        page_url=page_url,
        agrees=submission.engagement,
    )
    async with pad_duration():
        await CHANGES_BY_LIST.run(mailing_list.id, state.transact, subscribe)


def _read_challenge(
    state: State, mailing_list: MailingList, submission: NewSubscription, visitor: Visitor
) -> tuple[Challenge, ChallengeResponse]:
    provider = submission.challenge_provider
    token = submission.challenge_token
    if not provider or not token or not submission.challenge_action:
        problems = tuple(
            FieldProblem(f"body.{field.alias}", "missing", "is required for this list")
            for name, field in NewSubscription.model_fields.items()
            if name.startswith("challenge") and not getattr(submission, name)
        )
        rules = "; ".join(f"{problem.field}: {problem.message}" for problem in problems)
        raise mailing.CHALLENGE_MISSING(rules=rules, problems=problems)
    if provider != mailing_list.challenge_provider:
        raise mailing.CHALLENGE_PROVIDER_MISMATCH(provider=mailing_list.challenge_provider)
    # Reject a challenge for an action other than subscribing, such as registration.
    if submission.challenge_action != ChallengeAction.SUBSCRIBE:
        raise mailing.CHALLENGE_FAILED()
    response = ChallengeResponse(token, ChallengeAction.SUBSCRIBE, visitor.address)
    return state.challenges.challenge_for(ChallengeProviderName(provider)), response
