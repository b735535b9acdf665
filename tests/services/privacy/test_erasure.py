import json
from dataclasses import dataclass

import pytest

from core.errors import DomainError
from core.ids import random_hash_id
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from tests.support.commands.running import run_json_command
from tests.support.images.pictures import photo
from tests.support.lists.acting import ListActions, Person

COUNT_NAMES = ("subscriptions", "opt_outs_kept", "lists", "attachments", "keys", "jobs")


@dataclass
class Erasable:
    """A person whose name and address consist of words that occur nowhere else."""

    name: str
    person: Person

    @property
    def words(self) -> list[str]:
        # Search for the local part of the address, because an erasure must not leave even a part of
        # the address. The database search for the person's name and address ignores case.
        return [self.name.lower(), self.person.address.partition("@")[0]]


@pytest.fixture
def erasable_person(stack: Stack, acting: ListActions) -> Erasable:
    name = f"Ada{random_hash_id()}"
    person = acting.new_person(with_login=True)
    stack.query("UPDATE users SET name = %s WHERE id = %s", name, person.user_id)
    return Erasable(name, person)


@pytest.fixture
def open_list_id(acting: ListActions, owner: Owner) -> int:
    return acting.new_list(owner, confirm_required=False, challenge=False)


def find_words(stack: Stack, words: list[str]) -> set[str]:
    """Return the table and column of all database values that contain one of the words."""
    columns = stack.query(
        "SELECT quote_ident(table_schema) || '.' || quote_ident(table_name),"
        " quote_ident(column_name)"
        " FROM information_schema.columns JOIN information_schema.tables"
        " USING (table_catalog, table_schema, table_name)"
        " WHERE table_schema NOT IN ('pg_catalog', 'information_schema')"
        " AND table_type = 'BASE TABLE'"
    )
    assert len(columns) > 100
    # Postgres can cast every column type to text. Postgres casts bytes to hex digits, so also
    # search for the hex digits of each word.
    pattern = "|".join([*words, *(word.encode().hex() for word in words)])
    queries = (
        f"SELECT '{table}.{column}' WHERE EXISTS (SELECT 1 FROM {table} WHERE {column}::text ~* %s)"
        for table, column in columns
    )
    rows = stack.query(" UNION ALL ".join(queries), *[pattern] * len(columns))
    return {str(column) for (column,) in rows}


def store_data_everywhere(
    stack: Stack, acting: ListActions, owner: Owner, list_id: int, erasable: Erasable
) -> str:
    """Store data of the person in every table that can contain personal data.

    Return the hash id of a stored picture.
    """
    person = erasable.person
    authorization = {"Authorization": f"Bearer {erasable.person.key}"}
    assert person.user_id is not None
    acting.reply("POST", f"/subscriptions/{list_id}/no-challenge", key=person.key)
    name = {"name": f"{erasable.name} Reader", "type": "gold"}
    acting.reply("PATCH", f"/lists/{list_id}/members/{person.user_id}", key=owner.key, json=name)
    confirming_list_id = acting.new_list(owner, confirm_required=True, challenge=False)
    acting.ask(confirming_list_id, person.address)
    acting.mail_link(confirming_list_id, person.user_id)
    texts = {
        "title": f"{erasable.name}'s own",
        "slug": f"by-{erasable.name.lower()}",
        "tagline": erasable.name,
    }
    origin = f"https://{erasable.name.lower()}.example.com"
    body = {**texts, "redirect_origins": [origin], "confirmed_redirect": f"{origin}/welcome"}
    own_list_id = acting.client.post("/lists", headers=authorization, json=body).json()["data"][
        "id"
    ]
    # The API rejects the import, because ``mapping`` names a column that the file doesn't have.
    mapping = {"dry_run": "true", "mapping": json.dumps({erasable.name: "email"})}
    upload = {"file": (f"{erasable.name}.csv", b"E-mail\nsomebody@example.com\n")}
    waiting_headers = {**authorization, "Prefer": "wait=30"}
    acting.client.post(
        f"/lists/{own_list_id}/imports", headers=waiting_headers, params=mapping, files=upload
    )
    acting.ask(own_list_id, f"{random_hash_id()}@example.com")
    [(member,)] = stack.query("SELECT user_id FROM subscriptions WHERE list_id = %s", own_list_id)
    acting.remove(own_list_id, int(str(member)), person.key or "")
    acting.reply("DELETE", f"/lists/{own_list_id}", key=person.key)
    files = {"file": (f"{erasable.name}.jpg", photo())}
    headers = {**authorization, "Idempotency-Key": random_hash_id() * 2}
    response = acting.client.post("/attachments?renditions=1", headers=headers, files=files)
    hash_id = str(response.json()["data"]["hash_id"])
    texts_of_picture = {
        "alt_text": f"{erasable.name} at sea",
        "title": erasable.name,
        "tags": [erasable.name],
    }
    acting.client.patch(f"/attachments/{hash_id}", headers=authorization, json=texts_of_picture)
    change = {"add_addresses": [person.address]}
    acting.reply("PATCH", "/deny-list", key=owner.key, json=change)
    change = {"add_domains": [f"{erasable.name.lower()}.example.org"]}
    acting.reply("PATCH", "/deny-list", key=person.key, json=change)
    return hash_id


