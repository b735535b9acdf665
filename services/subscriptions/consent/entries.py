"""Consent entries: each records an act by which a person came onto a list."""

import ipaddress
from collections.abc import Mapping

from sqlalchemy import select

from models import ConsentEntry, ConsentHow, MailingList, Subscription
from storage.unit_of_work import UnitOfWork

# These say nothing of the person, but that the owner takes them to agree.
BY_OWNER = frozenset({ConsentHow.OWNER, ConsentHow.IMPORT, ConsentHow.TRANSFER})
# How a person who came this way agreed, unless the act was the owner's.
BY_VIA: Mapping[str, ConsentHow] = {
    "login": ConsentHow.LOGIN,
    "challenge": ConsentHow.FORM,
    "form": ConsentHow.FORM,
    "confirmation": ConsentHow.CONFIRMATION,
    "trace": ConsentHow.LINK,
    "one-click": ConsentHow.LINK,
    "page": ConsentHow.LINK,
    "import": ConsentHow.IMPORT,
    # The operator's, in the name of the owner.
    "command": ConsentHow.OWNER,
    # The undo of a bulk action at once.
    "bulk": ConsentHow.OWNER,
}
# As ``network_of_ip`` of the database has them.
_NETWORK_BITS = {4: 24, 6: 48}


def record(
    uow: UnitOfWork,
    subscription: Subscription,
    how: ConsentHow,
    *,
    ip: str | None,
    url: str | None,
    browser: str | None,
) -> None:
    """Note that the person came onto the list just now, and where from if it was their own act."""
    entry = ConsentEntry(list_id=subscription.list_id, user_id=subscription.user_id, how=how)
    if how not in BY_OWNER:
        entry.ip, entry.url, entry.browser = read_ip(ip), url, browser
        # The wording that the list has now, whatever this transaction has read of the list.
        of_list = MailingList.id == subscription.list_id
        version = select(MailingList.consent_wording_version).where(of_list)
        entry.wording_version = version.scalar_subquery()
    uow.session.add(entry)


def read_ip(written: str | None) -> str | None:
    """The address, or a network as an export of ours has it once the address is shortened.

    ``None`` for any other text, whatever a proxy or a file says.
    """
    ip = (written or "").strip()
    try:
        found = ipaddress.ip_network(ip, strict=False)
    except ValueError:
        return None
    if "%" in ip:  # an interface of some machine, by any name
        return None
    if found.prefixlen == found.max_prefixlen:
        return str(found.network_address)
    # A smaller network is as good as an address.
    return str(found.supernet(new_prefix=min(found.prefixlen, _NETWORK_BITS[found.version])))
