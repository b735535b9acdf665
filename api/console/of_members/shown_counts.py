"""How many members a filter means, told at once; and how its exact number is asked for."""

from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlencode

from models import MailingList
from services.mailing.filters.member_filter import MemberFilter
from services.mailing.segments import counting
from services.mailing.segments.counting import MemberCount
from storage.resources import Resources

# The page comes first: a script, or its reader, asks for what takes longer.
AT_ONCE = timedelta(milliseconds=30)
EXACTLY = "exactly"


@dataclass(frozen=True)
class ShownCount:
    """
    Attributes:
        recount: the query of the page that counts for longer, if that may tell more.
    """

    counted: MemberCount
    recount: str | None

    @property
    def count(self) -> int | None:
        return self.counted.count

    @property
    def is_exact(self) -> bool:
        return self.counted.is_exact


# No filter, no member.
NOBODY = ShownCount(MemberCount(0, is_exact=True), None)


def shown_count(
    resources: Resources,
    mailing_list: MailingList,
    wanted: MemberFilter,
    asked: str,
    query: dict[str, str],
) -> ShownCount:
    """
    Args:
        asked: ``EXACTLY``, where the page was asked to count for longer.
        query: what chose the members on this page.
    """
    if asked == EXACTLY:
        return ShownCount(counting.count(resources, mailing_list, wanted), None)
    counted = counting.count(resources, mailing_list, wanted, within=AT_ONCE)
    recount = None if counted.is_exact else f"?{urlencode({**query, 'count': EXACTLY})}"
    return ShownCount(counted, recount)