def test_erasure_leaves_no_trace_of_name_or_address_in_database_or_storage(
    stack: Stack, acting: ListActions, owner: Owner, open_list_id: int, erasable_person: Erasable
) -> None:
    hash_id = store_data_everywhere(stack, acting, owner, open_list_id, erasable_person)
    expected_columns = {
        "users.email",
        "users.name",
        "subscriptions.email",
        "subscriptions.name",
        "lists.title",
    }
    expected_columns |= {
        "imports.error",
        "lists.redirect_origins",
        "lists.confirmed_redirect",
        "attachments.alt_text",
        "attachments.title",
        "attachments.tags",
        "denied_entries.entry",
    }
    columns = find_words(stack, erasable_person.words)
    assert {f"public.{each}" for each in expected_columns} <= columns
    # The feed has events about the person, but never contains data that must be erased.
    feed_query = "SELECT 1 FROM feed_events WHERE data ->> 'user_id' = %s"
    assert stack.query(feed_query, str(erasable_person.person.user_id))
    assert not {column for column in columns if column.startswith("public.feed_")}
    assert any(key.startswith(f"renditions/{hash_id}/") for key in stack.stored())

    erased = run_json_command(stack, "users", "erase", erasable_person.person.address.upper())
    assert erased.pop("user_id") == erasable_person.person.user_id
    assert erased == dict(zip(COUNT_NAMES, (2, 0, 1, 1, 1, 2), strict=True))
    assert find_words(stack, erasable_person.words) == set()
    # After the commit of the erasure, a separate task deletes the person's objects from the object
    # storage.
    eventually(
        lambda: not [key for key in stack.stored() if hash_id in key],
        what="the objects' end",
    )
    leftovers = stack.query(
        "SELECT count(*) FROM subscription_events WHERE (ip IS NOT NULL OR request_id IS NOT NULL)"
        " AND %s IN (user_id, actor_id)",
        erasable_person.person.user_id,
    )
    assert leftovers == [(0,)]


