"""Do our processes work with no more rights and settings than their manifests give them?"""

import platform
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import httpx
import pytest

from devstack.supervisor.embedded.valkey import DATABASES
from tests.deployment.kubernetes import containers, pods
from tests.deployment.kubernetes.containers import Container
from tests.embedded import Services
from tests.pictures import photo
from tests.ports import free_port
from tests.stack import Stack, eventually, open_stack

pytestmark = [
    pytest.mark.slow,
    pytest.mark.full("machines"),
    pytest.mark.skipif(bool(containers.missing()), reason=containers.missing()),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the profile is read for x86-64"),
]

Starts = Callable[[str], Container]


@pytest.fixture
def empty(services: Services, home: Path) -> Iterator[Stack]:
    """A stack that nothing has migrated, and that no process of ours uses."""
    port = free_port()
    with open_stack(services, home, "pods", DATABASES - 2, port, migrated=False) as stack:
        yield stack


@pytest.fixture
def start(empty: Stack, tmp_path: Path) -> Iterator[Starts]:
    settings = {
        **empty.environment,
        "PRESSROOM_MIGRATION_DATABASE_URL": empty.owner_url,
        "PRESSROOM_ALIVE_FILE": "/tmp/alive",
    }
    known = {str(each): each for each in pods.processes()}
    with ExitStack() as started:

        def run(name: str) -> Container:
            folder = tmp_path / name.replace("/", "-")
            made = containers.start(known[name], folder, settings, empty.api_port)
            started.callback(made.main.wait, 60)
            started.callback(made.ask_to_end)
            return made

        yield run


def test_the_pods_do_an_upload_and_a_composer_call(empty: Stack, start: Starts) -> None:
    waits = start("pressroom-api/wait-until-migrated")
    said = "migrate.waits_for_the_database"
    eventually(lambda: said in waits.log.read_text(), what="the first container of the API's pod")
    for job in (start("pressroom-migrate/migrate"), start("pressroom-bucket/bucket")):
        assert job.main.wait(60) == 0, job.log.read_text()
    assert waits.main.wait(30) == 0

    api = start("pressroom-api/api")
    workers = [start(f"pressroom-worker-{kind}/worker") for kind in ("waiting", "computing")]
    path = api.process.container["readinessProbe"]["httpGet"]["path"]
    eventually(lambda: _answers(f"{empty.api_url}{path}"), within=60, what="the API")
    for worker in workers:
        assert worker.succeeds(
            worker.process.container["lifecycle"]["postStart"]["exec"]["command"]
        )
        is_ready = partial(worker.asks, "readinessProbe")
        eventually(is_ready, within=60, what=f"the probe of {worker.name}")
        assert worker.asks("livenessProbe")

    wait = {"Prefer": "wait=30"}
    with empty.client(empty.new_owner().key) as client:
        upload = client.post("/attachments", files={"file": ("a.jpg", photo())}, headers=wait)
        post = {"title": "A garden in May", "content": "The tulips are out."}
        written = client.post("/composer/metadata", json=post, headers=wait)
    assert upload.json()["data"]["mime_type"] == "image/webp"
    assert written.status_code == 200
    # The converter confines itself further, inside of what confines the pod.
    assert "converter.unfiltered" not in workers[1].log.read_text()
    for container in (api, *workers):
        container.ask_to_end()
        assert container.main.wait(40) == 0, container.log.read_text()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 200
    except httpx.TransportError:
        return False
