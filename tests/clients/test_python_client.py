"""Tests of the synchronous Python client with the API of the test stack."""

import io
import json
import logging
import secrets
import time
import traceback
import warnings
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
import pytest

from core.scopes import Scope
from devstack.harness.free_ports import free_port
from devstack.harness.stack import Owner, Stack
from tests.support.clients import building, signed_messages
from tests.support.clients.building import PhotoFile
from tests.support.clients.signed_messages import BODY, SECRET, SPECIFICATION_HEADERS
from tests.support.images.pictures import photo
from tests.support.people import oauth


def test_python_client_verifies_the_example_of_the_webhook_specification(
    package: ModuleType,
) -> None:
    message = package.verify_webhook(SECRET, SPECIFICATION_HEADERS, BODY, tolerance=float("inf"))
    assert message == json.loads(BODY)


# Each test creates the messages anew, because they contain the current time.
@pytest.mark.parametrize("name", [case["name"] for case in signed_messages.build_messages()])
def test_python_client_accepts_only_correctly_signed_webhooks(
    package: ModuleType, name: str
) -> None:
    (case,) = (each for each in signed_messages.build_messages() if each["name"] == name)
    body = str(case["body"])
    for content in (body, body.encode()):
        if case["ok"]:
            verified = package.verify_webhook(case["secrets"], case["headers"], content)
            assert verified == json.loads(body)
        else:
            with pytest.raises(package.WebhookInvalid):
                package.verify_webhook(case["secrets"], case["headers"], content)


@pytest.mark.parametrize("secret", ["secret!", "whsec_é", "whsec_a b"])
def test_python_client_rejects_malformed_webhook_secret(package: ModuleType, secret: str) -> None:
    with pytest.raises(package.SecretInvalid, match="whsec_ and is base64") as error:
        package.verify_webhook(secret, signed_messages.sign_message(), BODY)
    assert isinstance(error.value, ValueError)
    assert secret not in "".join(traceback.format_exception(error.value))


@pytest.mark.parametrize("blank", ["\n", "\r\n", " ", "\t", "\ufeff"])
def test_python_client_removes_blanks_around_a_key(
    package: ModuleType, stack: Stack, owner: Owner, blank: str
) -> None:
    around = blank.replace("\ufeff", " ")
    with package.Pressroom(around + stack.api_url + around, blank + owner.key + blank) as client:
        assert client.read_me()["id"] == owner.user_id


