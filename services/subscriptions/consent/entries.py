"""Records consent entries, which store how people joined lists."""

import ipaddress
from collections.abc import Mapping

from sqlalchemy import select

from models import ConsentEntry, ConsentHow, MailingList, Subscription
from storage.unit_of_work import UnitOfWork

# Consent entries of these kinds record an action by the list's owner, and don't prove that the
# person agreed.
_OWNER_KINDS = frozenset({ConsentHow.OWNER, ConsentHow.IMPORT, ConsentHow.TRANSFER})
# Maps each way in which a request can reach Pressroom to the kind of consent entry that the request
# creates.
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
    # Undoing a bulk action may restore removed members, which adds a consent entry for each
    # restored member.
    "bulk": ConsentHow.OWNER,
}
# Maps each IP version to the prefix length of the networks that replace IP addresses. The prefix
# lengths in ``_NETWORK_PREFIX_BITS`` must match the database function ``network_of_ip``.
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
    """Record a consent entry, which stores how a person joined a list.

    If an action by the list's owner added the person, the consent entry contains no IP address,
    URL, browser or consent wording.
    """
    entry = ConsentEntry(list_id=subscription.list_id, user_id=subscription.user_id, how=how)
    if how not in _OWNER_KINDS:
        entry.ip = normalise_ip(ip)
        entry.url = url
        entry.browser = browser
        # Read the version of the current consent wording from the database, because ``MailingList``
        # objects in the session may be outdated.
        version = select(MailingList.consent_wording_version).where(
            MailingList.id == subscription.list_id
        )
        entry.wording_version = version.scalar_subquery()
    uow.session.add(entry)


def normalise_ip(text: str | None) -> str | None:
    """Return a normalised IP address or IP network, or ``None`` if the text is invalid.

    Imported files may contain IP networks, because Pressroom replaces old IP addresses by networks,
    and exports contain the networks.
    """
    ip = (text or "").strip()
    try:
        network = ipaddress.ip_network(ip, strict=False)
    except ValueError:
        return None
    # Reject an IPv6 address with a zone index, because such addresses are only valid on one
    # machine.
    if "%" in ip:
        return None
    if network.prefixlen == network.max_prefixlen:
        return str(network.network_address)
    # Widen a small network to the prefix length in ``_NETWORK_PREFIX_BITS``, because a small
    # network could identify a person.
    prefix = min(network.prefixlen, _NETWORK_PREFIX_BITS[network.version])
    return str(network.supernet(new_prefix=prefix))
