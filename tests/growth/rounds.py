"""A call of each route and a run of each kind of maintenance, at each size in turn."""

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
from tests.growth.route_cases import ROUTES, Group, RouteCase, call_of
from tests.support.http.replies import data
from tests.support.security import world as worlds

_Values = dict[str, Any]
# A case, and the seconds that it took at each size.
Timed = tuple[Group, str, list[float]]
Turns = Sequence[int]


def one_round(sized: Sequence[SizedStack], turns: Turns) -> Iterator[Timed]:
    yield from _routes(sized, turns)
    yield from _maintenance(sized, turns)


def _in_turns(turns: Turns, times: int, measure: Callable[[int], float]) -> list[float]:
    """The quickest of so many for each size; what else the machine does falls on all of them."""
    found: list[list[float]] = [[] for _ in turns]
    for _ in range(times):
        for turn in turns:
            found[turn].append(measure(turn))
    return [min(each) for each in found]


# -- routes --------------------------------------------------------------------------------------


def _routes(sized: Sequence[SizedStack], turns: Turns) -> Iterator[Timed]:
    made = [worlds.build(each.stack, each.owner, list_id=each.list_id) for each in sized]
    with ExitStack() as opened:
        clients = [opened.enter_context(closing(world.client)) for world in made]
        for client in clients:
            client.timeout = httpx2.Timeout(120)
        values = [
            world.values | _more_values(each, world)
            for each, world in zip(sized, made, strict=True)
        ]
        for operation, cases in ROUTES.items():
            for case in cases:
                name = f"{operation} {case.name}".strip()
                send = partial(_send, operation, case, clients, values)
                yield case.group, name, _in_turns(turns, case.times, send)


def _send(
    operation: str, case: RouteCase, clients: list[httpx2.Client], values: list[_Values], turn: int
) -> float:
    call, client = call_of(operation, case), clients[turn]
    fresh = values[turn] | {"fresh": secrets.token_hex(8)}

    def send() -> httpx2.Response:
        if case.url:
            return client.get(fresh[case.url])
        return call.send(client, operation, fresh, **case.headers)

    replies: list[httpx2.Response] = []
    seconds = measure_seconds(lambda: replies.append(send()))
    expected = case.own or call.own
    assert replies[0].status_code == expected, f"{operation}: {replies[0].text}"
    return seconds


def _more_values(sized: SizedStack, world: worlds.World) -> _Values:
    """Return what the cases name beside the things of the owner that tests know."""
    stack, user_id, list_id = sized.stack, sized.owner.user_id, sized.list_id

    def one(statement: str, *parameters: object) -> object:
        return stack.query(statement, *parameters)[0][0]

    half = sized.volume.numbers()["half"]
    made = data(world.client.get(f"/imports/{world.values['import_id']}"))
    exported = data(
        world.client.post(f"/lists/{world.values['dst_list_id']}/exports", json={"kind": "members"})
    )
    return {
        "as_whom": "owner",
        "provider": "stockphoto",
        "event_id": one("SELECT max(id) / 2 FROM events"),
        "entry_id": one(
            "SELECT id FROM credit_entries WHERE user_id = %s AND seq = %s",
            user_id,
            sized.volume.numbers()["largest_account"] // 2,
        ),
        "old_order": one(
            "SELECT id FROM payment_orders WHERE user_id = %s AND status = 'paid' LIMIT 1", user_id
        ),
        "open_filename": data(world.client.get(f"/attachments/{world.values['hash_id']}"))[
            "filename"
        ],
        "subscription_id": half // 2,
        "member_email": one(
            "SELECT email FROM subscriptions WHERE list_id = %s AND status = 'active'"
            " AND id > %s ORDER BY id LIMIT 1",
            list_id,
            half // 3,
        ),
        "errors_url": made["errors_url"],
        "export_url": exported["result"]["url"],
    }


# -- maintenance
# --------------------------------------------------------------------------------------


def _maintenance(sized: Sequence[SizedStack], turns: Turns) -> Iterator[Timed]:
    for kind in sorted(maintenance.list_kinds(), key=lambda kind: kind.name):
        measure = partial(_run_due, kind, sized)
        yield Group.MAINTENANCE, kind.name, _in_turns(turns, 2, measure)
    looks: dict[str, Callable[[Resources], object]] = {
        "sweep of jobs": sweep_jobs,
        "look for due maintenance": maintenance.send_due_tasks,
    }
    for name, look in looks.items():
        yield Group.MAINTENANCE, name, _in_turns(turns, 5, partial(_look, look, sized))


def _run_due(kind: MaintenanceKind, sized: Sequence[SizedStack], turn: int) -> float:
    """Time a run, past the row that says when it is due."""
    due, stack, worker = DUE[kind.name], sized[turn].stack, sized[turn].worker
    if due is not None:
        stack.query(due)
    return measure_seconds(lambda: kind.run(worker.resources, clock.now()))


def _look(look: Callable[[Resources], object], sized: Sequence[SizedStack], turn: int) -> float:
    return measure_seconds(lambda: look(sized[turn].worker.resources))
