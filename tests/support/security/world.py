"""Creates data of one owner through the API, and computes digests of the owner's database rows.

Security tests compare the digests before and after a call of another user. If the digests are
equal, the other user has changed none of the owner's data.
"""

import random
import string
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import httpx2

from api.console.assets import ASSETS_BY_SERVED_NAME
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from models.declarative import Model
from storage.encryption import encrypt
from tests.support.credits.payments import SandboxPayments
from tests.support.credits.topups import await_status
from tests.support.http.replies import data, send
from tests.support.imports.bulk import await_job, build_address_file, import_members_file
from tests.support.lists.subscribers import new_list, trace_for
from tests.support.people.oauth import Program, log_in, register
from tests.support.senders.mailings import new_mailing

Values = dict[str, Any]
# Maps each table to its number of rows and a digest of the rows.
Rows = dict[str, object]
SHOP = "https://shop.example/done"


@dataclass
class World:
    """An owner, and the ids of the owner's data for the placeholders in API paths."""

    stack: Stack
    owner: Owner
    client: httpx2.Client
    # A random word that all names and addresses in the owner's data contain, and that occurs
    # nowhere else in the database. ``mark`` contains no digits, because the API rejects names that
    # may contain a telephone number.
    mark: str = field(
        default_factory=lambda: "mark" + "".join(random.choices(string.ascii_lowercase, k=12))
    )
    values: Values = field(default_factory=dict)
    # The most recent result of ``digest_all_rows`` or ``digest_owned_rows``, and the database
    # snapshot on which the result is based.
    rows: Rows = field(default_factory=dict)
    snapshot: object = None

    @property
    def list_ids(self) -> list[int]:
        return [self.values["list_id"], self.values["dst_list_id"], self.values["closing_list_id"]]


def build(stack: Stack, owner: Owner | None = None, *, list_id: int | None = None) -> World:
    """Create data of every kind for an owner, such as lists, members, images and orders."""
    owner = owner or stack.create_owner()
    world = World(stack, owner, stack.client(owner.key))
    # The first request for the balance creates the owner's credit account.
    data(world.client.get("/auxilia/credits/balance"))
    values = world.values
    values["mark"] = world.mark
    for name in ("list_id", "dst_list_id", "closing_list_id"):
        values[name] = new_list(world.client, title=f"{world.mark} {name}")["id"]
    values["list_id"] = list_id or values["list_id"]
    values["part"] = "thanks"
    _add_files(world)
    _add_members(world)
    _add_segment(world)
    _add_attachments(world)
    _add_orders(world)
    _add_grant(world)
    _add_endpoint(world)
    _add_sender(world)
    key = data(world.client.post("/apikeys", json={"name": world.mark}))
    values["key_id"], values["secret"] = key["id"], key["key"]
    values["asset"] = next(iter(ASSETS_BY_SERVED_NAME))
    return world


def _add_members(world: World) -> None:
    values, stack = world.values, world.stack
    for number, name in enumerate(("user_id", "leaving_user_id", "moving_user_id")):
        email = f"member{number}.{world.mark}@example.com"
        client = world.client
        import_members_file(client, values["list_id"], build_address_file(email))
        [(values[name],)] = stack.query("SELECT id FROM users WHERE email = %s", email)
    field = {"key": world.mark, "label": world.mark, "type": "text"}
    values["field_id"] = data(client.post("/fields", json=field))["id"]
    body = {"fields": {world.mark: world.mark}, "tags": [world.mark]}
    data(client.patch(f"/lists/{values['list_id']}/members/{values['user_id']}", json=body))
    [tag] = data(client.get(f"/lists/{values['list_id']}/tags"))["items"][:1]
    values["tag_id"] = tag["id"]
    values["trace_id"] = trace_for(stack, values["list_id"], values["user_id"])


