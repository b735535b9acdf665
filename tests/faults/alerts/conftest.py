from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from devstack.harness.free_ports import free_port
from devstack.harness.stack import Stack
from tests.support.faults.watched_site import Restartable, Site
from tests.support.faults.watching import start_watch
from tests.support.lists.people_on_lists import new_list
from tests.support.stack.backups import BACKUP_KEYS
from tests.support.stack.proxied_dependencies import proxy_each_dependency

# Maps the queues of each worker to the number of threads or processes of the worker.
_WORKERS = {
    ("media",): 2,
    ("mail",): 2,
    ("request", "photos", "money", "webhooks", "maintenance"): 6,
}


@pytest.fixture(scope="module")
def watched_stack(
    make_stack: Callable[[str], Stack], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    stack = make_stack("watched")
    folder = tmp_path_factory.mktemp("prometheus")
    backups = folder / "backups"
    backups.mkdir()
    stack.start_sandbox()
    with ExitStack() as opened:
        proxies, environment = proxy_each_dependency(stack, opened)
        environment |= {
            "PRESSROOM_WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8",
            "PRESSROOM_BACKUP_URL": f"file://{backups}",
            "PRESSROOM_BACKUP_KEYS": BACKUP_KEYS,
            "PRESSROOM_BACKUP_HOURS": "0",
        }
        api = Restartable(stack, partial(stack.start_api, None, **environment))
        api.start()
        workers, addresses = _start_workers(stack, environment)
        owner = stack.create_owner()
        with stack.client(owner.key) as client:
            # The list mails everyone who joins.
            list_id = new_list(client, confirm_required=True)
        _, watch = start_watch(stack, folder, addresses)
        yield Site(stack, proxies, owner, list_id, api, workers, watch, backups)


def _start_workers(
    stack: Stack, environment: dict[str, str]
) -> tuple[dict[str, Restartable], list[str]]:
    workers = {}
    addresses = []
    for queues, concurrency in _WORKERS.items():
        addresses.append(address := f"127.0.0.1:{free_port()}")
        settings = {**environment, "PRESSROOM_WORKER_METRICS_ADDRESS": address}
        begin = partial(stack.start_worker, *queues, concurrency=concurrency, **settings)
        workers[queues[0]] = worker = Restartable(stack, begin)
        worker.start()
    return workers, addresses
