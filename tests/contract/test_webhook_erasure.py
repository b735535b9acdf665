"""What an erasure takes of webhooks: the person's endpoints, and answers that may name them."""

from datetime import UTC, datetime, timedelta

from core.ids import random_hash_id
from services.feed.catalogue import FeedEventType
from tests.contract.replies import data
from tests.contract.subscribers import Reader
from tests.erasing import erase
from tests.hooks import CREATED, hooked, new_endpoint
from tests.merging import agree, merge
from tests.stack import Stack, eventually


def test_endpoints_of_an_erased_person_go_with_all_they_have(stack: Stack) -> None:
    owner = stack.new_owner()
    with hooked() as receiver, stack.client(owner.key) as client:
        endpoint = new_endpoint(client, receiver.url, FeedEventType.KEY_CREATED)
        data(client.post("/apikeys", json={"name": "an event"}))
        eventually(lambda: receiver.hooks, what="the event")
    erase(stack.resources, owner.email)
    for table, column in (
        ("webhook_endpoints", "id"),
        ("webhook_secrets", "endpoint_id"),
        ("webhook_deliveries", "endpoint_id"),
    ):
        assert stack.query(f"SELECT 1 FROM {table} WHERE {column} = %s", endpoint["id"]) == []


def test_answers_about_an_erased_member_are_blanked(
    stack: Stack, reader: Reader, list_id: int
) -> None:
    [(owner_id,)] = stack.query("SELECT user_id FROM lists WHERE id = %s", list_id)
    assert isinstance(owner_id, int)
    answers = "SELECT answer FROM webhook_deliveries WHERE endpoint_id = %s"
    with hooked() as receiver, stack.client(stack.new_key(owner_id)) as client:
        receiver.body = f"thanks, {reader.email}".encode()
        endpoint = new_endpoint(client, receiver.url, CREATED, list_id=list_id)
        reader.joins(list_id)
        eventually(
            lambda: (None,) not in (stack.query(answers, endpoint["id"]) or [(None,)]),
            what="the answer",
        )
        [hook] = receiver.hooks
        assert hook.content["data"]["data"]["email"] == reader.email
        erase(stack.resources, reader.email)
        assert stack.query(answers, endpoint["id"]) == [(None,)]


def test_answers_about_a_record_that_was_merged_are_blanked_with_the_account(
    stack: Stack, list_id: int
) -> None:
    [(owner_id,)] = stack.query("SELECT user_id FROM lists WHERE id = %s", list_id)
    assert isinstance(owner_id, int)
    answers = "SELECT answer FROM webhook_deliveries WHERE endpoint_id = %s"
    account, known_as = stack.new_owner(), f"{random_hash_id()}@example.com"
    with hooked() as receiver, stack.client(stack.new_key(owner_id)) as client:
        receiver.body = f"thanks, {known_as}".encode()
        data(client.put(f"/lists/{list_id}/members/{known_as}", json={}))
        endpoint = new_endpoint(client, receiver.url, CREATED, list_id=list_id)
        merge(stack, agree(stack.resources, account.user_id, known_as))
        # An event that tells of the record by its earlier id.
        since = {"since": (datetime.now(UTC) - timedelta(hours=1)).isoformat()}
        path = f"/webhook-endpoints/{endpoint['id']}/replay"
        eventually(lambda: data(client.post(path, json=since)), what="the event")
        eventually(
            lambda: (None,) not in (stack.query(answers, endpoint["id"]) or [(None,)]),
            what="the answer",
        )
        assert receiver.hooks[-1].content["data"]["data"]["email"] == known_as
        erase(stack.resources, known_as)
        left = stack.query(f"{answers} AND answer IS NOT NULL", endpoint["id"])
    assert left == []
