import threading
from secrets import token_hex

import httpx
import pytest

from tests.contract.replies import data, problem, send
from tests.pictures import encoded, photo
from tests.stack import Owner, Stack


@pytest.fixture
def key() -> str:
    return token_hex(16)


def replayed(reply: httpx.Response) -> bool:
    return "true" in reply.headers.get_list("idempotent-replayed")


def count(client: httpx.Client) -> int:
    return len(data(client.get("/attachments"))["items"])


def test_same_request_again_is_the_first_answer_again(client: httpx.Client, key: str) -> None:
    first, second = send(client, key=key), send(client, key=key)
    assert data(first) == data(second)
    assert (replayed(first), replayed(second)) == (False, True)
    assert count(client) == 1


def test_trailing_slash_and_order_of_parameters_make_no_other_request(
    client: httpx.Client, key: str
) -> None:
    first = send(client, key=key, encrypted="0", note="x")
    again = client.post(
        "/attachments/?note=x&encrypted=0",
        files={"file": ("picture.png", encoded("PNG"))},
        headers={"Idempotency-Key": key},
    )
    assert data(again) == data(first)


def test_without_a_key_each_request_is_its_own(client: httpx.Client) -> None:
    assert data(send(client))["id"] != data(send(client))["id"]


@pytest.mark.parametrize("change", ["body", "query", "field", "filename"])
def test_key_of_another_request_is_422(client: httpx.Client, key: str, change: str) -> None:
    data(send(client, key=key))
    file = encoded("GIF") if change == "body" else encoded("PNG")
    reply = client.post(
        "/attachments",
        params={"encrypted": "true"} if change == "query" else {},
        files={"file": ("renamed.png" if change == "filename" else "picture.png", file)},
        data={"caption": "Sea"} if change == "field" else {},
        headers={"Idempotency-Key": key},
    )
    problem(reply, 422, "idempotency.key_reused")
    assert count(client) == 1


def test_same_key_of_another_caller_is_another_key(
    client: httpx.Client, neighbour: httpx.Client, key: str
) -> None:
    mine, theirs = send(client, key=key), send(neighbour, key=key)
    assert data(mine)["id"] != data(theirs)["id"]
    assert not replayed(theirs)


def test_key_belongs_to_the_user_not_to_the_credential(
    stack: Stack, client: httpx.Client, owner: Owner, key: str
) -> None:
    first = data(send(client, key=key))
    with stack.client(stack.new_key(owner.user_id)) as other:
        assert data(send(other, key=key)) == first


def test_equal_requests_at_once_make_one_attachment(
    stack: Stack, client: httpx.Client, owner: Owner, key: str
) -> None:
    replies: list[httpx.Response] = []
    content = photo(400, 300)
    start = threading.Barrier(4)

    def call() -> None:
        with stack.client(owner.key) as own:
            start.wait(10)
            replies.append(send(own, content, "a.jpg", key=key))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len({data(reply)["id"] for reply in replies}) == 1
    assert sorted(map(replayed, replies)) == [False, True, True, True]
    assert count(client) == 1
    left = [key for key in stack.stored("originals/") if not _known(stack, key)]
    assert left == []


def _known(stack: Stack, object_key: str) -> bool:
    hash_id = object_key.rpartition("/")[2]
    return bool(stack.query("SELECT 1 FROM attachments WHERE hash_id = %s", hash_id))


def test_202_is_answered_from_the_present_state(client: httpx.Client, key: str) -> None:
    first = data(send(client, photo(), "a.jpg", key=key, prefer="respond-async"), 200, 202)
    again = send(client, photo(), "a.jpg", key=key)
    assert replayed(again)
    assert (data(again)["id"], data(again)["status"]) == (first["id"], 2)


def test_202_again_is_202_while_the_work_waits(quiet_client: httpx.Client, key: str) -> None:
    first = send(quiet_client, key=key, prefer="respond-async")
    again = send(quiet_client, key=key, prefer="respond-async")
    assert data(first, 202) == data(again, 202)
    assert replayed(again)
    assert again.headers["location"] == first.headers["location"]


def test_refusal_frees_the_key(client: httpx.Client, key: str) -> None:
    problem(send(client, b"junk", key=key), 415, "attachment.unsupported_type")
    assert not replayed(send(client, key=key))


def test_failed_work_frees_the_key(client: httpx.Client, key: str) -> None:
    cut = encoded("PNG")[:-40]
    for _ in range(2):
        assert send(client, cut, key=key).status_code == 422
    reply = send(client, key=key)
    data(reply)
    assert not replayed(reply)


def test_cancelled_work_frees_the_key(quiet_client: httpx.Client, key: str) -> None:
    first = data(send(quiet_client, key=key, prefer="respond-async"), 202)
    assert data(quiet_client.delete(f"/attachments/{first['hash_id']}")) == 1
    again = send(quiet_client, key=key, prefer="respond-async")
    assert not replayed(again)
    assert data(again, 202)["id"] != first["id"]


def test_replay_of_a_deleted_attachment_makes_no_new_one(client: httpx.Client, key: str) -> None:
    record = data(send(client, key=key))
    data(client.delete(f"/attachments/{record['hash_id']}"))
    problem(send(client, key=key), 404, "attachment.not_found")
    assert count(client) == 0


def test_key_is_kept_for_24_hours(stack: Stack, client: httpx.Client, key: str) -> None:
    first = data(send(client, key=key))
    [(hours,)] = stack.query(
        "SELECT round(extract(epoch FROM expires_at - created_at) / 3600)::int"
        " FROM idempotency_records WHERE key = %s",
        key,
    )
    assert hours == 24
    stack.query("UPDATE idempotency_records SET expires_at = now() WHERE key = %s", key)
    later = send(client, key=key)
    assert not replayed(later)
    assert data(later)["id"] != first["id"]
    assert replayed(send(client, key=key))


def test_expired_key_may_be_used_for_another_request(
    stack: Stack, client: httpx.Client, key: str
) -> None:
    data(send(client, key=key))
    stack.query("UPDATE idempotency_records SET expires_at = now() WHERE key = %s", key)
    data(send(client, encoded("GIF"), key=key))


@pytest.mark.parametrize("bad", ["", "short", "x" * 15, "x" * 256, "caf\xe9" * 8])
def test_key_has_16_to_255_printable_characters(client: httpx.Client, bad: str) -> None:
    reply = client.post(
        "/attachments",
        files={"file": ("a.png", encoded("PNG"))},
        headers=httpx.Headers({"Idempotency-Key": bad}, encoding="latin-1"),
    )
    problem(reply, 400, "idempotency.key_invalid")
    assert count(client) == 0


def test_longest_and_shortest_keys_are_accepted(quiet_client: httpx.Client) -> None:
    for key in (token_hex(8), token_hex(200)[:255], '"quoted, with ~ ! spaces"'):
        data(send(quiet_client, key=key, prefer="wait=0"), 202)


def test_key_is_ignored_elsewhere(client: httpx.Client) -> None:
    for _ in range(2):
        headers = {"Idempotency-Key": "the same for both of them"}
        data(client.post("/apikeys", json={"name": "n"}, headers=headers))
    assert len([each for each in data(client.get("/apikeys")) if each["name"] == "n"]) == 2
    data(client.get("/users/me", headers={"Idempotency-Key": "bad"}))
