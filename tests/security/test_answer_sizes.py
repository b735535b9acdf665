"""Tests that responses stay small, and that the API releases memory, if all limits are reached."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import httpx2
import pytest

from devstack.harness.free_ports import free_port
from devstack.harness.polling import eventually
from devstack.harness.process_memory import measure_memory
from devstack.harness.stack import Stack
from devstack.supervisor.programs import is_responding
from models import Plan
from services.access import sessions
from services.access.quotas import count_row_bytes
from services.subscriptions.fields import MAX_FIELDS
from services.subscriptions.filters.member_filter import MAX_FILTER_BYTES
from services.subscriptions.segments import MAX_SEGMENTS_PER_LIST
from tests.support.credits import credits
from tests.support.http.openapi import openapi_document
from tests.support.http.replies import data
from tests.support.imports.bulk import add
from tests.support.lists.segments import filter_of_bytes
from tests.support.lists.subscribers import new_address, new_list
from tests.support.people.quotas import MB
from tests.support.people.visiting import SESSION_COOKIE
from tests.support.security.calls import CALLS, Call
from tests.support.security.console_calls import CONSOLE_CALLS
from tests.support.security.world import World, build
from tests.support.stack.held_memory import await_stable_memory

pytestmark = pytest.mark.tier("processes")

MAX_ANSWER_BYTES = 4_000_000
MAX_MEMORY_GROWTH_BYTES = 100 * MB
# The limits of the free plan.
MAX_LISTS = 5
MAX_MEMBERS = 1000
LARGEST_FILTER = json.dumps(filter_of_bytes(MAX_FILTER_BYTES))
# All GET operations except those for stock photos, because the stock photo provider determines the
# size of a response with photos.
READ_CALLS = {
    name: call
    for name, call in {**CALLS, **CONSOLE_CALLS}.items()
    if name.startswith("GET ") and "/photos/" not in name
}


def test_responses_stay_small_and_memory_is_released_for_account_at_all_limits(
    stack: Stack,
) -> None:
    world = build(stack)
    port = free_port()
    # Start a process that isn't forked, because a forked process shares memory with others.
    api = stack.start(
        "api-at-bounds",
        *("serve", "--port", str(port)),
        ready=lambda: is_responding(port, "/healthz"),
        port=port,
    )
    with stack.resources.unit_of_work() as uow:
        cookie = sessions.begin_session(uow, world.owner.person_id)
    headers = {"Authorization": f"Bearer {world.owner.key}"}
    url = f"http://127.0.0.1:{port}"
    api_client = httpx2.Client(base_url=url, headers=headers, timeout=60)
    browser = httpx2.Client(base_url=url, cookies={SESSION_COOKIE: cookie}, timeout=60)
    with api_client, browser:
        read_all(world, api_client, browser)
        memory_before = await_stable_memory(lambda: measure_memory(api.pid))
        fill(world)
        sizes = read_all(world, api_client, browser)
        too_large = {name: size for name, size in sizes.items() if size > MAX_ANSWER_BYTES}
        assert too_large == {}
        # Check that the account has about as many members as its limits permit.
        assert sizes["GET /lists/{list_id}/subscriptions"] > MAX_ANSWER_BYTES * 0.9
        with ThreadPoolExecutor(4) as threads:
            largest = [name for name, size in sizes.items() if size > MAX_ANSWER_BYTES / 2]
            list(threads.map(partial(read, world, api_client), 4 * largest))
        eventually(
            lambda: measure_memory(api.pid) <= memory_before + MAX_MEMORY_GROWTH_BYTES,
            within=30,
            what=f"the return of the API to {memory_before / MB:.0f} MB",
        )


def read_all(world: World, api_client: httpx2.Client, browser: httpx2.Client) -> dict[str, int]:
    """Call each operation that only reads, with the largest page size.

    Return the size of each response.
    """
    return {
        name: read(world, browser if " /console" in name else api_client, name)
        for name in READ_CALLS
    }


def read(world: World, client: httpx2.Client, name: str) -> int:
    reply = with_largest_limit(name, READ_CALLS[name]).send(client, name, world.values)
    assert reply.status_code < 500, (name, reply.text)
    return len(reply.content)


def with_largest_limit(name: str, call: Call) -> Call:
    operation: dict[str, Any] = openapi_document()["paths"].get(name.split(" ")[1], {})
    parameters = operation.get("get", {}).get("parameters", [])
    if not any(each.get("name") == "limit" for each in parameters):
        return call
    return replace(call, query={**call.query, "limit": 1000})


def fill(world: World) -> None:
    """Create as many rows in the account as its limits permit.

    Use SQL statements where API calls would take too long.
    """
    stack = world.stack
    client = world.client
    owner_id = world.owner.user_id
    list_id = world.values["list_id"]
    user_id = world.values["user_id"]
    names = [f"field_{number}" for number in range(MAX_FIELDS - 1)]
    fields = [{"key": name, "label": name, "type": "text"} for name in names]
    ids = [data(client.post("/fields", json=each))["id"] for each in fields]
    data(add(client, list_id, *(new_address() for _ in range(MAX_MEMBERS - 3))))
    values = json.dumps({str(each): "😀" * 1000 for each in ids})
    stack.query("UPDATE subscriptions SET fields = %s WHERE list_id = %s", values, list_id)
    for _ in range(MAX_LISTS - 3):
        new_list(client)
    texts = {"description": "😀" * 5000, "tagline": "😀" * 500, "consent_wording": "😀" * 2000}
    for each in data(client.get("/lists"))["items"]:
        data(client.patch(f"/lists/{each['id']}", json=texts))
    stack.query(
        "INSERT INTO segments (list_id, name, folded, filter)"
        " SELECT id, n::text, n::text, %s FROM lists, generate_series(2, %s) AS n"
        " WHERE user_id = %s",
        *(LARGEST_FILTER, MAX_SEGMENTS_PER_LIST, owner_id),
    )
    stack.query(
        "INSERT INTO bulk_actions (list_id, user_id, filter, action, status, finished_at)"
        " SELECT %s, %s, %s, 'email_off', 'succeeded', now() FROM generate_series(1, 1000)",
        *(list_id, owner_id, LARGEST_FILTER),
    )
    stack.query(
        "INSERT INTO exports (list_id, user_id, kind, filter, object_prefix, finished_at)"
        " SELECT %s, %s, 'members', %s, 'none/' || %s || n, now()"
        " FROM generate_series(1, 1000) AS n",
        *(list_id, owner_id, LARGEST_FILTER, world.mark),
    )
    # The responses of the webhook receiver consist of bytes 0x01, each of which takes six bytes in
    # JSON.
    stack.query(
        "INSERT INTO webhook_deliveries (endpoint_id, event_type, status, answer)"
        " SELECT %s, 'webhook.test', 'delivered', decode(repeat('01', 4096), 'hex')"
        " FROM generate_series(1, 1000)",
        world.values["endpoint_id"],
    )
    stack.query(
        "INSERT INTO tags (list_id, name, folded)"
        " SELECT %s, rpad(n::text, 40, '😀'), n::text FROM generate_series(1, 9000) AS n",
        list_id,
    )
    insert_copies(
        stack,
        "attachments",
        "hash_id = %s",
        world.values["hash_id"],
        hash_id="md5(n::text || hash_id)",
        filename="md5(n::text || hash_id) || '.webp'",
        alt_text="repeat('😀', 2000)",
        tags="array_fill(repeat('😀', 64), ARRAY[50])",
    )
    columns = [{"name": "😀" * 150 + str(n), "becomes": "ignored"} for n in range(500)]
    import_columns = {"columns": columns, "ignored_columns": [each["name"] for each in columns]}
    insert_copies(
        stack,
        "imports",
        "id = %s",
        world.values["import_id"],
        100,
        object_prefix="object_prefix || n",
        # The copies contain no encryption key, because the key of the original import can decrypt
        # only the file of the original import.
        wrapped_key="NULL::bytea",
        wrapped_by="NULL::text",
        columns=literal(import_columns),
    )
    insert_copies(
        stack,
        "jobs",
        "id = %s",
        world.values["job_id"],
        100,
        result=f"result || {literal(import_columns)}",
    )
    insert_copies(
        stack,
        "subscription_events",
        "id = (SELECT max(id) FROM subscription_events WHERE user_id = %s)",
        user_id,
        changed="array_fill('fields.' || repeat('a', 40), ARRAY[50])",
    )
    insert_copies(
        stack,
        "events",
        "id = (SELECT max(id) FROM events WHERE user_id = %s)",
        owner_id,
        detail="jsonb_build_object('key_id', repeat('1', 1900))",
        user_agent="repeat('\"', 300)",
    )
    insert_copies(
        stack,
        "feed_events",
        "id = (SELECT max(id) FROM feed_events WHERE user_id = %s)",
        owner_id,
        data="jsonb_build_object('key_id', repeat('1', 1900))",
    )
    credits.grant(stack, owner_id, "1000")
    stack.query(
        "SELECT credit_consume(%s, NULL, 1, 'charge ' || n, %s, NULL, NULL, NULL)"
        " FROM generate_series(1, 600) AS n",
        *(owner_id, json.dumps({"note": "x" * 8000})),
    )
    stack.query("UPDATE users SET plan = %s WHERE id = %s", Plan.FREE, owner_id)
    used = data(client.get("/users/me"))["quotas"]["storage_mb"]["used"]
    assert used * MB > (MAX_LISTS * MAX_SEGMENTS_PER_LIST + 2000) * count_row_bytes(
        json.loads(LARGEST_FILTER)
    )


def literal(value: object) -> str:
    """Return a SQL expression for a JSON value."""
    return f"'{json.dumps(value, ensure_ascii=False)}'::jsonb"


def insert_copies(
    stack: Stack,
    table: str,
    condition: str,
    value: object,
    count: int = 1000,
    **changed_columns: str,
) -> None:
    """Add copies of a table's row, each with a new id.

    ``changed_columns``: maps the name of each column that differs in the copied rows to a SQL
    expression for the column's new value.
    """
    rows = stack.query(
        "SELECT attname::text FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
        " AND NOT attisdropped AND attname <> 'id'",
        table,
    )
    columns = [str(column) for (column,) in rows]
    values = ", ".join(changed_columns.get(each, each) for each in columns)
    stack.query(
        f"INSERT INTO {table} ({', '.join(columns)}) SELECT {values} FROM {table},"
        f" generate_series(1, {count}) AS n WHERE {condition}",
        value,
    )
