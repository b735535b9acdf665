"""Consent entries: records of how people joined lists."""

import ipaddress
from collections.abc import Mapping

from sqlalchemy import select

from models import ConsentEntry, ConsentHow, MailingList, Subscription
from storage.unit_of_work import UnitOfWork

# Acts of the owner. They don't show that the person agreed.
_BY_OWNER = frozenset({ConsentHow.OWNER, ConsentHow.IMPORT, ConsentHow.TRANSFER})
# How a person agreed, by the way in which they came. It does not apply to acts of the owner.
HOW_BY_VIA: Mapping[str, ConsentHow] = {
    "login": ConsentHow.LOGIN,
    "challenge": ConsentHow.FORM,
    "form": ConsentHow.FORM,
    "confirmation": ConsentHow.CONFIRMATION,
    "trace": ConsentHow.LINK,
    "one-click": ConsentHow.LINK,
    "page": ConsentHow.LINK,
    "import": ConsentHow.IMPORT,
    # A command of the operator acts in the owner's name.
    "command": ConsentHow.OWNER,
    # An undo of a bulk action makes its members active again.
    "bulk": ConsentHow.OWNER,
}
# The prefix lengths by IP version. The database function ``network_of_ip`` has the same.
_NETWORK_BITS = {4: 24, 6: 48}


def record_entry(
    uow: UnitOfWork,
    subscription: Subscription,
    how: ConsentHow,
    *,
    ip: str | None,
    url: str | None,
    browser: str | None,
) -> None:
    """Record that the person came onto the list now.

    Call it in the transaction of the act. Only a person's own act has an origin and a wording.
    """
    entry = ConsentEntry(list_id=subscription.list_id, user_id=subscription.user_id, how=how)
    if how not in _BY_OWNER:
        entry.ip = normalise_ip(ip)
        entry.url = url
        entry.browser = browser
        # The database fills in the list's current version. The session may hold an older one.
        of_list = MailingList.id == subscription.list_id
        version = select(MailingList.consent_wording_version).where(of_list)
        entry.wording_version = version.scalar_subquery()
    uow.session.add(entry)


def normalise_ip(text: str | None) -> str | None:
    """Return the IP address or network in the text, or ``None`` for any other text.

    Exports of Pressroom hold a network where the address was shortened.
    """
    ip = (text or "").strip()
    try:
        network = ipaddress.ip_network(ip, strict=False)
    except ValueError:
        return None
    if "%" in ip:  # The address names an interface of the machine that wrote it.
        return None
    if network.prefixlen == network.max_prefixlen:
        return str(network.network_address)
    # A smaller network than the usual one could identify a person, so the network is widened.
    prefix = min(network.prefixlen, _NETWORK_BITS[network.version])
    return str(network.supernet(new_prefix=prefix))
