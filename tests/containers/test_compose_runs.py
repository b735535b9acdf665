import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import httpx2
import pytest

from tests.support.containers.engine import EngineError
from tests.support.containers.project import Project
from tests.support.containers.size import WANTED_IN_FULL
from tests.support.deployment import files
from tests.support.images.pictures import photo

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

MEGABYTE = 1024 * 1024
WAIT = {"Prefer": "wait=60"}
ONCE = ("migrate", "bucket")
OURS = ("api", "worker-waiting", "worker-media", "worker-computing", "flower")


def upload(caller: httpx2.Client) -> str:
    """Upload a picture; returns the path of what became of it."""
    reply = caller.post("/attachments", files={"file": ("a.jpg", photo())}, headers=WAIT)
    assert reply.status_code in (200, 201), reply.text
    data = reply.json()["data"]
    assert data["mime_type"] == "image/webp"
    return httpx2.URL(data["view_url"]).path


def new_list(caller: httpx2.Client, slug: str) -> int:
    reply = caller.post("/lists", json={"title": "Readers", "slug": slug})
    assert reply.status_code in (200, 201), reply.text
    found: int = reply.json()["data"]["id"]
    return found


def test_an_upload_passes_and_comes_back(caller: httpx2.Client) -> None:
    picture = caller.get(upload(caller))
    assert picture.status_code == 200
    assert picture.headers["Content-Type"] == "image/webp"


@WANTED_IN_FULL
def test_a_file_of_members_is_imported(caller: httpx2.Client) -> None:
    path = f"/lists/{new_list(caller, 'imported')}/imports"
    rows = b"email\n" + b"".join(b"reader%d@example.org\n" % number for number in range(1000))
    reply = caller.post(path, content=rows, headers=WAIT)
    assert reply.json()["data"]["result"]["added"] == 1000, reply.text


@WANTED_IN_FULL
def test_the_composer_writes(caller: httpx2.Client) -> None:
    post = {"title": "A garden in May", "content": "The tulips are out."}
    reply = caller.post("/composer/metadata", json=post, headers=WAIT)
    assert reply.status_code == 200, reply.text


@WANTED_IN_FULL
def test_the_proxy_ends_bodies_that_no_route_takes_and_lets_files_of_members_pass(
    caller: httpx2.Client,
) -> None:
    large = b"\0" * (40 * MEGABYTE)
    reply = caller.post("/attachments", content=large)
    assert reply.status_code == 413
    path = f"/lists/{new_list(caller, 'large')}/imports"
    assert caller.post(path, content=large).status_code in (200, 202)


@WANTED_IN_FULL
def test_the_proxy_shows_callers_nothing_that_is_for_operators(caller: httpx2.Client) -> None:
    for path in ("/readyz", "/readyz/", "/%72eadyz", "/metrics", "/metrics/"):
        assert caller.get(path).status_code == 404, path
    assert caller.get("/healthz").status_code == 200


@WANTED_IN_FULL
def test_an_event_passes_while_its_job_goes_on(project: Project, caller: httpx2.Client) -> None:
    path = f"/lists/{new_list(caller, 'watched')}/imports"
    [worker] = project.containers("worker-computing")
    project.engine.podman("pause", worker)
    try:
        job = caller.post(path, content=b"email\na@example.org\n").json()["data"]["id"]
        with caller.stream("GET", f"/jobs/{job}/events") as events:
            lines = events.iter_lines()
            assert any(line.startswith("data:") for line in lines)
            project.engine.podman("unpause", worker)
            assert any("succeeded" in line for line in lines)
    finally:
        project.engine.succeeds("unpause", worker)


@WANTED_IN_FULL
def test_the_proxy_speaks_tls_with_its_own_name_alone(project: Project) -> None:
    port = int(_environment(project)["HTTP_PORT"])
    reply = httpx2.get(f"http://127.0.0.1:{port}/lists", headers={"Host": "pressroom.localhost"})
    assert reply.status_code == 308
    assert reply.headers["Location"].startswith("https://")
    # Its authority is none that a machine believes by itself.
    with pytest.raises(httpx2.ConnectError, match=r"certificate|alert"):
        httpx2.get(f"https://127.0.0.1:{project.port}/", verify=ssl.create_default_context())


def _environment(project: Project) -> dict[str, str]:
    lines = (project.folder / ".env").read_text().splitlines()
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


@WANTED_IN_FULL
def test_the_api_counts_callers_by_the_address_that_the_proxy_saw(
    project: Project, caller: httpx2.Client
) -> None:
    caller.get("/lists", headers={"X-Forwarded-For": "203.0.113.9"})
    assert "proxy.not_trusted" not in project.log("api")


