"""Subscribes an e-mail address that was submitted without a login, in a form or as JSON."""

from dataclasses import replace
from typing import Any

from fastapi import Request
from pydantic import ValidationError

from api.auth import actors
from api.client_details import client_address
from api.errors import request_error
from api.limits.keyed_bulkheads import CHANGES_BY_LIST
from api.response_timing import pad_duration
from api.schemas.subscriptions import NewSubscription
from api.state import State
from core.errors import FieldProblem, mailing
from integrations.challenges.port import (
    Challenge,
    ChallengeAction,
    ChallengeProviderName,
    ChallengeResponse,
)
from models import MailingList
from services.subscriptions import lists, member_attributes, sign_up
from services.subscriptions.members.changes import ActorKind, Via
from services.subscriptions.sign_up_fields import read_sign_up_fields
from services.subscriptions.sign_up_origins import clean_origin, read_referring_page
from storage.unit_of_work import UnitOfWork


def validate_inputs(inputs: dict[str, Any]) -> NewSubscription:
    try:
        return NewSubscription.model_validate(inputs)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        raise request_error(
            [{**problem, "loc": ("body", *problem["loc"])} for problem in problems]
        ) from None


async def subscribe_stranger(
    request: Request,
    state: State,
    mailing_list: MailingList,
    submission: NewSubscription,
    *,
    is_form: bool,
    page_url: str | None = None,
    language: str | None = None,
) -> None:
    """Subscribe the submitted e-mail address to a list.

    The duration of the request doesn't reveal whether the address was already on the list.

    Args:
        is_form: whether all values are strings, because they come from a form.
        page_url: the URL of the sign-up page, or ``None`` for a form on another site.
        language: the language of the page that the reader saw, which is also used for mails.
    """
    via = Via.CHALLENGE if mailing_list.challenge_enabled else Via.FORM
    actor = actors.build_actor(request, ActorKind.STRANGER, via, None)
    if page_url is not None:
        actor = replace(actor, page_url=page_url)
    origin = clean_origin(submission.model_dump())
    if page_url is None and not origin.keys() & {"referrer", "landing"}:
        # The sign-up form is on the owner's website, and no script has filled in the hidden fields
        # that say where the visitor came from. Use the ``Referer`` header instead.
        origin = {**origin, **read_referring_page(request.headers.get("referer"))}
    if mailing_list.challenge_enabled:
        challenge, response = _read_challenge(request, state, mailing_list, submission)
        await challenge.check(response)

    def subscribe(uow: UnitOfWork) -> None:
        current_list = lists.get_list(uow, mailing_list.id)
        sign_up_fields = read_sign_up_fields(uow, current_list)
        attributes = member_attributes.read_submission(
            uow,
            current_list.user_id,
            name=submission.name,
            values=submission.fields,
            is_text=is_form,
            required=[entry.field for entry in sign_up_fields if entry.is_required],
        )
        sign_up.request_subscription(
            uow,
            current_list,
            submission.email,
            actor,
            submission=replace(attributes, language=language, origin=origin),
        )

    async with pad_duration():
        await CHANGES_BY_LIST.run(mailing_list.id, state.transact, subscribe)


def _read_challenge(
    request: Request, state: State, mailing_list: MailingList, submission: NewSubscription
) -> tuple[Challenge, ChallengeResponse]:
    """Return the list's challenge and the submitted response to it.

    Raises ``challenge.missing`` if a challenge field is missing. Raises
    ``challenge.provider_mismatch`` for a challenge of the wrong provider. Raises
    ``challenge.failed`` if the challenge wasn't for subscribing.
    """
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
    response = ChallengeResponse(token, ChallengeAction.SUBSCRIBE, client_address(request))
    return state.challenges.challenge_for(ChallengeProviderName(provider)), response