def _watch_segment(world: World, segment_id: int) -> None:
    """Watch a segment, with a comparison tomorrow, so that no worker compares it during a test."""
    [(watch_id,)] = world.stack.query(
        "INSERT INTO segment_watches (segment_id, list_id, time_zone, hour, imports, due_at)"
        " VALUES (%s, %s, 'UTC', 0, false, now() + interval '1 day') RETURNING id",
        segment_id,
        world.values["list_id"],
    )
    person = world.values["user_id"]
    world.stack.query(
        "INSERT INTO segment_members (subscription_id, user_id, watch_id, entry, is_in)"
        " SELECT id, user_id, %s, 1, true FROM subscriptions WHERE user_id = %s AND list_id = %s",
        watch_id,
        person,
        world.values["list_id"],
    )
    world.stack.query(
        "INSERT INTO segment_changes (watch_id, user_id, change, entry, day)"
        " VALUES (%s, %s, 'entered', 1, CURRENT_DATE)",
        watch_id,
        person,
    )


def _add_segment(world: World) -> None:
    """Create a segment, and run a bulk action that changes none of the segment's members."""
    client, path = world.client, f"/lists/{world.values['list_id']}"
    body = {"name": world.mark, "filter": {"field": "name", "is": world.mark}}
    segment_id = data(client.post(f"{path}/segments", json=body))["id"]
    action = {"action": "untag", "value": "none", "segment_id": segment_id}
    job = data(client.post(f"{path}/members/bulk", json=action), 202)
    world.values["segment_id"] = segment_id
    _watch_segment(world, segment_id)
    # In benchmarks, the list has millions of members, so the bulk action may take two minutes.
    world.values["bulk_id"] = await_job(client, job["id"], within=120)["result"]["bulk_id"]


def _add_files(world: World) -> None:
    values, client = world.values, world.client
    content = build_address_file(f"first.{world.mark}@example.com", "no address")
    result = import_members_file(client, values["list_id"], content, name=f"{world.mark}.csv")
    values["import_id"] = result["import_id"]
    values["job_id"] = data(client.get("/jobs"))["items"][0]["id"]
    body = {"kind": "members"}
    export = data(client.post(f"/lists/{values['dst_list_id']}/exports", json=body))
    values["mailing_id"] = new_mailing(world.stack, int(values["list_id"]), rows=1)
    values["export_id"] = int(export["result"]["url"].split("/exports/")[1].split("/")[0])


def _add_attachments(world: World) -> None:
    values, client = world.values, world.client
    name = f"{world.mark}.png"
    public_image = data(send(client, name=name))
    encrypted_image = data(send(client, name=name, encrypted="1"))
    values["hash_id"] = public_image["hash_id"]
    values["closed_hash_id"] = encrypted_image["hash_id"]
    values["filename"] = encrypted_image["filename"]


def _add_orders(world: World) -> None:
    """Create three orders: one that isn't paid, one that is paid, and one without an owner."""
    order = {"amount": 5, "redirect_url": f"{SHOP}?of={world.mark}"}
    for name in ("order_id", "paid_order_id"):
        created_order = data(world.client.post("/auxilia/credits/topup", json=order))
        world.values[name] = created_order["order_id"]
    with closing(SandboxPayments(world.stack.sandbox_url)) as sandbox:
        sandbox.pay(created_order["payment_url"])
    await_status(world.stack, created_order["order_id"], "paid")
    with world.stack.client() as stranger:
        unclaimed = data(stranger.post("/auxilia/credits/topup", json=order))
    world.values["claim_token"] = unclaimed["claim_token"]


def _add_endpoint(world: World) -> None:
    """Create a paused webhook endpoint with one delivery.

    No server listens on the port in the endpoint's URL, so no delivery succeeds.
    """
    client, url = world.client, f"http://127.0.0.1:9/{world.mark}"
    body = {"url": url, "types": ["order.disputed"]}
    endpoint = data(client.post("/webhook-endpoints", json=body))
    path = f"/webhook-endpoints/{endpoint['id']}"
    world.values["endpoint_id"] = endpoint["id"]
    world.values["delivery_id"] = data(client.post(f"{path}/test"))["id"]
    data(client.patch(path, json={"state": "paused"}))