def test_member_history_keeps_anonymous_events_of_an_erased_person(
    stack: Stack, acting: ListActions, owner: Owner, open_list_id: int, erasable_person: Erasable
) -> None:
    acting.reply(
        "POST", f"/subscriptions/{open_list_id}/no-challenge", key=erasable_person.person.key
    )
    acting.leave(open_list_id, key=erasable_person.person.key)
    erased = acting.erase(erasable_person.person.address)
    with stack.client(owner.key) as client:
        path = f"/lists/{open_list_id}/members/{erased.user_id}/history"
        history = client.get(path).json()["data"]["items"]
    actions = [(each["action"], each["actor"], each["status_after"]) for each in history]
    assert actions == [
        ("erased", "operator", "removed"),
        ("unsubscribed", "user", "unsubscribed"),
        ("subscribed", "user", "active"),
    ]
    assert {(each["ip"], each["request_id"]) for each in history} == {(None, None)}
    assert erased.opt_outs_kept == 1
    # After the erasure, the list's owner sees that there was a member, but not who the member was.
    [member] = list_members(stack, owner, open_list_id, "removed")
    assert (member["email"], member["name"]) == (None, None)
    assert member["user"] == {"id": erased.user_id, "name": None}


@pytest.mark.parametrize("opt_out", ["list", "mail"])
def test_opt_out_survives_erasure_when_the_address_signs_up_again(
    acting: ListActions, owner: Owner, open_list_id: int, erasable_person: Erasable, opt_out: str
) -> None:
    stack = acting.stack
    address = erasable_person.person.address
    key = erasable_person.person.key
    other_list_id = acting.new_list(owner, confirm_required=False, challenge=False)
    for each in (open_list_id, other_list_id):
        acting.reply("POST", f"/subscriptions/{each}/no-challenge", key=key)
    if opt_out == "list":
        acting.leave(open_list_id, key=key)
    else:
        acting.switch_mail(open_list_id, enabled=False, key=key)
    acting.erase(address)
    for _ in range(2):
        for each in (open_list_id, other_list_id):
            acting.ask(each, address.upper())
        [member] = list_members(stack, owner, open_list_id, "pending")
        assert (member["email"], member["email_enabled"]) == (address, opt_out == "list")
        assert list_members(stack, owner, open_list_id, "active") == []
        path = f"/subscriptions/{open_list_id}/members/{member['user_id']}/email"
        error = acting.reply("PUT", path, key=owner.key, json={"enabled": True})
        assert error == (409, "subscription.opted_out")
        assert [each["email"] for each in list_members(stack, owner, other_list_id, "active")] == [
            address
        ]
        # Erase the person who signed up again after an erasure. The second erasure must not delete
        # the person's opt-out.
        acting.erase(address)


def list_members(stack: Stack, owner: Owner, list_id: int, status: str) -> list[dict[str, object]]:
    with stack.client(owner.key) as client:
        page = client.get(f"/lists/{list_id}/subscriptions", params={"status": status})
    items: list[dict[str, object]] = page.json()["data"]["items"]
    return items


def test_new_holder_of_an_erased_address_can_lift_its_opt_out(
    stack: Stack, acting: ListActions, owner: Owner, open_list_id: int, erasable_person: Erasable
) -> None:
    acting.leave(open_list_id, key=erasable_person.person.key)
    acting.erase(erasable_person.person.address)
    acting.ask(open_list_id, erasable_person.person.address)
    [(user_id,)] = stack.query(
        "SELECT id FROM users WHERE email = %s", erasable_person.person.address
    )
    path = f"/subscriptions/{open_list_id}/no-challenge"
    assert acting.reply("POST", path, key=stack.create_key(int(str(user_id)))) == (200, 1)
    assert [each["user_id"] for each in list_members(stack, owner, open_list_id, "active")] == [
        user_id
    ]
    assert stack.query("SELECT 1 FROM opt_outs WHERE list_id = %s", open_list_id) == []


def test_erasure_of_a_list_owner_is_rejected_and_names_the_lists(
    stack: Stack, acting: ListActions, owner: Owner, open_list_id: int
) -> None:
    with pytest.raises(DomainError) as error:
        acting.erase(owner.email)
    assert error.value.code == "user.owns_lists"
    with stack.client(owner.key) as client:
        slug = client.get(f"/lists/{open_list_id}").json()["data"]["slug"]
    assert slug in error.value.message
    assert stack.query("SELECT 1 FROM users WHERE email = %s", owner.email) == [(1,)]
