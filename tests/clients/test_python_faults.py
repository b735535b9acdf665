"""Tests of the Python client with network faults and error responses."""

import time
from types import ModuleType
from typing import Any

import httpx2
import pytest

from devstack.harness.free_ports import free_port
from devstack.harness.stack import Owner, plain_client
from tests.support.clients.building import PhotoFile
from tests.support.http.servers import silent_server


class FaultyClient:
    """A client whose calls meet faults."""

    def __init__(self, package: ModuleType, url: str, key: str, **options: Any) -> None:
        self.url = url
        self.pressroom = package.Pressroom(url, key, **options)

    def received_calls(self) -> list[dict[str, str | None]]:
        with plain_client() as client:
            calls: list[dict[str, str | None]] = client.get(f"{self.url}/seen").json()
        return calls


@pytest.fixture
def make_faulty_client(package: ModuleType, network_url: str, owner: Owner) -> Any:
    def make(*faults: str, **options: Any) -> FaultyClient:
        path = f"{time.time_ns()}.{'.'.join(faults)}"
        return FaultyClient(package, f"{network_url}/{path}", owner.key, **options)

    return make


@pytest.mark.parametrize("fault", ["429", "503", "lost"])
def test_python_client_retries_with_the_same_idempotency_key_and_one_effect(
    make_faulty_client: Any, fault: str
) -> None:
    faulty = make_faulty_client(fault)
    attachment = faulty.pressroom.upload_attachment(PhotoFile())
    first_call, second_call = faulty.received_calls()
    assert first_call["key"]
    assert first_call["key"] == second_call["key"]
    assert [each["id"] for each in faulty.pressroom.list_attachments()] == [attachment["id"]]


def test_python_client_sends_a_new_idempotency_key_per_call_unless_given_one(
    make_faulty_client: Any,
) -> None:
    faulty = make_faulty_client()
    faulty.pressroom.upload_attachment(PhotoFile())
    faulty.pressroom.upload_attachment(PhotoFile())
    faulty.pressroom.upload_attachment(PhotoFile(), idempotency_key="order-7-0123456789")
    keys = [each["key"] for each in faulty.received_calls()]
    assert len(set(keys)) == 3
    assert keys[-1] == "order-7-0123456789"


def test_python_client_waits_as_long_as_retry_after_asks(make_faulty_client: Any) -> None:
    faulty = make_faulty_client("wait")
    started_at = time.monotonic()
    faulty.pressroom.read_me()
    assert time.monotonic() - started_at >= 1


def test_python_client_raises_error_if_retry_after_is_too_long(
    package: ModuleType, make_faulty_client: Any
) -> None:
    faulty = make_faulty_client("hour")
    with pytest.raises(package.ApiError) as error:
        faulty.pressroom.read_me()
    assert error.value.retry_after == 3600
    assert len(faulty.received_calls()) == 1


def test_python_client_limits_the_number_of_retries(
    package: ModuleType, make_faulty_client: Any
) -> None:
    faulty = make_faulty_client("429", "429", "429", "429")
    with pytest.raises(package.ApiError):
        faulty.pressroom.read_me()
    assert len(faulty.received_calls()) == 3
    client_without_retries = make_faulty_client("429", retries=package.Retries(max_retries=0))
    with pytest.raises(package.ApiError):
        client_without_retries.pressroom.read_me()
    assert len(client_without_retries.received_calls()) == 1


def test_python_client_does_not_retry_a_lost_call_without_idempotency_key(
    package: ModuleType, make_faulty_client: Any
) -> None:
    faulty = make_faulty_client("lost")
    with pytest.raises(package.NotReached):
        faulty.pressroom.create_list({"title": "Garden", "slug": f"g-{time.time_ns()}"})
    assert len(faulty.received_calls()) == 1


def test_python_client_does_not_retry_a_consumed_stream(
    package: ModuleType, make_faulty_client: Any
) -> None:
    faulty = make_faulty_client("429")
    with pytest.raises(package.ApiError):
        faulty.pressroom.import_members(7, iter([b"email\n", b"ben@example.com\n"]))
    assert len(faulty.received_calls()) == 1


def test_python_client_raises_not_reached_for_an_unreachable_api(package: ModuleType) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    retries = package.Retries(max_retries=1, max_wait=0.01)
    with package.Pressroom(url, retries=retries) as client, pytest.raises(package.NotReached):
        client.read_me()


def test_python_client_times_out_if_the_api_hangs(package: ModuleType) -> None:
    with silent_server() as address:
        retries = package.Retries(max_retries=0)
        client = package.Pressroom(f"http://{address}", retries=retries, timeout=0.2)
        with client, pytest.raises(package.NotReached):
            client.read_me()


def test_python_client_resumes_a_broken_job_event_stream(
    make_faulty_client: Any,
) -> None:
    faulty = make_faulty_client("", "", "cut")
    list_id = faulty.pressroom.create_list({"title": "G", "slug": f"g-{time.time_ns()}"})["id"]
    rows = "".join(f"reader{n}@example.com\n" for n in range(30_000))
    job = faulty.pressroom.import_members(list_id, f"email\n{rows}".encode())
    assert job["status"] in {"queued", "running"}
    finished_job = faulty.pressroom.wait_for_job(job, timeout=90)
    assert finished_job["result"]["added"] == 30_000
    streams = [each for each in faulty.received_calls() if str(each["path"]).endswith("/events")]
    assert streams[0]["last_event_id"] is None
    assert streams[1]["last_event_id"]


def test_python_client_raises_api_error_for_responses_that_are_no_problem_document(
    package: ModuleType,
) -> None:
    response = httpx2.Response(502, text="<h1>Bad gateway</h1>")
    http = httpx2.Client(transport=httpx2.MockTransport(lambda _: response))
    with pytest.raises(package.ApiError) as error:
        package.Pressroom("http://api.example", http=http).read_me()
    assert (error.value.code, error.value.status) == ("http.502", 502)
