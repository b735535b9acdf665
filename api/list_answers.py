from collections.abc import Sequence

from api.schemas.lists import Channel
from api.state import State
from core.refusals import mailing as refusals
from integrations.challenges.port import ChallengeProviderName
from models import MailingList
from services.mailing import subscriber_counts
from services.mailing.consent import wordings
from storage.unit_of_work import UnitOfWork

# How what an owner sets of a list may be refused.
LIST_RULES = (
    refusals.LIST_SLUG_TAKEN,
    refusals.LIST_TITLE,
    refusals.LIST_SLUG,
    refusals.LIST_IMAGE_URL,
    refusals.LIST_CHALLENGE_PROVIDER,
    refusals.LIST_REDIRECT_ORIGINS,
    refusals.LIST_CONSENT_WORDINGS,
    refusals.LIST_COLOUR,
    refusals.LIST_LOGO,
    refusals.LIST_SENDER_NAME,
    refusals.LIST_WORDS,
)


def list_responses(uow: UnitOfWork, state: State, lists: Sequence[MailingList]) -> list[Channel]:
    """The records of lists, with numbers of subscribers, challenges' site keys and wordings."""
    subscribers = subscriber_counts.count_subscribers(uow, {each.id for each in lists})
    texts = wordings.of_lists(uow, lists)
    return [
        Channel.of(each, subscribers[each.id], _site_key(state, each), texts.get(each.id))
        for each in lists
    ]


def list_response(uow: UnitOfWork, state: State, mailing_list: MailingList) -> Channel:
    return list_responses(uow, state, [mailing_list])[0]


def _site_key(state: State, mailing_list: MailingList) -> str | None:
    provider = mailing_list.challenge_provider
    if provider is None or provider not in state.challenges.configured:
        return None
    return state.challenges.challenge_for(ChallengeProviderName(provider)).site_key
