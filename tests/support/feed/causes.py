"""Causes a feed event of each type through the API or the sandbox, and reads the feed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2

from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from services.feed.catalogue import FeedEventType
from services.senders.intake import MAX_REFUSED_CALLS_PER_HOUR
from tests.support.credits import credits, topups
from tests.support.credits.payments import SandboxPayments
from tests.support.http.replies import data, problem, send
from tests.support.imports.bulk import (
    build_address_file,
    build_addresses,
    export_rows,
    import_members_file,
)
from tests.support.lists.subscribers import Reader, new_address, new_list, subscribe
from tests.support.people.oauth import log_in, register
from tests.support.senders.mailings import new_mailing
from tests.support.senders.own_senders import new_sender
from tests.support.senders.posting import bounce, deliver, delivery_for, reject_calls, report

Event = dict[str, Any]


@dataclass(frozen=True)
class Scene:
    """The people, clients and sandbox that an action in ``ACTIONS`` needs.

    Before the action, the owner has one list, and the reader hasn't joined any list.
    """

    stack: Stack
    owner: Owner
    client: httpx2.Client
    stranger: httpx2.Client
    reader: Reader
    sandbox: SandboxPayments
    list_id: int

    @property
    def member(self) -> str:
        """Return the API path of the reader's membership in the list."""
        return f"/subscriptions/{self.list_id}/members/{self.reader.user_id}"


def page(client: httpx2.Client, **query: Any) -> dict[str, Any]:
    return dict(data(client.get("/events", params=query)))


def events(client: httpx2.Client, count: int = 1, **query: Any) -> list[Event]:
    """Wait until the owner's feed contains ``count`` events, and return the events.

    An event appears in the feed only after all older transactions have ended, so a transaction of
    another test can delay the event.
    """

    def find_events() -> list[Event]:
        items: list[Event] = page(client, limit=1000, **query)["items"]
        return items if len(items) >= count else []

    return eventually(find_events, what=f"{count} events")


def _subscribe(scene: Scene) -> None:
    data(subscribe(scene.stranger, scene.list_id, new_address()))


def _confirm(scene: Scene) -> None:
    data(scene.client.patch(f"/lists/{scene.list_id}", json={"confirm_required": True}))
    data(subscribe(scene.stranger, scene.list_id, scene.reader.email))
    scene.reader.joins(scene.list_id)


def _leave(scene: Scene) -> None:
    scene.reader.joins(scene.list_id).leaves(scene.list_id)


def _switch_email_off(scene: Scene) -> None:
    scene.reader.joins(scene.list_id).wants_mail(scene.list_id, False)


def _switch_email_on(scene: Scene) -> None:
    _switch_email_off(scene)
    scene.reader.wants_mail(scene.list_id, True)


def _remove(scene: Scene) -> None:
    scene.reader.joins(scene.list_id)
    assert data(scene.client.delete(scene.member)) == 1


def _transfer(scene: Scene) -> None:
    scene.reader.joins(scene.list_id)
    target = new_list(scene.client)["id"]
    reply = scene.client.post(f"{scene.member}/transfer", params={"dst_list_id": target})
    assert data(reply) == 1


def _change(scene: Scene) -> None:
    scene.reader.joins(scene.list_id)
    path = f"/lists/{scene.list_id}/members/{scene.reader.user_id}"
    data(scene.client.patch(path, json={"type": "gold"}))


def _import(scene: Scene) -> None:
    import_members_file(scene.client, scene.list_id, build_address_file(*build_addresses(5)))


def _export(scene: Scene) -> None:
    export_rows(scene.client, scene.list_id)


def _undo_import(scene: Scene) -> None:
    result = import_members_file(
        scene.client, scene.list_id, build_address_file(*build_addresses(5))
    )
    assert data(scene.client.delete(f"/imports/{result['import_id']}/members")) == 5


def _upload(scene: Scene) -> None:
    data(send(scene.client))


def _fail_upload(scene: Scene) -> None:
    reply = send(scene.client, b"\x89PNG\r\n\x1a\n")
    problem(reply, 422, reply.json()["code"])


def _delete_upload(scene: Scene) -> None:
    record = data(send(scene.client))
    assert data(scene.client.delete(f"/attachments/{record['hash_id']}")) == 1


def _pay_order(scene: Scene) -> int:
    return topups.create_paid_order(scene.stack, scene.client, scene.sandbox)


