"""Builds the records of mailing lists in responses."""

from collections.abc import Sequence

from api.schemas.lists import Channel
from api.state import State
from integrations.challenges.port import ChallengeProviderName
from models import MailingList
from services.subscriptions import subscriber_counts
from services.subscriptions.consent.wordings import read_current_wordings
from services.subscriptions.sign_up_fields import read_field_keys
from storage.unit_of_work import UnitOfWork


def describe_lists(
    uow: UnitOfWork, state: State, mailing_lists: Sequence[MailingList]
) -> list[Channel]:
    """Return mailing lists with their subscriber counts, site keys and consent wordings."""
    subscribers = subscriber_counts.count_subscribers(
        uow, {mailing_list.id for mailing_list in mailing_lists}
    )
    wordings = read_current_wordings(uow, mailing_lists)
    site_keys = {
        name: state.challenges.challenge_for(ChallengeProviderName(name)).site_key
        for name in {mailing_list.challenge_provider for mailing_list in mailing_lists}
        if name is not None and name in state.challenges.configured
    }
    return [
        Channel.of(
            mailing_list,
            subscribers[mailing_list.id],
            site_keys.get(mailing_list.challenge_provider or ""),
            wordings.get(mailing_list.id),
            read_field_keys(uow, mailing_list),
        )
        for mailing_list in mailing_lists
    ]


def describe_list(uow: UnitOfWork, state: State, mailing_list: MailingList) -> Channel:
    return describe_lists(uow, state, [mailing_list])[0]
