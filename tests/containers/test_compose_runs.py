"""Tests the running services of the Compose file."""

import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import httpx2
import pytest

from tests.support.containers.engine import EngineError
from tests.support.containers.project import Project
from tests.support.containers.size import FULL_SIZE_ONLY
from tests.support.deployment import files
from tests.support.images.pictures import photo

pytestmark = pytest.mark.slow

MEGABYTE = 1024 * 1024
WAIT = {"Prefer": "wait=60"}
ONE_OFF_SERVICES = ("migrate", "bucket")
PRESSROOM_SERVICES = ("api", "worker-waiting", "worker-media", "worker-computing", "flower")


def upload(proxy_client: httpx2.Client) -> str:
    """Upload a picture, and return the path of the converted picture."""
    reply = proxy_client.post("/attachments", files={"file": ("a.jpg", photo())}, headers=WAIT)
    assert reply.status_code in (200, 201), reply.text
    data = reply.json()["data"]
    assert data["mime_type"] == "image/webp"
    return httpx2.URL(data["view_url"]).path


def new_list(proxy_client: httpx2.Client, slug: str) -> int:
    reply = proxy_client.post("/lists", json={"title": "Readers", "slug": slug})
    assert reply.status_code in (200, 201), reply.text
    list_id: int = reply.json()["data"]["id"]
    return list_id


def test_compose_stack_converts_and_serves_an_upload(proxy_client: httpx2.Client) -> None:
    picture = proxy_client.get(upload(proxy_client))
    assert picture.status_code == 200
    assert picture.headers["Content-Type"] == "image/webp"


@FULL_SIZE_ONLY
def test_compose_stack_imports_a_member_file(proxy_client: httpx2.Client) -> None:
    path = f"/lists/{new_list(proxy_client, 'imported')}/imports"
    rows = b"email\n" + b"".join(b"reader%d@example.org\n" % number for number in range(1000))
    reply = proxy_client.post(path, content=rows, headers=WAIT)
    assert reply.json()["data"]["result"]["added"] == 1000, reply.text


def test_compose_stack_answers_a_composer_call(proxy_client: httpx2.Client) -> None:
    post = {"title": "A garden in May", "content": "The tulips are out."}
    reply = proxy_client.post("/composer/metadata", json=post, headers=WAIT)
    assert reply.status_code == 200, reply.text


@FULL_SIZE_ONLY
def test_compose_proxy_rejects_too_large_bodies_except_import_files(
    proxy_client: httpx2.Client,
) -> None:
    large = b"\0" * (40 * MEGABYTE)
    reply = proxy_client.post("/attachments", content=large)
    assert reply.status_code == 413
    path = f"/lists/{new_list(proxy_client, 'large')}/imports"
    assert proxy_client.post(path, content=large).status_code in (200, 202)


@FULL_SIZE_ONLY
def test_compose_proxy_hides_operator_paths_from_callers(proxy_client: httpx2.Client) -> None:
    for path in ("/readyz", "/readyz/", "/%72eadyz", "/metrics", "/metrics/"):
        assert proxy_client.get(path).status_code == 404, path
    assert proxy_client.get("/healthz").status_code == 200


@FULL_SIZE_ONLY
def test_job_events_pass_the_compose_proxy_while_the_job_runs(
    compose_project: Project, proxy_client: httpx2.Client
) -> None:
    path = f"/lists/{new_list(proxy_client, 'watched')}/imports"
    [worker] = compose_project.containers("worker-computing")
    compose_project.engine.podman("pause", worker)
    try:
        job = proxy_client.post(path, content=b"email\na@example.org\n").json()["data"]["id"]
        with proxy_client.stream("GET", f"/jobs/{job}/events") as events:
            lines = events.iter_lines()
            assert any(line.startswith("data:") for line in lines)
            compose_project.engine.podman("unpause", worker)
            assert any("succeeded" in line for line in lines)
    finally:
        compose_project.engine.succeeds("unpause", worker)


@FULL_SIZE_ONLY
def test_compose_proxy_redirects_to_https_with_a_certificate_of_its_own(
    compose_project: Project,
) -> None:
    port = int(_environment(compose_project)["HTTP_PORT"])
    reply = httpx2.get(f"http://127.0.0.1:{port}/lists", headers={"Host": "pressroom.localhost"})
    assert reply.status_code == 308
    assert reply.headers["Location"].startswith("https://")
    # Machines don't trust the proxy's certificate authority by default.
    with pytest.raises(httpx2.ConnectError, match=r"certificate|alert"):
        httpx2.get(
            f"https://127.0.0.1:{compose_project.port}/", verify=ssl.create_default_context()
        )


def _environment(compose_project: Project) -> dict[str, str]:
    lines = (compose_project.folder / ".env").read_text().splitlines()
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


