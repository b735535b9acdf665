"""Tests of the asynchronous Python client with the API of the test stack."""

import asyncio
import secrets
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import anyio
import httpx2
import pytest

from core.scopes import Scope
from devstack.harness.stack import Owner, Stack, plain_client
from tests.support.clients.building import PhotoFile
from tests.support.images.pictures import photo
from tests.support.people import oauth

_PARALLEL_READS = 50

Run = Callable[[Callable[[Any], Awaitable[Any]]], Any]


@pytest.fixture
def run(package: ModuleType, stack: Stack, owner: Owner) -> Run:
    """Run a coroutine function with the asynchronous client of a new owner on the paid plan."""

    def run_with_client(scenario: Callable[[Any], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            async with package.AsyncPressroom(stack.api_url, owner.key) as pressroom:
                return await scenario(pressroom)

        return asyncio.run(main())

    return run_with_client


@pytest.fixture
def run_with_faults(package: ModuleType, network_url: str, owner: Owner) -> Any:
    """Run a coroutine function with a client that meets faults, and return all received calls."""

    def run_scenario(
        scenario: Callable[[Any], Awaitable[Any]], *faults: str
    ) -> list[dict[str, Any]]:
        url = f"{network_url}/{time.time_ns()}.{'.'.join(faults)}"

        async def main() -> None:
            async with package.AsyncPressroom(url, owner.key) as pressroom:
                await scenario(pressroom)

        asyncio.run(main())
        with plain_client() as client:
            calls: list[dict[str, Any]] = client.get(f"{url}/seen").json()
        return calls

    return run_scenario


async def _create_list(pressroom: Any) -> int:
    mailing_list = await pressroom.lists.create({"title": "Garden", "slug": f"g-{time.time_ns()}"})
    list_id: int = mailing_list["id"]
    return list_id


def test_asynchronous_client_reads_in_parallel(run: Run) -> None:
    async def scenario(pressroom: Any) -> None:
        list_id = await _create_list(pressroom)
        reads = [pressroom.lists.read(list_id) for _ in range(_PARALLEL_READS)]
        lists = await asyncio.gather(*reads)
        assert [mailing_list["id"] for mailing_list in lists] == [list_id] * _PARALLEL_READS

    run(scenario)


def test_asynchronous_client_iterates_pages_and_items(run: Run) -> None:
    async def scenario(pressroom: Any) -> None:
        list_id = await _create_list(pressroom)
        members = [{"email": f"reader{number}@example.com"} for number in range(5)]
        assert await pressroom.members.add(list_id, {"members": members}) == 5
        emails = [member["email"] async for member in pressroom.members.list(list_id, limit=2)]
        assert sorted(emails) == [member["email"] for member in members]
        pages = pressroom.members.list(list_id, limit=3).pages()
        assert [len(page.items) async for page in pages] == [3, 2]
        first_page = await pressroom.members.list(list_id, limit=3)
        assert first_page.pagination["total"] == 5
        second_page = await first_page.next_page()
        assert await second_page.next_page() is None
        search = {"filter": {"field": "status", "is": "active"}, "limit": 2}
        found_emails = [
            member["email"] async for member in pressroom.members.search(list_id, search)
        ]
        assert sorted(found_emails) == sorted(emails)

    run(scenario)


def test_asynchronous_client_uploads_paths_bytes_and_streams(
    package: ModuleType, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(photo())

    async def stream_photo() -> AsyncIterator[bytes]:
        yield photo()[:1000]
        yield photo()[1000:]

    async def scenario(pressroom: Any) -> None:
        uploads = [
            path,
            PhotoFile(),
            package.File(photo(), "photo.jpg"),
            package.File(iter([photo()[:1000], photo()[1000:]]), "photo.jpg"),
            package.File(stream_photo(), "photo.jpg"),
        ]
        attachments = [await pressroom.attachments.upload(upload) for upload in uploads]
        assert {each["original_filename"] for each in attachments} == {"photo.jpg"}
        assert len({each["original_checksum"] for each in attachments}) == 1
        async with await pressroom.attachments.download(attachments[0]["filename"]) as download:
            await download.save(tmp_path / "copy.webp")
        assert (tmp_path / "copy.webp").stat().st_size == attachments[0]["size"]

    run(scenario)


def test_asynchronous_client_uploads_an_asynchronous_file_under_the_name_of_the_file(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "photo.jpg"
    table = tmp_path / "members.csv"
    path.write_bytes(photo())
    table.write_text("email\nzoe@example.com\n")

    async def scenario(pressroom: Any) -> None:
        async with await anyio.open_file(path, "rb") as file:
            attachment = await pressroom.attachments.upload(file)
        assert attachment["original_filename"] == "photo.jpg"
        async with await anyio.open_file(table, "rb") as file:
            job = await pressroom.imports.start(await _create_list(pressroom), file)
        assert (await pressroom.wait_for_job(job, timeout=60))["result"]["added"] == 1

    run(scenario)


def test_asynchronous_client_reads_a_slow_synchronous_stream_in_a_thread(
    package: ModuleType, run: Run
) -> None:
    async def scenario(pressroom: Any) -> None:
        is_loop_free = threading.Event()
        asyncio.get_running_loop().call_later(0.1, is_loop_free.set)

        def stream_photo() -> Iterator[bytes]:
            assert is_loop_free.wait(timeout=5)
            yield photo()

        attachment = await pressroom.attachments.upload(package.File(stream_photo(), "photo.jpg"))
        assert attachment["original_filename"] == "photo.jpg"

    run(scenario)


def test_asynchronous_client_waits_for_an_import_and_reports_progress(
    package: ModuleType, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "members.csv"
    path.write_text("email\n" + "".join(f"reader{n}@example.com\n" for n in range(300)))

    async def scenario(pressroom: Any) -> None:
        list_id = await _create_list(pressroom)
        states: list[str] = []
        job = await pressroom.wait_for_job(
            await pressroom.imports.start(list_id, path),
            on_progress=lambda job: states.append(job["status"]),
            timeout=60,
        )
        assert job["result"]["added"] == 300
        assert states[-1] == "succeeded"
        failing_job = await pressroom.imports.start(list_id, b"\x00\x01\x02" * 100)
        with pytest.raises(package.JobFailed):
            await pressroom.wait_for_job(failing_job, timeout=60)

    run(scenario)


def test_asynchronous_client_closes_the_event_stream_if_on_progress_raises(
    package: ModuleType, stack: Stack, owner: Owner
) -> None:
    responses: list[httpx2.Response] = []

    async def record_response(response: httpx2.Response) -> None:
        responses.append(response)

    def stop(_: Any) -> None:
        raise OSError("The disk is full.")

    async def scenario() -> None:
        http = httpx2.AsyncClient(event_hooks={"response": [record_response]})
        pressroom = package.AsyncPressroom(stack.api_url, owner.key, http=http)
        job = await pressroom.imports.start(await _create_list(pressroom), b"email\n")
        with pytest.raises(OSError, match="The disk is full"):
            await pressroom.wait_for_job(job, on_progress=stop, timeout=60)
        assert responses[-1].url.path.endswith("/events")
        assert responses[-1].is_closed

    asyncio.run(scenario())


def test_type_checkers_accept_aclose_of_streams(package: ModuleType) -> None:
    client = package.AsyncPressroom("https://press.example.com")
    for method in (client.watch_job, client.jobs.stream_events, client.stream_job_events):
        assert hasattr(get_type_hints(method)["return"], "aclose")


def test_asynchronous_client_stops_waiting_for_a_job_after_its_timeout(run: Run) -> None:
    rows = "".join(f"reader{n}@example.com\n" for n in range(30_000))

    async def scenario(pressroom: Any) -> None:
        list_id = await _create_list(pressroom)
        job = await pressroom.imports.start(list_id, f"email\n{rows}".encode())
        with pytest.raises(TimeoutError):
            await pressroom.wait_for_job(job, timeout=0.05)
        await pressroom.jobs.cancel(job["id"])

    run(scenario)


@pytest.mark.parametrize("fault", ["429", "503", "lost"])
def test_asynchronous_client_retries_with_the_same_idempotency_key_and_one_effect(
    run: Run, run_with_faults: Any, fault: str
) -> None:
    async def upload(pressroom: Any) -> None:
        await pressroom.attachments.upload(PhotoFile())

    first_call, second_call = run_with_faults(upload, fault)
    assert first_call["key"]
    assert first_call["key"] == second_call["key"]

    async def count(pressroom: Any) -> int:
        return len((await pressroom.attachments.list()).items)

    assert run(count) == 1


def test_asynchronous_client_waits_as_long_as_retry_after_asks(run_with_faults: Any) -> None:
    async def scenario(pressroom: Any) -> None:
        start = time.monotonic()
        await pressroom.account.read()
        assert time.monotonic() - start >= 1

    run_with_faults(scenario, "wait")


def test_asynchronous_client_does_not_retry_a_consumed_stream(
    package: ModuleType, run_with_faults: Any
) -> None:
    async def stream_rows() -> AsyncIterator[bytes]:
        yield b"email\n"

    async def scenario(pressroom: Any) -> None:
        with pytest.raises(package.ApiError):
            await pressroom.imports.start(7, stream_rows())

    assert len(run_with_faults(scenario, "429")) == 1


def test_asynchronous_client_resumes_a_broken_job_event_stream(run_with_faults: Any) -> None:
    rows = "".join(f"reader{n}@example.com\n" for n in range(30_000))

    async def scenario(pressroom: Any) -> None:
        job = await pressroom.imports.start(
            await _create_list(pressroom), f"email\n{rows}".encode()
        )
        finished_job = await pressroom.wait_for_job(job, timeout=90)
        assert finished_job["result"]["added"] == 30_000

    calls = run_with_faults(scenario, "", "", "cut")
    streams = [call for call in calls if str(call["path"]).endswith("/events")]
    assert streams[0]["last_event_id"] is None
    assert streams[1]["last_event_id"]


@pytest.fixture
def run_with_tokens(package: ModuleType, stack: Stack, owner: Owner) -> Any:
    """Run a coroutine function with an OAuth client and the expired tokens of a person."""

    def run_scenario(
        scenario: Callable[[Any, Any], Awaitable[None]], http: httpx2.AsyncClient | None = None
    ) -> None:
        program = oauth.register(stack, scopes=(Scope.CREDIT_READ,))
        person = oauth.log_in(stack, owner)

        async def main() -> None:
            async with package.AsyncOAuth(
                stack.api_url,
                program.client_id,
                program.redirect_uri,
                client_secret=program.secret,
                http=http,
            ) as client:
                login = client.begin(["credit.read"])
                url = login.url.removeprefix(stack.api_url)
                consent = await asyncio.to_thread(
                    person.answer, url, "credit.read", decision="allow"
                )
                tokens = await client.finish(login, consent.headers["location"])
                expired = package.Tokens(tokens.access_token, tokens.refresh_token, time.time(), "")
                await scenario(client, expired)

        asyncio.run(main())

    return run_scenario


def test_asynchronous_client_refreshes_oauth_tokens_once_for_parallel_calls(
    package: ModuleType, stack: Stack, owner: Owner, run_with_tokens: Any
) -> None:
    stored: list[Any] = []

    async def store(tokens: Any) -> None:
        stored.append(tokens)

    async def scenario(client: Any, expired: Any) -> None:
        source = package.AsyncTokenSource(client, expired, on_change=store)
        async with package.AsyncPressroom(stack.api_url, source) as pressroom:
            balances = await asyncio.gather(*(pressroom.credits.read_balance() for _ in range(5)))
        assert {balance["user_id"] for balance in balances} == {owner.user_id}
        assert len(stored) == 1
        await client.revoke(stored[0])
        with pytest.raises(package.ApiError, match="invalid_grant"):
            await client.refresh(stored[0])

    run_with_tokens(scenario)


def test_asynchronous_token_source_keeps_tokens_if_a_task_is_cancelled_during_the_refresh(
    package: ModuleType, run_with_tokens: Any
) -> None:
    async def scenario(client: Any, expired: Any) -> None:
        stored: list[Any] = []
        source = package.AsyncTokenSource(client, expired, on_change=stored.append)
        is_refreshed = asyncio.Event()
        can_continue = asyncio.Event()

        async def delay_response(_: httpx2.Response) -> None:
            is_refreshed.set()
            await can_continue.wait()

        http.event_hooks = {"response": [delay_response]}
        cancelled_task = asyncio.create_task(source())
        other_task = asyncio.create_task(source())
        await is_refreshed.wait()
        cancelled_task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled_task
        can_continue.set()
        assert await other_task == await source() == stored[0].access_token
        assert len(stored) == 1

    http = httpx2.AsyncClient()
    run_with_tokens(scenario, http)


def test_asynchronous_token_source_stores_tokens_if_a_task_is_cancelled_during_on_change(
    package: ModuleType, run_with_tokens: Any
) -> None:
    async def scenario(client: Any, expired: Any) -> None:
        stored: list[Any] = []
        is_storing = asyncio.Event()
        can_continue = asyncio.Event()

        async def store(tokens: Any) -> None:
            is_storing.set()
            await can_continue.wait()
            stored.append(tokens)

        source = package.AsyncTokenSource(client, expired, on_change=store)
        cancelled_task = asyncio.create_task(source())
        await is_storing.wait()
        cancelled_task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled_task
        can_continue.set()
        token = await source()
        assert [tokens.access_token for tokens in stored] == [token]

    run_with_tokens(scenario)


def test_asynchronous_token_source_repeats_on_change_after_an_error(
    package: ModuleType, run_with_tokens: Any
) -> None:
    async def scenario(client: Any, expired: Any) -> None:
        stored: list[Any] = []

        async def store(tokens: Any) -> None:
            stored.append(tokens)
            if len(stored) == 1:
                raise OSError("The disk is full.")

        source = package.AsyncTokenSource(client, expired, on_change=store)
        with pytest.raises(OSError, match="The disk is full"):
            await source()
        token = await source()
        assert await source() == token
        assert [tokens.access_token for tokens in stored] == [token, token]

    run_with_tokens(scenario)


def test_closed_oauth_client_closes_its_own_http_client(
    package: ModuleType, run_with_tokens: Any
) -> None:
    async def scenario(client: Any, expired: Any) -> None:
        await client.aclose()
        with pytest.raises(RuntimeError, match="client has been closed"):
            await client.refresh(expired)

    run_with_tokens(scenario)


def test_asynchronous_client_warns_about_ignored_names_or_gets_errors(
    package: ModuleType, stack: Stack, owner: Owner
) -> None:
    async def create_lists(*, strict: bool) -> None:
        async with package.AsyncPressroom(stack.api_url, owner.key, strict=strict) as client:
            for _ in range(2):
                slug = f"t-{secrets.token_hex(8)}"
                await client.lists.create({"title": "Tea", "slug": slug, "colur": "red"})

    with pytest.warns(package.IgnoredNameWarning, match="body.colur") as warned:
        asyncio.run(create_lists(strict=False))
    assert [warning.filename for warning in warned] == [__file__]
    with pytest.raises(package.ApiError, match=r"body\.colur"):
        asyncio.run(create_lists(strict=True))


def test_asynchronous_upload_waits_until_the_image_is_ready(run: Run, package: ModuleType) -> None:
    async def upload(pressroom: Any) -> Any:
        ready = await pressroom.attachments.upload(PhotoFile(), prefer="respond-async", wait=60)
        assert ready["status"] == 2
        broken_file = package.File(photo()[:2000], "photo.jpg")
        await pressroom.upload_attachment(broken_file, prefer="respond-async", wait=60)

    with pytest.raises(package.AttachmentFailed):
        run(upload)