def _add_sender(world: World) -> None:
    """Create a sender of reports, and insert rows about the sender into the database."""
    values, stack = world.values, world.stack
    sender = data(world.client.post("/senders", json={"name": world.mark, "provider": "generic"}))
    values["sender_id"] = sender["id"]
    ids = {
        "sender": sender["id"],
        "list": values["list_id"],
        "user": values["user_id"],
        "mailing": values["mailing_id"],
        "mark": world.mark,
    }
    # Make the stored request body due tomorrow, so that no worker reads it during a test.
    data_key, wrapped = stack.resources.key_wrapper.create_key(world.mark)
    body = encrypt(b"{}", data_key, world.mark)
    stack.query(
        """
        INSERT INTO sender_bodies (sender_id, size, context, wrapped_key, wrapped_by, body, due_at)
        VALUES (%s, %s, %s, %s, %s, %s, now() + interval '1 day')
        """,
        *(sender["id"], len(body), world.mark, wrapped.data, wrapped.wrapped_by, body),
    )
    for row in (
        (
            "sender_counts (sender_id, hour, outcome, count)"
            " VALUES ({sender}, date_trunc('hour', now()), 'applied', 1)"
        ),
        (
            "sender_reports (sender_id, received_at, occurred_at, kind, outcome, code, mailing_id,"
            " list_id, user_id) VALUES ({sender}, now(), now(), 'complained', 'applied', '{mark}',"
            " {mailing}, {list}, {user})"
        ),
        (
            "mailing_marks (user_id, list_id, mailing_id, kind)"
            " VALUES ({user}, {list}, {mailing}, 'complained')"
        ),
        (
            "bounces (list_id, address_hmac, mailing_id, user_id, is_hard, mailing_at, bounced_at)"
            " VALUES ({list}, sha256('{mark}'), {mailing}, {user}, true, now(), now())"
        ),
        (
            "member_engagement (list_id, user_id, measured_since)"
            " VALUES ({list}, {user}, CURRENT_DATE) ON CONFLICT DO NOTHING"
        ),
        (
            "engagement_answers (list_id, user_id, is_allowed) VALUES ({list}, {user}, true)"
            " ON CONFLICT DO NOTHING"
        ),
        # In benchmarks, the list already has a row for today in ``sign_up_views``.
        (
            "sign_up_views (list_id, day, seen) VALUES ({list}, CURRENT_DATE, 1)"
            " ON CONFLICT DO NOTHING"
        ),
        "origin_days VALUES ({list}, CURRENT_DATE, '{mark}', '', '', '', 1, 0)",
        "landing_days VALUES ({list}, CURRENT_DATE, '{mark}', 1, 0)",
    ):
        stack.query(f"INSERT INTO {row.format(**ids)}")


def _add_grant(world: World) -> None:
    """Register two OAuth clients, the first of which gets access to the owner's credits."""
    values, stack = world.values, world.stack
    program, other_program = (register(stack, name=f"{world.mark} {n}") for n in range(2))
    tokens = obtain_tokens(world, program)
    values["access_token"] = tokens["access_token"]
    values["refresh_token"] = tokens["refresh_token"]
    values["grant_id"] = data(world.client.get("/grants"))[0]["id"]
    values["client_id"] = program.client_id
    values["other_client_id"] = other_program.client_id
    values["other_client_secret"] = other_program.secret


def obtain_tokens(world: World, program: Program) -> Any:
    person = log_in(world.stack, world.owner)
    with person.browser:
        return program.tokens(person, "credit.read")


# Columns that change with each request, such as the time at which an API key was last used.
_VOLATILE_COLUMNS = {"last_used_at"}
# Query the system catalogs directly, because the views in ``information_schema`` take at least a
# hundred times as long.
_TABLES = """
SELECT relname, array_agg(attname::text) FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
  AND attnum > 0 AND NOT attisdropped
GROUP BY relname
"""


def list_tables(stack: Stack) -> dict[str, list[str]]:
    return {str(name): list(columns) for name, columns in stack.query(_TABLES)}  # type: ignore[call-overload]


def digest_all_rows(world: World) -> Rows:
    """Return each table's number of rows and digest, except for the request logs of API keys."""
    stack = world.stack
    conditions = dict.fromkeys(list_tables(stack), "true")
    del conditions["api_requests"]
    return _cache_rows(world, lambda: _digest_rows(stack, conditions))


