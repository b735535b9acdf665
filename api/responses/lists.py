"""Records of lists in responses."""

from collections.abc import Sequence

from api.schemas.lists import Channel
from api.state import State
from integrations.challenges.port import ChallengeProviderName
from models import MailingList
from services.subscriptions import consent, figures
from services.subscriptions import lists as own_lists
from storage.unit_of_work import UnitOfWork


def list_responses(uow: UnitOfWork, state: State, lists: Sequence[MailingList]) -> list[Channel]:
    """Return the records of lists, with their numbers, site keys and wordings."""
    subscribers = figures.count_subscribers(uow, {each.id for each in lists})
    texts = consent.of_lists(uow, lists)
    keys = {
        name: state.challenges.challenge_for(ChallengeProviderName(name)).site_key
        for name in {each.challenge_provider for each in lists}
        if name is not None and name in state.challenges.configured
    }
    return [
        Channel.of(
            each,
            subscribers[each.id],
            keys.get(each.challenge_provider or ""),
            texts.get(each.id),
            own_lists.field_keys(uow, each),
        )
        for each in lists
    ]


def list_response(uow: UnitOfWork, state: State, mailing_list: MailingList) -> Channel:
    return list_responses(uow, state, [mailing_list])[0]
