"""The console's page by which a webhook's events are sent again since a moment."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from services.webhooks.deliveries import MAX_COUNTED
from tests.consoles import (
    OwnerAtConsole,
    at_console,
    calls_of,
    forms_of,
    heading,
    shown,
    wrong_beside,
)
from tests.contract.replies import data
from tests.contract.subscribers import new_list
from tests.hooks import CREATED, LEFT, HookReceiver, event_ids, happen, hooked, new_endpoint
from tests.stack import Stack, eventually

HOOKS = "/console/programs/webhooks"


@pytest.fixture
def owner(stack: Stack) -> Iterator[OwnerAtConsole]:
    with at_console(stack) as found:
        yield found


@pytest.fixture
def receiver() -> Iterator[HookReceiver]:
    with hooked() as found:
        yield found


def since(moment: datetime) -> dict[str, str]:
    return {"day": moment.date().isoformat(), "time": f"{moment:%H:%M}"}


def an_hour_ago() -> dict[str, str]:
    return since(datetime.now(UTC) - timedelta(hours=1))


def test_events_since_a_moment_are_counted_and_sent_again_under_their_ids(
    owner: OwnerAtConsole, receiver: HookReceiver, stack: Stack
) -> None:
    endpoint = new_endpoint(owner.api, receiver.url)
    path = f"{HOOKS}/{endpoint['id']}"
    happen(stack, owner.owner, count=3)
    happen(stack, owner.owner, LEFT)
    eventually(lambda: len(receiver.hooks) >= 4, what="the events")
    assert f'href="{stack.api_url}{path}/replay"' in owner.see(path)

    text = owner.see(f"{path}/replay", **an_hour_ago())
    assert heading(text) == "Send events again"
    assert "Send 4 events again?" in text
    [call] = calls_of(text)
    assert call.path == f"/webhook-endpoints/{endpoint['id']}/replay"
    asked = datetime.fromisoformat(call.body["since"])
    assert since(asked) == since(asked.replace(second=0, microsecond=0))
    assert asked < datetime.now(UTC)

    receiver.hooks.clear()
    [(action, form), _] = forms_of(owner.visitor.get(f"{path}/replay", **an_hour_ago()))
    assert receiver.hooks == []
    reply = owner.visitor.client.post(action, data=form)
    assert reply.status_code == 303, reply.text
    text = shown(owner.visitor.client.get(reply.headers["location"]))
    assert "The events are sent again, the oldest first." in text
    everything = event_ids(stack, owner.owner)
    eventually(lambda: len(receiver.hooks) >= 4, what="all events again")
    assert receiver.ids == everything


def test_only_events_that_the_webhook_gets_are_counted(
    owner: OwnerAtConsole, receiver: HookReceiver, stack: Stack
) -> None:
    list_id, other_id = new_list(owner.api)["id"], new_list(owner.api)["id"]
    endpoint = new_endpoint(owner.api, receiver.url, CREATED, list_id=list_id)
    path = f"{HOOKS}/{endpoint['id']}/replay"
    happen(stack, owner.owner, LEFT, list_id=list_id)
    happen(stack, owner.owner, list_id=other_id)
    assert "Nothing of what it gets has happened since then." in owner.see(path, **an_hour_ago())
    happen(stack, owner.owner, list_id=list_id)
    assert "Send 1 event again?" in owner.see(path, **an_hour_ago())
    later = since(datetime.now(UTC) + timedelta(hours=1))
    assert "Nothing of what it gets has happened since then." in owner.see(path, **later)


def test_a_number_that_takes_long_to_tell_is_told_as_more_than_the_bound(
    owner: OwnerAtConsole, receiver: HookReceiver, stack: Stack
) -> None:
    endpoint = new_endpoint(owner.api, receiver.url, LEFT)
    data(owner.api.patch(f"/webhook-endpoints/{endpoint['id']}", json={"state": "paused"}))
    path = f"{HOOKS}/{endpoint['id']}/replay"
    stack.query(
        "INSERT INTO feed_events (user_id, type) SELECT %s, %s FROM generate_series(1, %s)",
        owner.owner.user_id,
        LEFT.value,
        MAX_COUNTED,
    )
    assert "Send 1,000 events again?" in owner.see(path, **an_hour_ago())
    happen(stack, owner.owner, LEFT)
    text = owner.see(path, **an_hour_ago())
    assert "Send more than 1,000 events again?" in text
    # Nothing can be sent to what is paused.
    assert "The webhook is not active" in text
    assert len(forms_of(owner.visitor.get(path, **an_hour_ago()))) == 1


def test_what_is_no_moment_is_told_beside_its_field(
    owner: OwnerAtConsole, receiver: HookReceiver, stack: Stack
) -> None:
    endpoint = new_endpoint(owner.api, receiver.url)
    path = f"{HOOKS}/{endpoint['id']}/replay"
    happen(stack, owner.owner)
    eventually(lambda: receiver.hooks, what="the event")
    form = forms_of(owner.visitor.get(path, **an_hour_ago()))[0][1]
    for field, typed in (
        ("day", {"day": ""}),
        ("day", {"day": "yesterday"}),
        ("day", {"day": "2026-02-30"}),
        ("time", {"time": "25:00"}),
        ("time", {"time": "noon"}),
        ("time", {"time": "14:00+02:00"}),
    ):
        asked = owner.visitor.get(path, **{**an_hour_ago(), **typed})
        assert wrong_beside(shown(asked, 422), field)
        reply = owner.visitor.client.post(path, data={**form, **typed})
        assert wrong_beside(shown(reply, 422), field)
    # Since the beginning of the last day that there is, nothing has happened.
    reply = owner.visitor.client.post(path, data={**form, "day": "9999-12-31"})
    assert "has happened since then" in wrong_beside(shown(reply, 422), "day")
    assert len(receiver.hooks) == 1


def test_another_owners_webhook_is_none(
    owner: OwnerAtConsole, receiver: HookReceiver, stack: Stack
) -> None:
    endpoint = new_endpoint(owner.api, receiver.url)
    with at_console(stack) as other:
        other.see(f"{HOOKS}/{endpoint['id']}/replay", 404)
