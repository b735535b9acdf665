"""Measures the durations of API routes and maintenance tasks in a round of the growth benchmark.

A round runs each benchmark case on every stack. The stacks differ only in the size of their
databases.
"""

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

import httpx2

from benchmarks.measure import measure_seconds
from benchmarks.scale.maintenance_cases import DUE
from benchmarks.scale.sized_stack import SizedStack
from core import clock
from services.jobs import maintenance
from services.jobs.maintenance import MaintenanceKind
from services.jobs.sweep import sweep_jobs
from storage.resources import Resources
from tests.growth.route_cases import ROUTES, Group, RouteCase
from tests.support.http.replies import data
from tests.support.security import world as worlds
from tests.support.security.calls import CALLS

_Values = dict[str, Any]
# A benchmark case: its group, its name, and its duration on each stack, in seconds.
Measurement = tuple[Group, str, list[float]]
# The order in which a benchmark case runs on the stacks, as indexes of ``stacks``.
StackOrder = Sequence[int]

_MAINTENANCE_REPEATS = 2
_POLLING_REPEATS = 5


def measure_round(stacks: Sequence[SizedStack], order: StackOrder) -> Iterator[Measurement]:
    yield from _measure_routes(stacks, order)
    yield from _measure_maintenance(stacks, order)


def _measure_stacks(
    order: StackOrder, repeats: int, measure: Callable[[int], float]
) -> list[float]:
    """Measure a case on all stacks several times, and return the shortest duration per stack.

    Each repetition measures every stack once, so that other programs slow down all stacks equally.

    Args:
        measure: returns the duration on the stack with this index.
    """
    durations: list[list[float]] = [[] for _ in order]
    for _ in range(repeats):
        for index in order:
            durations[index].append(measure(index))
    return [min(stack_durations) for stack_durations in durations]


def _measure_routes(stacks: Sequence[SizedStack], order: StackOrder) -> Iterator[Measurement]:
    built_worlds = [
        worlds.build(sized.stack, sized.owner, list_id=sized.list_id) for sized in stacks
    ]
    with ExitStack() as opened:
        clients = [opened.enter_context(closing(world.client)) for world in built_worlds]
        for client in clients:
            client.timeout = httpx2.Timeout(120)
        values = [
            world.values | _list_more_values(sized, world)
            for sized, world in zip(stacks, built_worlds, strict=True)
        ]
        for operation, cases in ROUTES.items():
            for case in cases:
                name = f"{operation} {case.name}".strip()
                measure = partial(_measure_request, operation, case, clients, values)
                yield case.group, name, _measure_stacks(order, case.times, measure)


def _measure_request(
    operation: str, case: RouteCase, clients: list[httpx2.Client], values: list[_Values], index: int
) -> float:
    call, client = case.call or CALLS[operation], clients[index]
    request_values = values[index] | {"fresh": secrets.token_hex(8)}

    def send() -> httpx2.Response:
        if case.url:
            return client.get(request_values[case.url])
        return call.send(client, operation, request_values, **case.headers)

    replies: list[httpx2.Response] = []
    seconds = measure_seconds(lambda: replies.append(send()))
    expected_status = case.expected_status or call.own
    assert replies[0].status_code == expected_status, f"{operation}: {replies[0].text}"
    return seconds


def _list_more_values(sized: SizedStack, world: worlds.World) -> _Values:
    stack, user_id, list_id = sized.stack, sized.owner.user_id, sized.list_id

    def query_value(statement: str, *parameters: object) -> object:
        return stack.query(statement, *parameters)[0][0]

    numbers = sized.volume.numbers()
    imported = data(world.client.get(f"/imports/{world.values['import_id']}"))
    exported = data(
        world.client.post(f"/lists/{world.values['dst_list_id']}/exports", json={"kind": "members"})
    )
    attachment = data(world.client.get(f"/attachments/{world.values['hash_id']}"))
    return {
        "as_whom": "owner",
        "provider": "stockphoto",
        "event_id": query_value("SELECT max(id) / 2 FROM events"),
        "entry_id": query_value(
            "SELECT id FROM credit_entries WHERE user_id = %s AND seq = %s",
            user_id,
            numbers["largest_account"] // 2,
        ),
        "old_order": query_value(
            "SELECT id FROM payment_orders WHERE user_id = %s AND status = 'paid' LIMIT 1", user_id
        ),
        "open_filename": attachment["filename"],
        "subscription_id": numbers["half"] // 2,
        "member_email": query_value(
            "SELECT email FROM subscriptions WHERE list_id = %s AND status = 'active'"
            " AND id > %s ORDER BY id LIMIT 1",
            list_id,
            numbers["half"] // 3,
        ),
        "errors_url": imported["errors_url"],
        "export_url": exported["result"]["url"],
    }


def _measure_maintenance(stacks: Sequence[SizedStack], order: StackOrder) -> Iterator[Measurement]:
    for kind in sorted(maintenance.list_kinds(), key=lambda kind: kind.name):
        measure = partial(_measure_task, kind, stacks)
        yield (
            Group.MAINTENANCE,
            kind.name,
            _measure_stacks(order, _MAINTENANCE_REPEATS, measure),
        )
    polling_functions: dict[str, Callable[[Resources], object]] = {
        "sweep of jobs": sweep_jobs,
        "look for due maintenance": maintenance.send_due_tasks,
    }
    for name, function in polling_functions.items():
        measure = partial(_measure_polling, function, stacks)
        yield Group.MAINTENANCE, name, _measure_stacks(order, _POLLING_REPEATS, measure)


def _measure_task(kind: MaintenanceKind, stacks: Sequence[SizedStack], index: int) -> float:
    """Create rows for a maintenance task to process, and return the duration of the task."""
    sized = stacks[index]
    create_due_work = DUE[kind.name]
    if create_due_work is not None:
        sized.stack.query(create_due_work)
    return measure_seconds(lambda: kind.run(sized.worker.resources, clock.now()))


def _measure_polling(
    function: Callable[[Resources], object], stacks: Sequence[SizedStack], index: int
) -> float:
    return measure_seconds(lambda: function(stacks[index].worker.resources))