@FULL_SIZE_ONLY
def test_compose_api_trusts_its_proxy(
    compose_project: Project, proxy_client: httpx2.Client
) -> None:
    proxy_client.get("/lists", headers={"X-Forwarded-For": "203.0.113.9"})
    assert "proxy.not_trusted" not in compose_project.log("api")


@FULL_SIZE_ONLY
@pytest.mark.parametrize(
    "service", [each for each in files.services() if each not in ONE_OFF_SERVICES]
)
def test_running_compose_containers_have_no_capabilities_and_cannot_write(
    compose_project: Project, service: str
) -> None:
    status = compose_project.inside(service, "cat", "/proc/1/status")
    fields = dict(line.split(":", 1) for line in status.splitlines())
    # The capability NET_BIND_SERVICE has the number 10.
    assert int(fields["CapEff"], 16) == (1 << 10 if service == "proxy" else 0)
    assert int(fields["NoNewPrivs"]) == 1
    with pytest.raises(EngineError, match="Read-only"):
        compose_project.inside(service, "touch", "/usr/here")


@FULL_SIZE_ONLY
def test_compose_networks_keep_proxy_from_stores_and_media_worker_from_internet(
    compose_project: Project,
) -> None:
    proxy = compose_project.containers("proxy")[0]
    assert compose_project.engine.succeeds("exec", proxy, "getent", "hosts", "api")
    for store in ("postgres", "redis", "minio"):
        assert not compose_project.engine.succeeds("exec", proxy, "getent", "hosts", store)
    connect_to_internet = "import socket; socket.create_connection(('192.0.2.1', 9), timeout=3)"
    with pytest.raises(EngineError, match="unreachable"):
        compose_project.inside("worker-media", "python", "-c", connect_to_internet)


@FULL_SIZE_ONLY
def test_compose_database_role_and_s3_user_have_restricted_rights(compose_project: Project) -> None:
    create_table = (
        "import psycopg2, pathlib\n"
        "url = pathlib.Path('/run/secrets/database_url').read_text()\n"
        "psycopg2.connect(url).cursor().execute('CREATE TABLE more (id int)')"
    )
    with pytest.raises(EngineError, match="permission denied"):
        compose_project.inside("api", "python", "-c", create_table)
    create_bucket = (
        "import minio, pathlib\n"
        "key = pathlib.Path('/run/secrets/s3_secret_key').read_text()\n"
        "minio.Minio('minio:9000', 'pressroom', key, secure=False).make_bucket('more')"
    )
    with pytest.raises(EngineError, match="AccessDenied"):
        compose_project.inside("api", "python", "-c", create_bucket)


@FULL_SIZE_ONLY
def test_compose_process_environments_contain_no_secrets(compose_project: Project) -> None:
    secrets = [file.read_text() for file in (compose_project.folder / "secrets").iterdir()]
    for service in PRESSROOM_SERVICES:
        variables = compose_project.inside(service, "env")
        assert not [secret for secret in secrets if secret and secret in variables], service


@FULL_SIZE_ONLY
def test_scaled_compose_worker_serves_its_queue(
    compose_project: Project, proxy_client: httpx2.Client
) -> None:
    [first] = compose_project.containers("worker-media")
    compose_project.up("--scale", "worker-media=2", services=("worker-media",))
    compose_project.await_ready("worker-media")
    [second] = set(compose_project.containers("worker-media")) - {first}
    # Pause the first worker, so that the second one must convert the picture.
    compose_project.engine.podman("pause", first)
    try:
        assert proxy_client.get(upload(proxy_client)).status_code == 200
    finally:
        compose_project.engine.podman("unpause", first)
        compose_project.engine.podman("rm", "--force", "--time", "30", second)


@FULL_SIZE_ONLY
def test_compose_stop_is_clean_and_restart_loses_no_data(
    compose_project: Project, proxy_client: httpx2.Client
) -> None:
    picture = upload(proxy_client)
    compose_project.compose("stop")
    for service in PRESSROOM_SERVICES:
        for container in compose_project.containers(service):
            code = compose_project.engine.podman(
                "inspect", "--format", "{{.State.ExitCode}}", container
            )
            assert int(code) == 0, f"{service}:\n{compose_project.log(service)}"
    compose_project.up()
    for service in ("proxy", *PRESSROOM_SERVICES):
        compose_project.await_ready(service)
    assert proxy_client.get(picture).status_code == 200
    upload(proxy_client)


@FULL_SIZE_ONLY
def test_compose_upgrade_causes_no_failed_calls(compose_project: Project, api_key: str) -> None:
    ended = Event()

    def call() -> list[str]:
        failures = []
        with compose_project.client(api_key) as client:
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
            [migrate] = compose_project.containers("migrate")
            compose_project.engine.podman("start", "--attach", migrate)
            for service in PRESSROOM_SERVICES:
                compose_project.up("--force-recreate", services=(service,))
                compose_project.await_ready(service)
        finally:
            ended.set()
        assert [failure for each in calls for failure in each.result()] == []
