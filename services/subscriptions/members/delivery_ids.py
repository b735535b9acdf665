"""Creates and verifies delivery ids, which identify a mail in the reports of mail providers.

A delivery id isn't secret, so a mail provider may log it. Pressroom accepts a delivery id only from
a sender that is registered for the list of the mail.

A delivery id consists of ``d1`` and 50 digits in base 32 (``0`` to ``9`` and ``a`` to ``v``), which
encode 31 bytes. The first 23 bytes are the payload: the list id, the mailing id and the user id
with 7 bytes each, and the mailing's day with 2 bytes. The last 8 bytes are the MAC of the payload.
"""

import hmac
import re
from collections.abc import Callable
from datetime import date, timedelta
from itertools import product
from typing import NamedTuple

from core import clock
from core.keyring import Keyring

DELIVERY_HEADER = "X-Pressroom-Delivery"
_PURPOSE = "delivery-id"
_VERSION = "d1"
_ID_BYTES = 7
_DAY_BYTES = 2
_PAYLOAD_BYTES = 3 * _ID_BYTES + _DAY_BYTES
_MAC_BYTES = 8
# A delivery id encodes 31 bytes, which are 248 bits. The 50 digits in base 32 can encode 250 bits,
# so the last two bits are unused.
_FORM = re.compile(rf"{_VERSION}([0-9a-v]{{50}})")
_UNUSED_BITS = 2
_DIGITS = "0123456789abcdefghijklmnopqrstuv"
# All 1,024 pairs of base-32 digits, in the order of their values. A pair encodes ten bits.
_DIGIT_PAIRS = tuple(map("".join, product(_DIGITS, repeat=2)))
_FIRST_DAY = date(2020, 1, 1)


class DeliveryId(NamedTuple):
    """A decoded delivery id. ``day`` is the day in UTC on which the mailing began.

    ``mailing_id`` is the id of the mailing, or of the job that sent the mail.
    """

    list_id: int
    user_id: int
    mailing_id: int
    day: date


def build_delivery_header(
    keyring: Keyring, *, list_id: int, user_id: int, job_id: int
) -> dict[str, str]:
    delivery = DeliveryId(list_id, user_id, mailing_id=job_id, day=clock.now().date())
    return {DELIVERY_HEADER: create_delivery_id(keyring, delivery)}


def create_delivery_id(keyring: Keyring, delivery: DeliveryId) -> str:
    create_for_user = build_delivery_id_factory(
        keyring, list_id=delivery.list_id, mailing_id=delivery.mailing_id, day=delivery.day
    )
    return create_for_user(delivery.user_id)


def build_delivery_id_factory(
    keyring: Keyring, *, list_id: int, mailing_id: int, day: date
) -> Callable[[int], str]:
    """Return a function that takes a user id, and is fast enough for a million recipients."""
    signer = keyring.signer(_PURPOSE, length=_MAC_BYTES)
    mailing_bytes = list_id.to_bytes(_ID_BYTES, "big") + mailing_id.to_bytes(_ID_BYTES, "big")
    day_bytes = (day - _FIRST_DAY).days.to_bytes(_DAY_BYTES, "big")
    # The list id and the mailing id together have 112 bits. A pair of digits encodes 10 bits, so
    # the first 110 bits fill 11 pairs. The last 2 bits belong to the twelfth pair.
    mailing_number = int.from_bytes(mailing_bytes, "big")
    beginning = _VERSION + _encode(mailing_number >> 2, pairs=11)
    last_bits = (mailing_number & 0b11).to_bytes(1, "big")

    def create_for_user(user_id: int) -> str:
        recipient_bytes = user_id.to_bytes(_ID_BYTES, "big") + day_bytes
        mac = signer.digest(mailing_bytes + recipient_bytes)
        number = int.from_bytes(last_bits + recipient_bytes + mac, "big")
        return beginning + _encode(number << _UNUSED_BITS, pairs=14)

    return create_for_user


# Optimization: delivery ids from pairs of digits (decision 17).
def _encode(number: int, *, pairs: int) -> str:
    return "".join(
        [_DIGIT_PAIRS[number >> shift & 0x3FF] for shift in range(10 * pairs - 10, -1, -10)]
    )


def read_delivery_id(keyring: Keyring, text: str) -> DeliveryId | None:
    """Return ``None`` if the delivery id is forged or malformed.

    Upper-case letters are accepted, because some mail servers change the case of addresses.
    """
    if not text.isascii() or (match := _FORM.fullmatch(text.lower())) is None:
        return None
    number = int(match[1], 32)
    if number % (1 << _UNUSED_BITS):
        # Unused bits must be 0, so that each delivery id has only one valid spelling.
        return None
    content = (number >> _UNUSED_BITS).to_bytes(_PAYLOAD_BYTES + _MAC_BYTES, "big")
    payload = content[:_PAYLOAD_BYTES]
    mac = content[_PAYLOAD_BYTES:]
    signer = keyring.signer(_PURPOSE, length=_MAC_BYTES)
    # Compare the MACs of all keys with ``mac``, even after a match, so that the duration doesn't
    # reveal which key matches.
    matches = [hmac.compare_digest(mac, expected) for expected in signer.digests(payload)]
    if not any(matches):
        return None
    list_id = int.from_bytes(payload[:_ID_BYTES], "big")
    mailing_id = int.from_bytes(payload[_ID_BYTES : 2 * _ID_BYTES], "big")
    user_id = int.from_bytes(payload[2 * _ID_BYTES : 3 * _ID_BYTES], "big")
    days = int.from_bytes(payload[3 * _ID_BYTES :], "big")
    return DeliveryId(list_id, user_id, mailing_id, _FIRST_DAY + timedelta(days=days))
