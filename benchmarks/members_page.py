"""Compares how fast the API and plain SQL read pages of a list with a million members."""

import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from dataclasses import fields as dataclass_fields
from typing import Any
from urllib.parse import urlencode

import psycopg2
from psycopg2.extensions import cursor

from benchmarks.large_list import create_large_list
from benchmarks.measure import (
    NO_BAR,
    Finding,
    TimeLimit,
    alternate,
    is_full_size,
    measure_seconds,
    median_and_spread,
)
from benchmarks.own_stack import own_stack
from benchmarks.statements import record_statements
from core.scopes import USER_SCOPES
from devstack import LOOPBACK
from devstack.harness.stack import Owner, Stack
from models import Tier
from services.access.caller import Caller
from services.paging import PageRequest
from services.subscriptions import lists
from services.subscriptions.filters import member_filter, searching
from services.subscriptions.members import member_pages
from services.subscriptions.members.member_pages import MemberFilters
from storage.database import Database, Statement

DEEP = 900_000
ROUNDS = 15 if is_full_size() else 7
PAGE_LIMIT = TimeLimit(factor=1.5, allowance_ms=3)
# A search also has to parse its filter.
SEARCH_LIMIT = TimeLimit(factor=1.5, allowance_ms=5)
MAX_SLOWDOWN_OF_FIRST = 1.2
# The maximum number of repetitions of a request or query per round. The result of a round is its
# fastest repetition, because other programs can only slow down a repetition. A round ends after
# ``ROUND_SECONDS``, even if the maximum number of repetitions isn't reached.
CALLS = 15
ROUND_SECONDS = 0.3


@dataclass(frozen=True)
class Page:
    """A page of members, whose response time is measured over HTTP and in the service function."""

    name: str
    query: dict[str, Any] = field(default_factory=dict)
    filters: MemberFilters = MemberFilters()  # noqa: RUF009 - the class is frozen
    filter: dict[str, Any] | None = None

    @property
    def paging(self) -> dict[str, Any]:
        """Return the query parameters for the position and the size of the page."""
        names = {attribute.name for attribute in dataclass_fields(PageRequest)}
        return {name: value for name, value in self.query.items() if name in names}

    def path(self, list_id: int) -> str:
        searched = {} if self.filter is None else {"filter": json.dumps(self.filter)}
        return f"/lists/{list_id}/subscriptions?{urlencode(self.query | searched)}"


def _pages(deep: int, address: str) -> list[Page]:
    return [
        Page("first"),
        Page("offset 900,000", {"offset": DEEP}),
        Page("cursor after 900,000", {"cursor": str(deep)}),
        _by_email("email, whole", address),
        _by_email("email, few begin so", address.partition("@")[0][:-1] + "*"),
        _by_email("email, many begin so", address.partition(".")[0] + "*"),
        Page("premium", {"premium": "1"}, MemberFilters(premium=True)),
        Page("not premium", {"premium": "0"}, MemberFilters(premium=False)),
        Page("gold", {"premium": "gold"}, MemberFilters(premium=Tier.GOLD)),
        Page("1,000 at a time", {"limit": 1000}),
    ]


def _searches() -> list[Page]:
    def search_page(name: str, **condition: object) -> Page:
        return Page(name, filter={"field": name.partition(",")[0], **condition})

    return [
        search_page("tag, of few", **{"is": "rare"}),
        search_page("tag, of many", **{"is": "common"}),
        search_page("tag, of all but few", is_not="rare"),
        search_page("fields.city, of few", **{"is": "utqiagvik"}),
        search_page("fields.city, a part of none", contains="xyz"),
        search_page("name, a part of none", contains="xyz"),
        search_page("email, a part of few", contains="adams12345"),
        search_page("joined_at, of none", before="2001-01-01"),
        search_page("status, of several", **{"in": ["active", "pending"]}),
    ]


def _by_email(name: str, email: str) -> Page:
    return Page(name, {"email": email}, MemberFilters(email=email))


def run() -> list[Finding]:
    with _members_stack() as stack, closing(psycopg2.connect(stack.owner_url)) as connection:
        connection.autocommit = True
        owner = stack.create_owner()
        list_id, fill_seconds = create_large_list(stack, owner, connection)
        with connection.cursor() as sql:
            sql.execute(_DEEPEST, (list_id, DEEP - 1))
            [(deep, address)] = sql.fetchall()
            bench = _Bench(stack, owner, list_id, sql)
            findings = [bench.compare(page) for page in [*_pages(deep, address), *_searches()]]
            return [*findings, bench.compare_depth(deep), _measure_indexes(sql, fill_seconds)]


@contextmanager
def _members_stack() -> Iterator[Stack]:
    with own_stack("members") as stack:
        stack.start_api(PRESSROOM_LOG_LEVEL="warning")
        yield stack


