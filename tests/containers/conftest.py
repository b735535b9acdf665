"""Fixtures that build the image and run the Compose file.

`make containers` runs the tests of this folder, and `make test` omits them.
"""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import pytest

from tests.support.containers.engine import (
    Engine,
    EngineError,
    find_missing_program,
    open_engine,
    print_line,
)
from tests.support.containers.images import WORKER_IMAGE, build_our_image, prepare_base_images
from tests.support.containers.project import Project
from tests.support.containers.size import CONTAINERS_ENABLED
from tests.support.deployment import files
from tests.support.prerequisites import skip_or_fail

EDITOR = "editor@example.com"
collect_ignore_glob = [] if CONTAINERS_ENABLED else ["test_*.py"]


@pytest.fixture(scope="session")
def engine() -> Engine:
    if reason := find_missing_program():
        skip_or_fail(reason)
    with _skip_without_containers():
        return open_engine()


@contextmanager
def _skip_without_containers() -> Iterator[None]:
    try:
        yield
    except (EngineError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"Containers were not tried, since this machine can't run them: {error}")


@pytest.fixture(scope="session")
def image(engine: Engine) -> str:
    """Pressroom's image, which the fixture builds.

    If the base images can't be downloaded, the fixture replaces the base images with stand-ins.
    """
    with _skip_without_containers():
        are_stand_ins = prepare_base_images(engine)
    if are_stand_ins:
        print_line("The base images are stand-ins, so the tests cover only Pressroom's own layers.")
    began_at = time.monotonic()
    name = build_our_image(engine)
    build_our_image(engine, WORKER_IMAGE, target="worker")
    print_line(f"built in {time.monotonic() - began_at:.0f} s")
    return name


@pytest.fixture(scope="session")
def compose_project(
    engine: Engine, image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Project]:
    engine.clear()
    project = Project(engine, tmp_path_factory.mktemp("compose"))
    try:
        began_at = time.monotonic()
        project.up()
        for service in ("proxy", "api", *files.workers(), "flower"):
            project.await_ready(service)
        print_line(
            f"all services are ready {time.monotonic() - began_at:.0f} s after the first one"
        )
        yield project
    finally:
        engine.clear()


@pytest.fixture(scope="session")
def api_key(compose_project: Project) -> str:
    compose_project.pressroom(
        "users", "create", EDITOR, "--name", "Editor", "--password", "a long password"
    )
    compose_project.pressroom("users", "plan", EDITOR, "paid")
    key: str = compose_project.pressroom("keys", "create", EDITOR, "--name", "laptop")["key"]
    return key


@pytest.fixture
def proxy_client(compose_project: Project, api_key: str) -> Iterator[httpx2.Client]:
    """An HTTP client that calls the API over HTTPS, through the proxy of the Compose project."""
    with compose_project.client(api_key) as client:
        yield client