@WANTED_IN_FULL
@pytest.mark.parametrize("service", [each for each in files.services() if each not in ONCE])
def test_each_process_has_no_rights_and_writes_nowhere_else(project: Project, service: str) -> None:
    status = project.inside(service, "cat", "/proc/1/status")
    found = dict(line.split(":", 1) for line in status.splitlines())
    # NET_BIND_SERVICE is number 10.
    assert int(found["CapEff"], 16) == (1 << 10 if service == "proxy" else 0)
    assert int(found["NoNewPrivs"]) == 1
    with pytest.raises(EngineError, match="Read-only"):
        project.inside(service, "touch", "/usr/here")


@WANTED_IN_FULL
def test_strangers_and_their_files_are_kept_from_the_stores_and_from_the_world(
    project: Project,
) -> None:
    proxy = project.containers("proxy")[0]
    assert project.engine.succeeds("exec", proxy, "getent", "hosts", "api")
    for store in ("postgres", "redis", "minio"):
        assert not project.engine.succeeds("exec", proxy, "getent", "hosts", store)
    way_out = "import socket; socket.create_connection(('192.0.2.1', 9), timeout=3)"
    with pytest.raises(EngineError, match="unreachable"):
        project.inside("worker-media", "python", "-c", way_out)


@WANTED_IN_FULL
def test_what_runs_once_made_a_role_and_a_user_with_few_rights(project: Project) -> None:
    table = (
        "import psycopg2, pathlib\n"
        "url = pathlib.Path('/run/secrets/database_url').read_text()\n"
        "psycopg2.connect(url).cursor().execute('CREATE TABLE more (id int)')"
    )
    with pytest.raises(EngineError, match="permission denied"):
        project.inside("api", "python", "-c", table)
    bucket = (
        "import minio, pathlib\n"
        "key = pathlib.Path('/run/secrets/s3_secret_key').read_text()\n"
        "minio.Minio('minio:9000', 'pressroom', key, secure=False).make_bucket('more')"
    )
    with pytest.raises(EngineError, match="AccessDenied"):
        project.inside("api", "python", "-c", bucket)


@WANTED_IN_FULL
def test_no_secret_is_in_the_environment_of_a_process(project: Project) -> None:
    secrets = [file.read_text() for file in (project.folder / "secrets").iterdir()]
    for service in OURS:
        variables = project.inside(service, "env")
        assert not [secret for secret in secrets if secret and secret in variables], service


@WANTED_IN_FULL
def test_a_queue_is_scaled(project: Project, caller: httpx2.Client) -> None:
    [first] = project.containers("worker-media")
    project.up("--scale", "worker-media=2", services=("worker-media",))
    project.await_ready("worker-media")
    [second] = set(project.containers("worker-media")) - {first}
    # The first one alone can't do it.
    project.engine.podman("pause", first)
    try:
        assert caller.get(upload(caller)).status_code == 200
    finally:
        project.engine.podman("unpause", first)
        project.engine.podman("rm", "--force", "--time", "30", second)


@WANTED_IN_FULL
def test_a_stop_is_in_order_and_a_start_loses_nothing(
    project: Project, caller: httpx2.Client
) -> None:
    picture = upload(caller)
    project.compose("stop")
    for service in OURS:
        for container in project.containers(service):
            code = project.engine.podman("inspect", "--format", "{{.State.ExitCode}}", container)
            assert int(code) == 0, f"{service}:\n{project.log(service)}"
    project.up()
    for service in ("proxy", *OURS):
        project.await_ready(service)
    assert caller.get(picture).status_code == 200
    upload(caller)


@WANTED_IN_FULL
def test_an_upgrade_is_noticed_by_no_caller(project: Project, key: str) -> None:
    ended = Event()

    def call() -> list[str]:
        failures = []
        with project.client(key) as client:
            while not ended.is_set():
                try:
                    reply = client.get("/lists")
                    if reply.status_code != 200:
                        failures.append(f"{reply.status_code} {reply.text}")
                except httpx2.HTTPError as error:
                    failures.append(repr(error))
                time.sleep(0.1)
        return failures

    with ThreadPoolExecutor() as threads:
        calls = [threads.submit(call) for _ in range(2)]
        try:
            [migrate] = project.containers("migrate")
            project.engine.podman("start", "--attach", migrate)
            for service in OURS:
                project.up("--force-recreate", services=(service,))
                project.await_ready(service)
        finally:
            ended.set()
        assert [failure for each in calls for failure in each.result()] == []