@dataclass
class _Bench:
    stack: Stack
    owner: Owner
    list_id: int
    sql: cursor

    def compare(self, page: Page) -> Finding:
        statements = self._statements(page)

        def baseline() -> None:
            for statement in statements:
                self.sql.execute(statement)
                self.sql.fetchall()

        with self._caller() as get:
            pairs = alternate(
                lambda: _run_round(lambda: get(page)), lambda: _run_round(baseline), rounds=ROUNDS
            )
        if page.filter is not None:
            return SEARCH_LIMIT.build_finding(f"members-search: {page.name}", pairs)
        return PAGE_LIMIT.build_finding(f"members-page: {page.name}", pairs)

    def compare_depth(self, deep: int) -> Finding:
        """Compare how fast the API returns the first page and a late page of a list."""
        first = Page("first")
        far = Page("deep", {"cursor": str(deep)})
        with self._caller() as get:
            pairs = alternate(
                lambda: _run_round(lambda: get(far)),
                lambda: _run_round(lambda: get(first)),
                rounds=ROUNDS,
            )
        ratio, spread = median_and_spread(
            [product_time / baseline_time for product_time, baseline_time in pairs]
        )
        bar = f"≤ {MAX_SLOWDOWN_OF_FIRST} × its first page"
        name = "members-page: cursor at depth"
        return Finding(name, ratio, "×", bar, ratio <= MAX_SLOWDOWN_OF_FIRST, spread)

    @contextmanager
    def _caller(self) -> Iterator[Callable[[Page], None]]:
        """Yield a function that fetches a page of members over one open HTTP connection."""
        headers = {"Authorization": f"Bearer {self.owner.key}"}
        with closing(http.client.HTTPConnection(LOOPBACK, self.stack.api_port, 60)) as connection:

            def get(page: Page) -> None:
                connection.request("GET", page.path(self.list_id), headers=headers)
                reply = connection.getresponse()
                body = reply.read()
                assert reply.status == http.client.OK, body

            yield get

    def _statements(self, page: Page) -> list[str]:
        """Return the SQL queries that the service runs for a page of members."""
        page_request = PageRequest(**{"limit": 50} | page.paging)
        if page.filter is None:
            caller = Caller(
                self.owner.account_id, self.owner.person_id, USER_SCOPES, unrestricted=True
            )
            original = self.stack.resources.database
            database = _RecordingDatabase(original.engine, original.connections, sql=self.sql)
            resources = replace(self.stack.resources, database=database)
            member_pages.read_member_page(
                resources, caller, self.list_id, page.filters, page_request
            )
            return database.statements
        return self._search_statements(page.filter, page_request)

    def _search_statements(self, filter_: dict[str, Any], page_request: PageRequest) -> list[str]:
        def search() -> None:
            with self.stack.resources.unit_of_work() as uow:
                parsed_filter = member_filter.read_filter(
                    uow, lists.get_list(uow, self.list_id), filter_
                )
                searching.search_members(uow, self.list_id, parsed_filter, page_request)

        return record_statements(self.stack.resources.database.engine, self.sql, search, "SELECT")


@dataclass(frozen=True)
class _RecordingDatabase(Database):
    """A database that records each SQL statement with its values."""

    sql: cursor
    statements: list[str] = field(default_factory=list)

    def rows(self, statement: Statement, **values: object) -> list[tuple[Any, ...]]:
        text = self.sql.mogrify(statement.text, {**statement.values, **values})
        self.statements.append(text.decode())
        return super().rows(statement, **values)


def _run_round(action: Callable[[], object]) -> float:
    times: list[float] = []
    while len(times) < CALLS and (len(times) < 3 or sum(times) < ROUND_SECONDS):
        times.append(measure_seconds(action))
    return min(times)


_DEEPEST = """
    SELECT id, email FROM subscriptions WHERE list_id = %s AND status = 'active'
    ORDER BY id DESC OFFSET %s LIMIT 1
"""
_SIZES = """
    SELECT relname, pg_size_pretty(pg_relation_size(pg_class.oid))
    FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
    WHERE indrelid = 'subscriptions'::regclass ORDER BY relname
"""


def _measure_indexes(sql: cursor, fill_seconds: float) -> Finding:
    """Return the size of the database indexes that speed up pages of members."""
    sql.execute(_SIZES)
    sizes: dict[str, str] = dict(sql.fetchall())
    sql.execute("SELECT pg_indexes_size('subscriptions') / 1048576")
    [(total,)] = sql.fetchall()
    details = {**sizes, "filled_in_s": round(fill_seconds, 1)}
    name = "members-page: indexes of 1.1 M rows"
    return Finding(name, total, "MB", NO_BAR, True, (total, total), details)
