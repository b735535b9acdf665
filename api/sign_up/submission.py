"""The sign-up of a stranger, after its input was read."""

from dataclasses import replace

from fastapi import Request

from api.auth import actors
from api.browsers import client_address
from api.limits.bulkheads import ACTS_BY_LIST
from api.response_timing import padded_duration
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
    """Subscribe the address. The duration reveals nothing of the list.

    Args:
        page_url: our own page with the form.
        language: the language of the page that a person saw, also for mails to them.
    """
    via = Via.FORM
    if mailing_list.challenge_enabled:
        challenge, answer = _challenge(request, state, mailing_list, wanted)
        await challenge.check(answer)
        via = Via.CHALLENGE
    actor = actors.actor_of(request, ActorKind.STRANGER, via, None)
    if page_url is not None:
        actor = replace(actor, page_url=page_url)

    def subscribe(uow: UnitOfWork) -> None:
        own = lists.get(uow, mailing_list.id)
        required = [each.field for each in lists.sign_up_fields(uow, own) if each.is_required]
        given = member_attributes.read_submission(
            uow,
            own.user_id,
            name=wanted.name,
            values=wanted.fields,
            is_text=is_form,
            required=required,
        )
        sign_up.request(
            uow,
            own,
            wanted.email,
            actor,
            submission=replace(given, language=language),
        )

    async with padded_duration():
        await ACTS_BY_LIST.run(mailing_list.id, state.transact, subscribe)


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
    # A token for another action does not count.
    if wanted.challenge_action != ChallengeAction.SUBSCRIBE:
        raise mailing.CHALLENGE_FAILED()
    answer = ChallengeResponse(token, ChallengeAction.SUBSCRIBE, client_address(request))
    return state.challenges.challenge_for(ChallengeProviderName(provider)), answer
