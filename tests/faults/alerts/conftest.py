from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from devstack.sandbox import sandbox_settings
from tests.faults.alerts.troubles import Site, Worker
from tests.faults.alerts.watching import start_watch
from tests.faults.proxy import proxied
from tests.ports import free_port
from tests.services.backup.conftest import BACKUP_KEYS
from tests.stack import Stack
from tests.subscribers import new_list

_LANES = (("media",), ("mail",), ("request", "photos", "money", "webhooks", "upkeep"))


@pytest.fixture(autouse=True)
def _left_as_found() -> None:
    """These tests have a stack of their own, which each leaves as it found it."""


@pytest.fixture(scope="module")
def site(
    make_stack: Callable[[str], Stack], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    stack = make_stack("watched")
    folder = tmp_path_factory.mktemp("prometheus")
    stack.start_sandbox()
    with ExitStack() as opened:
        own = stack.environment
        servers = {
            "postgres": own["PRESSROOM_DATABASE_URL"],
            "redis": own["PRESSROOM_REDIS_URL"],
            "s3": f"{own['PRESSROOM_S3_ENDPOINT']}/",
            "mail": f"{own['PRESSROOM_MAIL_URL']}/",
            "photos": f"{stack.sandbox_url}/",
        }
        proxies = {name: opened.enter_context(proxied(url)) for name, url in servers.items()}
        seen = {name: proxy.url.removesuffix("/") for name, proxy in proxies.items()}
        backups = folder / "backups"
        backups.mkdir()
        through = {
            "PRESSROOM_DATABASE_URL": seen["postgres"],
            "PRESSROOM_REDIS_URL": seen["redis"],
            "PRESSROOM_S3_ENDPOINT": seen["s3"],
            "PRESSROOM_MAIL_URL": seen["mail"],
            **sandbox_settings.stock_photo_settings(seen["photos"], {}),
            "PRESSROOM_WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8",
            "PRESSROOM_BACKUP_URL": f"file://{backups}",
            "PRESSROOM_BACKUP_KEYS": BACKUP_KEYS,
            "PRESSROOM_BACKUP_HOURS": "0",
        }
        stack.start_api(None, **through)
        workers: dict[str, Worker] = {}
        for lanes in _LANES:
            workers[lanes[0]] = worker = Worker(stack, lanes, free_port(), through)
            worker.start()
        owner = stack.new_owner()
        with stack.client(owner.key) as client:
            list_id = new_list(client, confirm_required=True)
        addresses = [worker.address for worker in workers.values()]
        _, watch = start_watch(stack, folder, addresses)
        yield Site(stack, proxies, workers, watch, owner, list_id, backups)