def _refund(scene: Scene) -> None:
    order_id = _pay_order(scene)
    scene.sandbox.refund(order_id)
    topups.await_status(scene.stack, order_id, "refunded")


def _dispute(scene: Scene) -> None:
    order_id = _pay_order(scene)
    scene.sandbox.dispute(order_id)
    topups.await_status(scene.stack, order_id, "disputed")


def _review(scene: Scene) -> None:
    order_id = topups.create_order(scene.client)["order_id"]
    scene.sandbox.alter(order_id, amount=499)
    scene.sandbox.pay(order_id)
    topups.await_status(scene.stack, order_id, "review")


def _spend_most_credits(scene: Scene) -> None:
    credits.grant(scene.stack, scene.owner.user_id, "150")
    data(credits.consume(scene.client, "60"))


def _make_key(scene: Scene) -> None:
    data(scene.client.post("/apikeys", json={"name": "one"}))


def _end_key(scene: Scene) -> None:
    key = data(scene.client.post("/apikeys", json={"name": "one"}))
    assert data(scene.client.delete(f"/apikeys/{key['id']}")) == 1


def _grant_access(scene: Scene) -> None:
    person = log_in(scene.stack, scene.owner)
    with person.browser:
        register(scene.stack).tokens(person, "credit.read")


def _revoke_access(scene: Scene) -> None:
    _grant_access(scene)
    [grant] = data(scene.client.get("/grants"))
    assert data(scene.client.delete(f"/grants/{grant['id']}")) == 1


def _fail_sender(scene: Scene) -> dict[str, Any]:
    sender = new_sender(scene.client)
    reject_calls(scene.client, sender, count=MAX_REFUSED_CALLS_PER_HOUR)
    return sender


def _recover_sender(scene: Scene) -> None:
    sender = _fail_sender(scene)
    events(scene.client, type=FeedEventType.SENDER_FAILING.value)
    deliver(scene.stack, scene.client, sender, report("delivered", email=new_address()))


def _bounce_mailing(scene: Scene) -> None:
    scene.reader.joins(scene.list_id)
    mailing_id = new_mailing(scene.stack, scene.list_id, rows=500, figures={"hard_bounced": 24})
    delivery_id = delivery_for(scene.stack, scene.list_id, scene.reader.user_id, mailing_id)
    deliver(scene.stack, scene.client, new_sender(scene.client), bounce(delivery_id=delivery_id))


_TYPE = FeedEventType
# Maps each event type to an action after which the owner's newest event has this type.
ACTIONS: Mapping[FeedEventType, Callable[[Scene], object]] = {
    _TYPE.SUBSCRIPTION_CREATED: _subscribe,
    _TYPE.SUBSCRIPTION_CONFIRMED: _confirm,
    _TYPE.SUBSCRIPTION_LEFT: _leave,
    _TYPE.SUBSCRIPTION_EMAIL_OFF: _switch_email_off,
    _TYPE.SUBSCRIPTION_EMAIL_ON: _switch_email_on,
    _TYPE.SUBSCRIPTION_REMOVED: _remove,
    _TYPE.SUBSCRIPTION_TRANSFERRED: _transfer,
    _TYPE.SUBSCRIPTION_CHANGED: _change,
    _TYPE.IMPORT_ENDED: _import,
    _TYPE.EXPORT_ENDED: _export,
    _TYPE.BULK_ENDED: _undo_import,
    _TYPE.ATTACHMENT_READY: _upload,
    _TYPE.ATTACHMENT_FAILED: _fail_upload,
    _TYPE.ATTACHMENT_DELETED: _delete_upload,
    _TYPE.ORDER_PAID: _pay_order,
    _TYPE.ORDER_REFUNDED: _refund,
    _TYPE.ORDER_DISPUTED: _dispute,
    _TYPE.ORDER_REVIEW: _review,
    _TYPE.CREDITS_LOW: _spend_most_credits,
    _TYPE.KEY_CREATED: _make_key,
    _TYPE.KEY_ENDED: _end_key,
    _TYPE.GRANT_CREATED: _grant_access,
    _TYPE.GRANT_ENDED: _revoke_access,
    _TYPE.SENDER_FAILING: _fail_sender,
    _TYPE.SENDER_RECOVERED: _recover_sender,
    _TYPE.MAILING_ALARM: _bounce_mailing,
}
