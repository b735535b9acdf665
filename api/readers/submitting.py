"""The submission of a sign-up, whatever brought it: the challenge first, then the list."""

from dataclasses import replace
from functools import partial

from fastapi import Request

from api.access import actors
from api.access.answer_timing import padded_duration
from api.access.browsers import client_address
from api.limits.shares import ACTS_BY_LIST
from api.schemas.subscriptions import NewSubscription
from api.state import State
from core.errors import FieldProblem
from core.refusals import mailing
from core.settings import Settings
from integrations.challenges.port import (
    Challenge,
    ChallengeAction,
    ChallengeProviderName,
    ChallengeResponse,
)
from models import MailingList
from services.mailing import lists
from services.mailing.attributes import submissions
from services.mailing.subscriptions import subscribe as joining
from services.mailing.subscriptions.changes import Actor, Via
from storage.unit_of_work import UnitOfWork


async def submit(
    request: Request,
    state: State,
    mailing_list: MailingList,
    wanted: NewSubscription,
    *,
    is_form: bool,
    page_url: str | None = None,
    language: str | None = None,
) -> None:
    """Subscribe the address. The duration tells nothing of what the list knew.

    Args:
        page_url: our own page that has the form.
        language: that of the page which a person saw; mails to them keep it.
    """
    via = Via.FORM
    if mailing_list.challenge_enabled:
        challenge, answer = _challenge(request, state, mailing_list, wanted)
        await challenge.check(answer)
        via = Via.CHALLENGE
    actor = actors.stranger_actor(request, via)
    if page_url is not None:
        actor = replace(actor, page_url=page_url)
    subscribe = partial(
        _subscribe,
        settings=state.resources.settings,
        list_id=mailing_list.id,
        wanted=wanted,
        actor=actor,
        is_form=is_form,
        language=language,
    )
    async with padded_duration():
        await ACTS_BY_LIST.run(mailing_list.id, state.transact, subscribe)


def _subscribe(
    uow: UnitOfWork,
    settings: Settings,
    list_id: int,
    wanted: NewSubscription,
    actor: Actor,
    *,
    is_form: bool,
    language: str | None,
) -> None:
    mailing_list = lists.get(uow, list_id)
    given = submissions.read(
        uow, mailing_list.user_id, name=wanted.name, values=wanted.fields, is_text=is_form
    )
    joining.request(
        uow,
        settings.keyring,
        mailing_list,
        wanted.email,
        actor,
        settings=settings,
        submission=replace(given, language=language),
    )


def _challenge(
    request: Request, state: State, mailing_list: MailingList, wanted: NewSubscription
) -> tuple[Challenge, ChallengeResponse]:
    provider, token = wanted.challenge_provider, wanted.challenge_token
    if not provider or not token or not wanted.challenge_action:
        problems = tuple(
            FieldProblem(f"body.{field.alias}", "missing", "is required for this list")
            for name, field in NewSubscription.model_fields.items()
            if name.startswith("challenge") and not getattr(wanted, name)
        )
        rules = "; ".join(f"{each.field}: {each.message}" for each in problems)
        raise mailing.CHALLENGE_MISSING(rules=rules, problems=problems)
    if provider != mailing_list.challenge_provider:
        raise mailing.CHALLENGE_PROVIDER_MISMATCH(provider=mailing_list.challenge_provider)
    # A token that was made for something else is no token for this.
    if wanted.challenge_action != ChallengeAction.SUBSCRIBE:
        raise mailing.CHALLENGE_FAILED()
    answer = ChallengeResponse(token, ChallengeAction.SUBSCRIBE, client_address(request))
    return state.challenges.challenge_for(ChallengeProviderName(provider)), answer
