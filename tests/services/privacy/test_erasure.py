import json
from dataclasses import dataclass

import pytest

from core.errors import DomainError
from core.ids import random_hash_id
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from tests.support.commands.running import printed
from tests.support.images.pictures import photo
from tests.support.lists.acting import Acting, Person

COUNTS = ("subscriptions", "opt_outs_kept", "lists", "attachments", "keys", "jobs")


@dataclass
class Erasable:
    """A person whose name and address are words that nothing else holds."""

    name: str
    person: Person

    @property
    def words(self) -> list[str]:
        # Any spelling of them counts, and the address in parts too.
        return [self.name.lower(), self.person.address.partition("@")[0]]


@pytest.fixture
def erasable_person(stack: Stack, acting: Acting) -> Erasable:
    name = f"Ada{random_hash_id()}"
    person = acting.new_person(with_login=True)
    stack.query("UPDATE users SET name = %s WHERE id = %s", name, person.user_id)
    return Erasable(name, person)


@pytest.fixture
def open_list_id(acting: Acting, owner: Owner) -> int:
    return acting.new_list(owner, confirm_required=False, challenge=False)


def found_anywhere(stack: Stack, words: list[str]) -> set[str]:
    """Every column of any table, and every key in storage, that holds one of the words."""
    columns = stack.query(
        "SELECT quote_ident(table_schema) || '.' || quote_ident(table_name),"
        " quote_ident(column_name)"
        " FROM information_schema.columns JOIN information_schema.tables"
        " USING (table_catalog, table_schema, table_name)"
        " WHERE table_schema NOT IN ('pg_catalog', 'information_schema')"
        " AND table_type = 'BASE TABLE'"
    )
    assert len(columns) > 100
    # Every type has a text form; bytes are looked at as hex digits, and as the text that they are.
    pattern = "|".join([*words, *(word.encode().hex() for word in words)])
    looks = (
        f"SELECT '{table}.{column}' WHERE EXISTS (SELECT 1 FROM {table} WHERE {column}::text ~* %s)"
        for table, column in columns
    )
    found = stack.query(" UNION ALL ".join(looks), *[pattern] * len(columns))
    return {str(column) for (column,) in found}


def live_a_little(stack: Stack, acting: Acting, owner: Owner, list_id: int, who: Erasable) -> str:
    """Leave something of the person in every table that can hold it; the hash id of a picture."""
    person, key = who.person, {"Authorization": f"Bearer {who.person.key}"}
    assert person.user_id is not None
    acting.reply("POST", f"/subscriptions/{list_id}/no-challenge", key=person.key)
    name = {"name": f"{who.name} Reader", "type": "gold"}
    acting.reply("PATCH", f"/lists/{list_id}/members/{person.user_id}", key=owner.key, json=name)
    confirming = acting.new_list(owner, confirm_required=True, challenge=False)
    acting.ask(confirming, person.address)
    acting.mail_link(confirming, person.user_id)
    texts = {"title": f"{who.name}'s own", "slug": f"by-{who.name.lower()}", "tagline": who.name}
    origin = f"https://{who.name.lower()}.example.com"
    body = {**texts, "redirect_origins": [origin], "confirmed_redirect": f"{origin}/welcome"}
    own = acting.client.post("/lists", headers=key, json=body).json()["data"]["id"]
    # Which is refused since the file has no such column.
    mapping = {"dry_run": "true", "mapping": json.dumps({who.name: "email"})}
    sent = {"file": (f"{who.name}.csv", b"E-mail\nsomebody@example.com\n")}
    waiting = {**key, "Prefer": "wait=30"}
    acting.client.post(f"/lists/{own}/imports", headers=waiting, params=mapping, files=sent)
    acting.ask(own, f"{random_hash_id()}@example.com")
    [(member,)] = stack.query("SELECT user_id FROM subscriptions WHERE list_id = %s", own)
    acting.remove(own, int(str(member)), person.key or "")
    acting.reply("DELETE", f"/lists/{own}", key=person.key)
    files = {"file": (f"{who.name}.jpg", photo())}
    headers = {**key, "Idempotency-Key": random_hash_id() * 2}
    uploaded = acting.client.post("/attachments?renditions=1", headers=headers, files=files)
    hash_id = str(uploaded.json()["data"]["hash_id"])
    words = {"alt_text": f"{who.name} at sea", "title": who.name, "tags": [who.name]}
    acting.client.patch(f"/attachments/{hash_id}", headers=key, json=words)
    denied = {"add_addresses": [person.address]}
    acting.reply("PATCH", "/deny-list", key=owner.key, json=denied)
    denied = {"add_domains": [f"{who.name.lower()}.example.org"]}
    acting.reply("PATCH", "/deny-list", key=person.key, json=denied)
    return hash_id


