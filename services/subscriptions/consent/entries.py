"""Consent entries, which record how people joined lists."""

import ipaddress
from collections.abc import Mapping

from sqlalchemy import select

from models import ConsentEntry, ConsentHow, MailingList, Subscription
from storage.unit_of_work import UnitOfWork

# The kinds of consent entries that record an action of the owner, and that don't show the person's
# agreement.
_OWNER_KINDS = frozenset({ConsentHow.OWNER, ConsentHow.IMPORT, ConsentHow.TRANSFER})
# Maps the way in which a person's request reached Pressroom to the kind of consent entry.
HOW_BY_VIA: Mapping[str, ConsentHow] = {
    "login": ConsentHow.LOGIN,
    "challenge": ConsentHow.FORM,
    "form": ConsentHow.FORM,
    "confirmation": ConsentHow.CONFIRMATION,
    "trace": ConsentHow.LINK,
    "one-click": ConsentHow.LINK,
    "page": ConsentHow.LINK,
    "import": ConsentHow.IMPORT,
    # A command that the operator runs counts as an action of the list's owner.
    "command": ConsentHow.OWNER,
    # Undoing a bulk action may make removed members active again, which adds a consent entry.
    "bulk": ConsentHow.OWNER,
}
# The prefix length to which an IP address is shortened, by IP version. ``_NETWORK_PREFIX_BITS``
# must match the prefix lengths in the database function ``network_of_ip``.
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
    """Record how the person joined the list.

    The entry stores the IP address, URL, browser and consent wording only if the person joined the
    list without the owner's action.
    """
    entry = ConsentEntry(list_id=subscription.list_id, user_id=subscription.user_id, how=how)
    if how not in _OWNER_KINDS:
        entry.ip = normalise_ip(ip)
        entry.url = url
        entry.browser = browser
        # Read the current wording's version in the database, because ``MailingList`` objects in the
        # session may be outdated.
        version = select(MailingList.consent_wording_version).where(
            MailingList.id == subscription.list_id
        )
        entry.wording_version = version.scalar_subquery()
    uow.session.add(entry)


def normalise_ip(text: str | None) -> str | None:
    """Return the IP address or network in the text, or ``None`` if the text is neither.

    Imported files may contain networks, because Pressroom's own exports contain a network for each
    IP address that was shortened.
    """
    ip = (text or "").strip()
    try:
        network = ipaddress.ip_network(ip, strict=False)
    except ValueError:
        return None
    # Reject an IPv6 address with a zone, which is only valid on one machine.
    if "%" in ip:
        return None
    if network.prefixlen == network.max_prefixlen:
        return str(network.network_address)
    # A small network could identify a person, so widen the network to at least the size that
    # ``network_of_ip`` produces.
    prefix = min(network.prefixlen, _NETWORK_PREFIX_BITS[network.version])
    return str(network.supernet(new_prefix=prefix))
