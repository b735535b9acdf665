"""A filter for the members of one list."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlalchemy import FromClause, and_

from models import MailingList, Subscription, SubscriptionStatus
from services.mailing.attributes import fields, tags
from services.mailing.attributes.fields import OwnFields
from services.mailing.filters import grammar
from services.mailing.filters.combinations import Node
from services.mailing.filters.comparisons import Condition, Members
from services.mailing.filters.filter_names import STATUS, TAG, known_names
from storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class MemberFilter:
    """Which members of a list are meant.

    They are active, unless the filter itself names statuses, or the caller does.

    Attributes:
        fields: of the list's owner, by which it was read.
        tag_ids: of the tags that it names and that the list has, by those names.
    """

    node: Node
    fields: OwnFields
    tag_ids: Mapping[str, int]

    def statuses(
        self, asked: Collection[SubscriptionStatus] | None = None
    ) -> tuple[SubscriptionStatus, ...]:
        """Those that a member whom it means may have; other members need no look.

        Args:
            asked: only these, instead of the active members alone.
        """
        if asked is None:
            names_status = any(each.name == STATUS for each in self.node.comparisons())
            asked = tuple(SubscriptionStatus) if names_status else (SubscriptionStatus.ACTIVE,)
        return tuple(
            each
            for each in SubscriptionStatus
            if each in asked and self.node.is_true_of(each) is not False
        )

    @property
    def is_all_active(self) -> bool:
        """Whether it means each active member, and nobody else, whatever else is known of them."""
        active = SubscriptionStatus.ACTIVE
        return self.statuses() == (active,) and self.node.is_true_of(active) is True

    def condition(
        self,
        rows: FromClause = Subscription.__table__,
        *,
        asked: Collection[SubscriptionStatus] | None = None,
    ) -> Condition:
        """What is true of a member whom it means, in SQL with bound values.

        That the member is on the list is for the statement to say.

        Args:
            rows: the subscriptions, or some of them with all of their columns.
            asked: as in ``statuses``.
        """
        has_status = rows.c.status.in_(self.statuses(asked))
        return and_(has_status, self.node.sql(Members(rows, self.tag_ids)))

    def indexed(self) -> Condition | None:
        """A condition that an index answers, and that is true of every member whom it means."""
        return self.node.indexed(Members(tag_ids=self.tag_ids))


def read(uow: UnitOfWork, mailing_list: MailingList, written: object) -> MemberFilter:
    """The filter that is written as JSON. Raises ``filter.invalid``."""
    own = fields.own(uow, mailing_list.user_id)
    node = grammar.parse(written, known_names(own.by_key.values()))
    named = [each.values for each in node.comparisons() if each.name == TAG]
    # A tag that the list does not have is on no member.
    wanted = {str(value) for values in named for value in values}
    tag_ids = tags.tag_ids_of(uow, mailing_list.id, wanted, make=False)
    return MemberFilter(node, own, tag_ids)
