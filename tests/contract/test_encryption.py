"""Tests of signed links to encrypted files, and of the rotation of encryption keys."""

import io
import time
from datetime import datetime

import httpx2
import pytest
from PIL import Image

from devstack.harness.stack import Stack
from tests.support.commands.running import run_json_command
from tests.support.http.replies import data, problem, send
from tests.support.http.webhook_receiver import new_endpoint
from tests.support.images.links import new_link, request_link
from tests.support.images.pictures import photo
from tests.support.imports.bulk import (
    build_address_file,
    build_addresses,
    export,
    fetch_rows,
    import_members_file,
)
from tests.support.lists.subscribers import new_list


def test_signed_link_shows_an_encrypted_file_without_login(
    client: httpx2.Client, stranger: httpx2.Client, encrypted_attachment: dict[str, object]
) -> None:
    assert stranger.get(str(encrypted_attachment["view_url"])).status_code == 404
    reply = stranger.get(new_link(client, encrypted_attachment))
    assert reply.status_code == 200
    assert reply.headers["cache-control"] == "private, no-store"
    assert Image.open(io.BytesIO(reply.content)).size == (640, 480)


def test_signed_link_response_contains_its_expiry(
    client: httpx2.Client, encrypted_attachment: dict[str, object]
) -> None:
    signed_link = data(request_link(client, encrypted_attachment, 3600))
    assert set(signed_link) == {"url", "expires_at"}
    expires = int(httpx2.URL(signed_link["url"]).params["expires"])
    assert abs(expires - time.time() - 3600) < 60
    assert datetime.fromisoformat(signed_link["expires_at"]).timestamp() == expires


@pytest.mark.parametrize("expires_in", [0, -1, 604_801, 1.5, "60", None])
def test_signed_link_rejects_a_lifetime_outside_one_second_to_seven_days(
    client: httpx2.Client, encrypted_attachment: dict[str, object], expires_in: object
) -> None:
    error = problem(request_link(client, encrypted_attachment, expires_in), 422, "body.invalid")
    assert error["errors"][0]["field"] == "body.expires_in"


def test_signed_link_with_a_changed_parameter_returns_404(
    client: httpx2.Client, stranger: httpx2.Client, encrypted_attachment: dict[str, object]
) -> None:
    url = new_link(client, encrypted_attachment)
    expires, signature = url.params["expires"], url.params["signature"]
    other_attachment = data(send(client, photo(), "o.jpg", encrypted="1"))
    forged_urls = [
        url.copy_merge_params({"expires": str(int(expires) + 1)}),
        url.copy_merge_params({"expires": f"{expires}0"}),
        url.copy_merge_params({"expires": f" {expires}"}),
        url.copy_merge_params({"expires": "٣"}),
        url.copy_merge_params({"signature": signature[:-1]}),
        url.copy_merge_params({"signature": ""}),
        url.copy_merge_params({"signature": "." + signature.partition(".")[2]}),
        url.copy_with(path=f"/{other_attachment['pathname']}"),
    ]
    assert [stranger.get(each).status_code for each in forged_urls] == [404] * len(forged_urls)


@pytest.mark.parametrize(("seconds", "status"), [(-1, 404), (59, 200)])
def test_expired_signed_link_returns_404(
    stack: Stack,
    stranger: httpx2.Client,
    encrypted_attachment: dict[str, object],
    seconds: int,
    status: int,
) -> None:
    signer = stack.settings().keyring.signer("media-link")
    expires = int(time.time()) + seconds
    signature = signer.sign(f"{encrypted_attachment['filename']}\n{expires}".encode())
    link = f"{encrypted_attachment['view_url']}?expires={expires}&signature={signature}"
    assert stranger.get(link).status_code == status


def test_signed_link_request_for_an_unencrypted_file_is_rejected(client: httpx2.Client) -> None:
    problem(request_link(client, data(send(client))), 409, "link.not_encrypted")


def test_encryption_key_rotation_rewraps_data_keys_without_rewriting_stored_objects(
    stack: Stack, client: httpx2.Client, encrypted_attachment: dict[str, object]
) -> None:
    object_key = str(encrypted_attachment["pathname"])
    stored_object = stack.resources.objects.get(object_key)
    list_id = new_list(client)["id"]
    import_members_file(client, list_id, build_address_file(*build_addresses(2)))
    export_url = data(export(client, list_id, "members"))["result"]["url"]
    new_endpoint(client, "http://127.0.0.1:9/")
    data(client.post("/senders", json={"name": "Ours", "provider": "generic"}))
    old_keys = stack.environment["PRESSROOM_ENCRYPTION_KEYS"]
    new_key = "rotated:" + "b" * 43
    result = run_json_command(
        stack, "encryption", "rotate", PRESSROOM_ENCRYPTION_KEYS=f"{new_key},{old_keys}"
    )
    assert result["key"] == "rotated"
    assert result["rewrapped"] >= 1
    assert result["old_keys"] == {entry.partition(":")[0]: 0 for entry in old_keys.split(",")}
    for table in ("attachments", "imports", "exports", "webhook_secrets", "sender_secrets"):
        rows = stack.query(f"SELECT DISTINCT wrapped_by FROM {table} WHERE wrapped_by IS NOT NULL")
        assert rows == [("rotated",)]
    assert stack.resources.objects.get(object_key) == stored_object
    # Rotate back to the old encryption key, because the API process of this stack knows no other
    # key.
    run_json_command(
        stack, "encryption", "rotate", PRESSROOM_ENCRYPTION_KEYS=f"{old_keys},{new_key}"
    )
    assert client.get(str(encrypted_attachment["view_url"])).status_code == 200
    assert len(fetch_rows(export_url)) == 2