def test_erasure_leaves_no_trace_of_name_or_address_in_database_or_storage(
    stack: Stack, acting: Acting, owner: Owner, open_list_id: int, erasable_person: Erasable
) -> None:
    hash_id = live_a_little(stack, acting, owner, open_list_id, erasable_person)
    held = {"users.email", "users.name", "subscriptions.email", "subscriptions.name", "lists.title"}
    held |= {
        "imports.error",
        "lists.redirect_origins",
        "lists.confirmed_redirect",
        "attachments.alt_text",
        "attachments.title",
        "attachments.tags",
        "denied_entries.entry",
    }
    there = found_anywhere(stack, erasable_person.words)
    assert {f"public.{each}" for each in held} <= there
    # The feed tells of the person, and never holds what an erasure would have to take out of it.
    told = "SELECT 1 FROM feed_events WHERE data ->> 'user_id' = %s"
    assert stack.query(told, str(erasable_person.person.user_id))
    assert not {column for column in there if column.startswith("public.feed_")}
    assert any(key.startswith(f"renditions/{hash_id}/") for key in stack.stored())

    erased = printed(stack, "users", "erase", erasable_person.person.address.upper())
    assert erased.pop("user_id") == erasable_person.person.user_id
    assert erased == dict(zip(COUNTS, (2, 0, 1, 1, 1, 2), strict=True))
    assert found_anywhere(stack, erasable_person.words) == set()
    # Objects go after the commit, by a task of their own.
    eventually(
        lambda: not [key for key in stack.stored() if hash_id in key], what="the objects' end"
    )
    leftovers = stack.query(
        "SELECT count(*) FROM subscription_events WHERE (ip IS NOT NULL OR request_id IS NOT NULL)"
        " AND %s IN (user_id, actor_id)",
        erasable_person.person.user_id,
    )
    assert leftovers == [(0,)]


def test_member_history_keeps_anonymous_events_of_an_erased_person(
    stack: Stack, acting: Acting, owner: Owner, open_list_id: int, erasable_person: Erasable
) -> None:
    acting.reply(
        "POST", f"/subscriptions/{open_list_id}/no-challenge", key=erasable_person.person.key
    )
    acting.leave(open_list_id, key=erasable_person.person.key)
    erased = acting.erase(erasable_person.person.address)
    with stack.client(owner.key) as client:
        path = f"/lists/{open_list_id}/members/{erased.user_id}/history"
        history = client.get(path).json()["data"]["items"]
    told = [(each["action"], each["actor"], each["status_after"]) for each in history]
    assert told == [
        ("erased", "operator", "removed"),
        ("unsubscribed", "user", "unsubscribed"),
        ("subscribed", "user", "active"),
    ]
    assert {(each["ip"], each["request_id"]) for each in history} == {(None, None)}
    assert erased.opt_outs_kept == 1
    # The owner sees that somebody was there, and not who.
    [member] = shown(stack, owner, open_list_id, "removed")
    assert (member["email"], member["name"]) == (None, None)
    assert member["user"] == {"id": erased.user_id, "name": None}


@pytest.mark.parametrize("no", ["list", "mail"])
def test_opt_out_survives_erasure_when_the_address_signs_up_again(
    acting: Acting, owner: Owner, open_list_id: int, erasable_person: Erasable, no: str
) -> None:
    stack = acting.stack
    address, key = erasable_person.person.address, erasable_person.person.key
    free = acting.new_list(owner, confirm_required=False, challenge=False)
    for each in (open_list_id, free):
        acting.reply("POST", f"/subscriptions/{each}/no-challenge", key=key)
    if no == "list":
        acting.leave(open_list_id, key=key)
    else:
        acting.switch_mail(open_list_id, enabled=False, key=key)
    acting.erase(address)
    for _ in range(2):
        for each in (open_list_id, free):
            acting.ask(each, address.upper())
        [member] = shown(stack, owner, open_list_id, "pending")
        assert (member["email"], member["email_enabled"]) == (address, no == "list")
        assert shown(stack, owner, open_list_id, "active") == []
        path = f"/subscriptions/{open_list_id}/members/{member['user_id']}/email"
        error = acting.reply("PUT", path, key=owner.key, json={"enabled": True})
        assert error == (409, "subscription.opted_out")
        assert [each["email"] for each in shown(stack, owner, free, "active")] == [address]
        # Another round: what a second person of the address said no to outlives them too.
        acting.erase(address)


def shown(stack: Stack, owner: Owner, list_id: int, status: str) -> list[dict[str, object]]:
    with stack.client(owner.key) as client:
        page = client.get(f"/lists/{list_id}/subscriptions", params={"status": status})
    items: list[dict[str, object]] = page.json()["data"]["items"]
    return items


def test_new_holder_of_an_erased_address_can_lift_its_opt_out(
    stack: Stack, acting: Acting, owner: Owner, open_list_id: int, erasable_person: Erasable
) -> None:
    acting.leave(open_list_id, key=erasable_person.person.key)
    acting.erase(erasable_person.person.address)
    acting.ask(open_list_id, erasable_person.person.address)
    [(user_id,)] = stack.query(
        "SELECT id FROM users WHERE email = %s", erasable_person.person.address
    )
    path = f"/subscriptions/{open_list_id}/no-challenge"
    assert acting.reply("POST", path, key=stack.create_key(int(str(user_id)))) == (200, 1)
    assert [each["user_id"] for each in shown(stack, owner, open_list_id, "active")] == [user_id]
    assert stack.query("SELECT 1 FROM opt_outs WHERE list_id = %s", open_list_id) == []


def test_erasure_of_a_list_owner_is_rejected_and_names_the_lists(
    stack: Stack, acting: Acting, owner: Owner, open_list_id: int
) -> None:
    with pytest.raises(DomainError) as error:
        acting.erase(owner.email)
    assert error.value.code == "user.owns_lists"
    with stack.client(owner.key) as client:
        slug = client.get(f"/lists/{open_list_id}").json()["data"]["slug"]
    assert slug in error.value.message
    assert stack.query("SELECT 1 FROM users WHERE email = %s", owner.email) == [(1,)]