def digest_owned_rows(world: World) -> Rows:
    return _cache_rows(world, lambda: _digest_belongings(world))


def _cache_rows(world: World, digest: Callable[[], Rows]) -> Rows:
    """Call ``digest`` if the database has changed since the last call, and return the last result.

    If two snapshots of the database are equal, no transaction was committed between them.
    """
    [(snapshot,)] = world.stack.query("SELECT pg_current_snapshot()::text")
    if snapshot != world.snapshot:
        # Store the snapshot that was taken before the call of ``digest``. If a transaction is
        # committed while ``digest`` runs, the next call of ``_cache_rows`` takes a different
        # snapshot, and therefore computes the digests again.
        world.rows, world.snapshot = digest(), snapshot
    return world.rows


def _digest_belongings(world: World) -> Rows:
    names = f"\\y{world.owner.user_id}\\y|{world.mark}"
    references = build_reference_conditions(world.owner.user_id)
    # Leave out the request logs of API keys, because the API writes each log entry with a delay.
    del references["api_requests"]
    # These tables have no foreign keys.
    of_watches = (
        "watch_id IN (SELECT w.id FROM segment_watches AS w JOIN lists AS l ON l.id = w.list_id"
        f" WHERE l.user_id = {world.owner.user_id})"
    )
    references |= dict.fromkeys(("segment_members", "segment_changes"), of_watches)
    return digest_rows_about(world.stack, names, world.list_ids, references)


def build_reference_conditions(user_id: int) -> dict[str, str]:
    """Map each table to the SQL condition for rows with a foreign key to a row of the person.

    The function finds the tables in the SQLAlchemy models, so it includes tables that are added
    later.
    """
    conditions: dict[str, list[str]] = {}
    for table in Model.metadata.tables.values():
        for key in table.foreign_keys:
            owned = key.column.table
            if "user_id" in owned.columns and owned.name != "lists":
                owned_rows = f"SELECT {key.column.name} FROM {owned.name} WHERE user_id = {user_id}"
                conditions.setdefault(table.name, []).append(f"{key.parent.name} IN ({owned_rows})")
    return {name: " OR ".join(each) for name, each in conditions.items()}


def digest_rows_about(
    stack: Stack, names: str, list_ids: list[int], references: Mapping[str, str] | None = None
) -> Rows:
    """Return, per table, the number and a digest of the rows that belong to the given lists.

    Args:
        names: a regular expression. The result also includes each row whose JSON matches this
            expression, even if the row doesn't belong to one of the lists.
        references: maps tables to SQL conditions for further rows to include.
    """
    of_lists = f"= ANY(ARRAY{list_ids})"
    named = f"row_to_json(t)::text ~ '{names}'"
    conditions = {
        table: f"({named} OR list_id {of_lists})" if "list_id" in columns else named
        for table, columns in list_tables(stack).items()
    }
    conditions["lists"] = f"id {of_lists}"
    for table, condition in (references or {}).items():
        conditions[table] = f"({conditions[table]} OR {condition})"
    return _digest_rows(stack, conditions)


def _digest_rows(stack: Stack, conditions: dict[str, str]) -> Rows:
    ignored_columns = "".join(f" - '{column}'" for column in sorted(_VOLATILE_COLUMNS))
    parts = [
        f"SELECT '{table}', count(*), "
        f"md5(string_agg(md5((to_jsonb(t){ignored_columns})::text), '' "
        f"ORDER BY md5((to_jsonb(t){ignored_columns})::text))) FROM {table} t WHERE {condition}"
        for table, condition in conditions.items()
    ]
    rows = stack.query(" UNION ALL ".join(parts))
    return {str(table): (count, digest) for table, count, digest in rows}


def await_jobs(stack: Stack) -> None:
    # Ignore jobs that aren't due yet, because each erasure enqueues a job that is due in an hour.
    unfinished = "SELECT 1 FROM jobs WHERE status IN ('queued', 'running') AND run_at <= now()"
    eventually(lambda: not stack.query(unfinished), what="the end of all jobs")