@pytest.mark.parametrize("secret", ["prk_secret\nprk_second", "prk_sécret", "prk_sec\x00ret", "\n"])
def test_python_client_never_quotes_a_malformed_key(
    package: ModuleType, stack: Stack, secret: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with package.Pressroom(stack.api_url, secret) as client:
        with pytest.raises(package.SecretInvalid, match="key or token") as error:
            client.read_me()
        assert "prk_" not in repr(client)
    text = "".join(traceback.format_exception(error.value)) + caplog.text
    assert "prk_" not in text
    with package.Pressroom(
        stack.api_url, http=httpx2.Client(headers={"X-API-Key": "prk_secret\n"})
    ) as client:
        with pytest.raises(package.PressroomError, match="HTTP forbids") as error:
            client.read_me()
        assert "prk_" not in str(error.value)


@pytest.mark.parametrize(
    "url",
    [
        *("prk_secret", "https://prk_secret@example.com", "https://me:prk_secret@example.com"),
        *("https://example.com:prk_secret", "https://example.com/ prk_secret", "ftp://prk_secret"),
        *("https://", "https://prk_secret\n.example.com", ""),
    ],
)
def test_python_client_never_quotes_a_malformed_url(package: ModuleType, url: str) -> None:
    def open_oauth(url: str, key: str) -> Any:
        return package.OAuth(url, "client", "https://example.com", client_secret=key)

    for connect in package.Pressroom, package.AsyncPressroom, open_oauth:
        with pytest.raises(package.PressroomError, match="The URL of the API") as error:
            connect(url, "prk_secret")
        assert "prk_secret" not in str(error.value)
        assert error.value.__context__ is None


def test_python_client_rejects_a_key_that_is_not_a_text(package: ModuleType, stack: Stack) -> None:
    with (
        package.Pressroom(stack.api_url, b"prk_secret") as client,
        pytest.raises(package.SecretInvalid, match="isn't a text"),
    ):
        client.read_me()


def test_representation_of_oauth_tokens_has_no_token(package: ModuleType) -> None:
    tokens = package.Tokens("pra_secret", "prr_secret", 0.0, "credit.read")
    assert repr(tokens) == "Tokens(expires_at=0.0, scope='credit.read')"


SCOPES = ("credit.read", "attachment")


def _grant_access(stack: Stack, owner: Owner, url: str, decision: str = "allow") -> str:
    """Answer the consent page, and return the URL to which the person is redirected."""
    person = oauth.log_in(stack, owner)
    reply = person.answer(url.removeprefix(stack.api_url), *SCOPES, decision=decision)
    assert reply.status_code == 303, reply.text
    location: str = reply.headers["location"]
    return location


@pytest.fixture
def oauth_client(package: ModuleType, stack: Stack) -> Any:
    program = oauth.register(stack, scopes=(Scope.CREDIT_READ, Scope.ATTACHMENT))
    return package.OAuth(
        stack.api_url, program.client_id, program.redirect_uri, client_secret=program.secret
    )


def test_python_client_obtains_refreshes_and_revokes_oauth_tokens(
    package: ModuleType, stack: Stack, owner: Owner, oauth_client: Any
) -> None:
    login = oauth_client.begin(SCOPES)
    tokens = oauth_client.finish(login, _grant_access(stack, owner, login.url))
    assert set(tokens.scope.split()) == set(SCOPES)
    with package.Pressroom(stack.api_url, tokens.access_token) as client:
        assert client.read_balance()["user_id"] == owner.user_id
    stored_tokens: list[Any] = []
    expired = package.Tokens(tokens.access_token, tokens.refresh_token, time.time(), "")
    source = package.TokenSource(oauth_client, expired, on_change=stored_tokens.append)
    with package.Pressroom(stack.api_url, source) as client:
        assert client.read_balance()["user_id"] == owner.user_id
        client.read_balance()
    assert len(stored_tokens) == 1
    assert stored_tokens[0].access_token != tokens.access_token
    oauth_client.revoke(stored_tokens[0])
    with pytest.raises(package.ApiError) as error:
        oauth_client.refresh(stored_tokens[0])
    assert error.value.code == "invalid_grant"


def test_token_source_repeats_on_change_after_an_error(
    package: ModuleType, stack: Stack, owner: Owner, oauth_client: Any
) -> None:
    login = oauth_client.begin(SCOPES)
    tokens = oauth_client.finish(login, _grant_access(stack, owner, login.url))
    expired = package.Tokens(tokens.access_token, tokens.refresh_token, time.time(), "")
    stored: list[Any] = []

    def store(tokens: Any) -> None:
        stored.append(tokens)
        if len(stored) == 1:
            raise OSError("The disk is full.")

    source = package.TokenSource(oauth_client, expired, on_change=store)
    with pytest.raises(OSError, match="The disk is full"):
        source()
    token = source()
    assert source() == token
    assert [tokens.access_token for tokens in stored] == [token, token]


def test_python_client_rejects_oauth_redirect_of_another_login_or_server(
    package: ModuleType, stack: Stack, owner: Owner, oauth_client: Any
) -> None:
    login = oauth_client.begin(SCOPES)
    redirect_url = _grant_access(stack, owner, login.url)
    with pytest.raises(package.ApiError) as state_error:
        oauth_client.finish(oauth_client.begin(SCOPES), redirect_url)
    assert state_error.value.code == "state.mismatch"
    foreign_url = f"{oauth.REDIRECT}?code=c&state={login.state}"
    for url in (foreign_url, f"{foreign_url}&iss=https://evil.example"):
        with pytest.raises(package.ApiError) as issuer_error:
            oauth_client.finish(login, url)
        assert issuer_error.value.code == "iss.mismatch"


def test_python_client_raises_error_if_the_person_denies_access(
    package: ModuleType, stack: Stack, owner: Owner, oauth_client: Any
) -> None:
    login = oauth_client.begin(SCOPES)
    with pytest.raises(package.ApiError) as error:
        oauth_client.finish(login, _grant_access(stack, owner, login.url, decision="deny"))
    assert error.value.code == "access_denied"


def _new_list(pressroom: Any, name: str = "garden") -> int:
    mailing_list = pressroom.create_list({"title": "Garden", "slug": f"{name}-{time.time_ns()}"})
    list_id: int = mailing_list["id"]
    return list_id


def _new_members(pressroom: Any, count: int) -> int:
    list_id = _new_list(pressroom)
    members = [{"email": f"reader{n}@example.com"} for n in range(count)]
    assert pressroom.add_members(list_id, {"members": members}) == count
    return list_id


def test_python_client_uploads_files_from_paths_bytes_and_streams(
    package: ModuleType, pressroom: Any, tmp_path: Path
) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(photo())
    with path.open("rb") as file:
        uploads = [
            path,
            str(path),
            file,
            package.File(photo(), "photo.jpg"),
            package.File(iter([photo()[:1000], photo()[1000:]]), "photo.jpg"),
        ]
        attachments = [pressroom.upload_attachment(upload) for upload in uploads]
    assert {upload["original_filename"] for upload in attachments} == {"photo.jpg"}
    assert len({upload["original_checksum"] for upload in attachments}) == 1
    assert {upload["status"] for upload in attachments} == {2}
    with pytest.raises(package.ApiError, match="name must end in"):
        pressroom.upload_attachment(photo())


def test_python_client_downloads_an_uploaded_image(pressroom: Any, tmp_path: Path) -> None:
    attachment = pressroom.upload_attachment(PhotoFile())
    with pressroom.download_media(attachment["filename"]) as download:
        download.save(tmp_path / "there.webp")
    assert (tmp_path / "there.webp").stat().st_size == attachment["size"]
    assert len(pressroom.download_media(attachment["filename"]).read()) == attachment["size"]


def test_python_client_error_has_code_status_fields_and_request_id(
    package: ModuleType, pressroom: Any
) -> None:
    with pytest.raises(package.ApiError) as not_found_error:
        pressroom.read_attachment("0123456789ab")
    assert (not_found_error.value.code, not_found_error.value.status) == (
        "attachment.not_found",
        404,
    )
    assert not_found_error.value.request_id
    with pytest.raises(package.ApiError) as validation_error:
        pressroom.create_list({"title": 7, "slug": "garden"})
    assert validation_error.value.status == 422
    assert "body.title" in {each["field"] for each in validation_error.value.errors}
    with pytest.raises(package.PressroomError, match="no attachment with this id"):
        pressroom.read_attachment("0123456789ab")


def test_python_client_asks_its_credentials_callback_before_each_call(
    package: ModuleType, stack: Stack, owner: Owner
) -> None:
    keys = iter([owner.key, "prk_none"])
    with package.Pressroom(stack.api_url, lambda: next(keys)) as client:
        assert client.read_me()["id"] == owner.user_id
        with pytest.raises(package.ApiError):
            client.read_me()


@pytest.mark.parametrize("value", ["", ".", ".."])
def test_python_client_rejects_path_values_that_lead_to_another_path(
    pressroom: Any, value: str
) -> None:
    with pytest.raises(ValueError, match="list_id"):
        pressroom.read_list(value)


def test_python_client_iterates_every_collection_to_its_end(pressroom: Any) -> None:
    for name, arguments in building.create_items(pressroom).items():
        list_items = getattr(pressroom, name)
        expected_items = [_item_key(each) for each in list_items(**arguments, limit=100).items]
        iterated_items = islice(list_items(**arguments, limit=1), 200)
        assert [_item_key(each) for each in iterated_items] == expected_items, name
        if name in building.OPERATIONS_WITH_ITEMS:
            assert len(expected_items) >= building.ITEM_COUNT, name


def _item_key(item: dict[str, Any]) -> object:
    """Return the id of an item, or the whole item if it has no id, such as a consent entry."""
    return item.get("id", item)


def test_python_client_page_has_items_and_leads_to_the_next_page(pressroom: Any) -> None:
    list_id = _new_members(pressroom, 5)
    first = pressroom.list_members(list_id, limit=3)
    assert len(first.items) == 3
    assert first.pagination["total"] == 5
    second = first.next_page()
    assert len(second.items) == 2
    assert second.next_page() is None
    assert [len(page.items) for page in first.pages()] == [3, 2]
    assert [*pressroom.list_members(list_id, email="none@example.com")] == []


def test_python_client_waits_for_an_import_and_reports_progress(
    pressroom: Any, tmp_path: Path
) -> None:
    list_id = _new_list(pressroom)
    path = tmp_path / "members.csv"
    path.write_text("email\n" + "".join(f"reader{n}@example.com\n" for n in range(300)))
    statuses: list[str] = []
    job = pressroom.wait_for_job(
        pressroom.import_members(list_id, path),
        on_progress=lambda job: statuses.append(job["status"]),
        timeout=60,
    )
    assert job["result"]["added"] == 300
    assert statuses[-1] == "succeeded"
    record = pressroom.read_import(job["result"]["import_id"])
    assert record["filename"] == "members.csv"


def test_python_client_streams_large_request_bodies(package: ModuleType, pressroom: Any) -> None:
    list_id = _new_list(pressroom)
    rows = (f"reader{n}@example.com\n".encode() for n in range(2000))
    job = pressroom.import_members(
        list_id, package.File((b"email\n", *rows), "members.csv"), prefer="wait=30"
    )
    assert pressroom.wait_for_job(job["id"], timeout=60)["result"]["added"] == 2000
    stream = io.BytesIO(b"email\nben@example.com\n")
    assert pressroom.wait_for_job(pressroom.import_members(list_id, stream))["result"]["added"] == 1


def test_python_client_raises_the_error_code_of_a_failed_job(
    package: ModuleType, pressroom: Any
) -> None:
    job = pressroom.import_members(_new_list(pressroom), b"\x00\x01\x02" * 100)
    with pytest.raises(package.JobFailed) as error:
        pressroom.wait_for_job(job, timeout=60)
    assert error.value.job["status"] == "failed"
    assert error.value.code == error.value.job["error"]["code"]


def test_python_client_returns_accepted_job_if_the_work_outlasts_the_wait(
    package: ModuleType, pressroom: Any
) -> None:
    list_id = _new_list(pressroom)
    members = [{"email": f"reader{n}@example.com"} for n in range(50)]
    accepted = pressroom.add_members(list_id, {"members": members}, prefer="respond-async")
    assert isinstance(accepted, package.Accepted)
    assert pressroom.wait_for_job(accepted, timeout=60)["result"]["added"] == 50


def test_python_client_stops_waiting_for_a_job_after_its_timeout(pressroom: Any) -> None:
    rows = "".join(f"reader{n}@example.com\n" for n in range(30_000))
    job = pressroom.import_members(_new_list(pressroom), f"email\n{rows}".encode())
    with pytest.raises(TimeoutError):
        pressroom.wait_for_job(job, timeout=0.05)
    pressroom.cancel_job(job["id"])


def test_python_client_warns_once_about_each_ignored_name(
    package: ModuleType, stack: Stack, owner: Owner
) -> None:
    with package.Pressroom(stack.api_url, owner.key) as client:

        def create_list(**more: Any) -> None:
            client.lists.create({"title": "Tea", "slug": f"t-{secrets.token_hex(8)}", **more})

        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            create_list()
            create_list(confirm_requird=False)
            create_list(confirm_requird=False)
            create_list(confirm_requird=False, colur="red")
            with pytest.raises(package.ApiError):
                client.lists.create({"titel": "Tea", "slug": "tea"})
    assert {warning.category for warning in warned} == {package.IgnoredNameWarning}
    assert [str(warning.message).partition(" in POST /lists.")[0] for warning in warned] == [
        "The API ignored body.confirm_requird",
        "The API ignored body.colur",
        "The API ignored body.titel",
    ]
    # The warning shows the line of the program, not a line of the client.
    assert {warning.filename for warning in warned} == {__file__}


def test_strict_python_client_gets_errors_for_unknown_names(
    package: ModuleType, stack: Stack, owner: Owner
) -> None:
    with package.Pressroom(stack.api_url, owner.key, strict=True) as client:
        slug = f"t-{secrets.token_hex(8)}"
        with pytest.raises(package.ApiError, match=r"body\.confirm_requird") as error:
            client.lists.create({"title": "Tea", "slug": slug, "confirm_requird": False})
        assert error.value.code == "request.unknown"
        mailing_list = client.lists.create({"title": "Tea", "slug": slug})
        # The call's own preference is sent too.
        people = {"members": [{"email": f"{slug}@example.com", "age": 7}]}
        with pytest.raises(package.ApiError, match=r"members\[0\]\.age"):
            client.members.add(mailing_list["id"], people, prefer="respond-async")
        del people["members"][0]["age"]
        job = client.members.add(mailing_list["id"], people, prefer="respond-async")
        assert isinstance(job, package.Accepted)


def test_python_upload_waits_until_the_image_is_ready(pressroom: Any, package: ModuleType) -> None:
    ready = pressroom.attachments.upload(PhotoFile(), prefer="respond-async", wait=60)
    assert (ready["status"], ready["width"] > 0) == (2, True)
    broken_file = package.File(photo()[:2000], "photo.jpg")
    with pytest.raises(package.AttachmentFailed) as error:
        pressroom.attachments.upload(broken_file, prefer="respond-async", wait=60)
    assert error.value.code == error.value.attachment["error"]["code"]
    assert error.value.attachment["status"] == 3
    assert isinstance(error.value, package.PressroomError)


def test_python_upload_stops_waiting_after_the_given_time(
    pressroom: Any, package: ModuleType, stack: Stack
) -> None:
    unready = pressroom.attachments.upload(PhotoFile()) | {"status": 1}
    answers = {"data": unready, "ts": 0}
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, json=answers))
    with (
        httpx2.Client(transport=transport) as http,
        package.Pressroom(stack.api_url, http=http) as client,
        pytest.raises(TimeoutError, match=unready["hash_id"]),
    ):
        client.upload_attachment(PhotoFile(), wait=0.2)


def test_python_errors_name_the_url_of_an_unreachable_or_foreign_server(
    package: ModuleType, stack: Stack
) -> None:
    closed_url = f"http://127.0.0.1:{free_port()}"
    with (
        package.Pressroom(closed_url, retries=package.Retries(max_retries=0)) as client,
        pytest.raises(package.NotReached, match=f"No answer from {closed_url}: "),
    ):
        client.read_me()
    # The sandbox responds with JSON, but not as Pressroom does.
    with (
        package.Pressroom(stack.sandbox_url) as client,
        pytest.raises(package.ApiError) as error,
    ):
        client.read_me()
    assert (
        error.value.message == f"{stack.sandbox_url}/users/me responded with status 404: Not Found"
    )
    assert (error.value.code, error.value.problem) == ("http.404", {"detail": "Not Found"})
