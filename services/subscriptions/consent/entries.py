"""Consent entries: records of how people joined lists."""

import ipaddress
from collections.abc import Mapping

from sqlalchemy import select

from models import ConsentEntry, ConsentHow, MailingList, Subscription
from storage.unit_of_work import UnitOfWork

# These kinds of entries record operations of the owner. Such an entry doesn't show that the person
# agreed.
_OWNER_KINDS = frozenset({ConsentHow.OWNER, ConsentHow.IMPORT, ConsentHow.TRANSFER})
# The kind of a consent entry by the way in which the person's request reached Pressroom. Requests
# of the owner don't use this table.
HOW_BY_VIA: Mapping[str, ConsentHow] = {
    "login": ConsentHow.LOGIN,
    "challenge": ConsentHow.FORM,
    "form": ConsentHow.FORM,
    "confirmation": ConsentHow.CONFIRMATION,
    "trace": ConsentHow.LINK,
    "one-click": ConsentHow.LINK,
    "page": ConsentHow.LINK,
    "import": ConsentHow.IMPORT,
    # A command of the operator counts as a request of the list's owner.
    "command": ConsentHow.OWNER,
    # The undo of a bulk action may make removed members active again.
    "bulk": ConsentHow.OWNER,
}
# The prefix lengths of stored networks, by IP version. The database function ``network_of_ip`` uses
# the same lengths.
_NETWORK_PREFIX_BITS = {4: 24, 6: 48}


def record_entry(
    uow: UnitOfWork,
    subscription: Subscription,
    how: ConsentHow,
    *,
    ip: str | None,
    url: str | None,
    browser: str | None,
) -> None:
    """Record how the person joined the list, in the transaction that adds the person.

    The entry only stores the IP address, URL, browser and wording if the person joined the list
    without the owner.
    """
    entry = ConsentEntry(list_id=subscription.list_id, user_id=subscription.user_id, how=how)
    if how not in _OWNER_KINDS:
        entry.ip = normalise_ip(ip)
        entry.url = url
        entry.browser = browser
        # The subquery reads the current version of the wording from the database, because the
        # object in the session may be older.
        version = select(MailingList.consent_wording_version).where(
            MailingList.id == subscription.list_id
        )
        entry.wording_version = version.scalar_subquery()
    uow.session.add(entry)


def normalise_ip(text: str | None) -> str | None:
    """Return the IP address or network in the text, or ``None`` for any other text.

    The text may be a network, because exports of Pressroom contain networks instead of shortened
    addresses.
    """
    ip = (text or "").strip()
    try:
        network = ipaddress.ip_network(ip, strict=False)
    except ValueError:
        return None
    # An IPv6 address with a zone names a network interface of one machine.
    if "%" in ip:
        return None
    if network.prefixlen == network.max_prefixlen:
        return str(network.network_address)
    # A small network could identify a person, so the result contains at least as many addresses as
    # a network of ``network_of_ip``.
    prefix = min(network.prefixlen, _NETWORK_PREFIX_BITS[network.version])
    return str(network.supernet(new_prefix=prefix))
