"""Tests of trace ids, which are signed and identify one person on one list."""

import base64
import string

import httpx2

from core.ids import PersonId
from core.keyring import Key, Keyring
from devstack.harness.opening import RETIRED_KEY
from devstack.harness.stack import Stack
from services.subscriptions.members import traces
from services.subscriptions.members.traces import Trace
from tests.support.http.replies import data, problem
from tests.support.lists.subscribers import Reader, subscribe, trace_for

FOREIGN_KEYRING = Keyring([Key("foreign", b"f" * 32)])


def replace_character(text: str, index: int) -> str:
    letters = string.ascii_letters + string.digits
    replacement = letters[(letters.find(text[index]) + 1) % len(letters)]
    return text[:index] + replacement + text[index + 1 :]


def build_forgeries(stack: Stack, genuine: str, list_id: int, user_id: int) -> dict[str, str]:
    keyring = stack.resources.keyring
    signed, key_id, mac = genuine.split(".")
    other_key = Keyring([Key(keyring.current.id, b"o" * 32)])
    trace = Trace(list_id, PersonId(user_id))
    short_mac = base64.urlsafe_b64encode(base64.urlsafe_b64decode(mac + "==")[:15]).decode()
    return {
        "empty parts": "..",
        "nonsense": "nonsense",
        "no signature": signed,
        "empty signature": f"{signed}.{key_id}.",
        "cut at its end": genuine[:-1],
        "cut at its beginning": genuine[1:],
        "a shorter mac": f"{signed}.{key_id}.{short_mac}",
        "longer": genuine + "A",
        "padded": genuine + "=",
        "with a space": genuine + " ",
        "with a line end": genuine + "\n",
        "with a NUL": genuine + "\0",
        "in capitals": genuine.upper(),
        "another version": f"2{genuine[1:]}",
        "another person": f"{replace_character(signed, 15)}.{key_id}.{mac}",
        "another delivery": f"{replace_character(signed, 28)}.{key_id}.{mac}",
        "another mac": f"{signed}.{key_id}.{replace_character(mac, 3)}",
        "another key's name": f"{signed}.other.{mac}",
        "no key's name": f"{signed}..{mac}",
        "a foreign key": traces.create_trace_id(FOREIGN_KEYRING, trace),
        "a foreign key under our name": traces.create_trace_id(other_key, trace),
        "very long": genuine * 100,
        "other digits": genuine.replace("1", "\u0661"),
    }


def translate_to_standard_base64(genuine: str) -> set[str]:
    """Rewrite a trace id from the URL-safe to the standard base64 alphabet.

    Return a set with the rewritten trace id, or an empty set if rewriting changes nothing.
    """
    return {genuine.translate(str.maketrans("-_", "+/"))} - {genuine}


def test_forged_trace_ids_are_rejected(
    stack: Stack, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    genuine_trace_id = trace_for(stack, list_id, reader.user_id)
    for forgery, forged_trace_id in build_forgeries(
        stack, genuine_trace_id, list_id, reader.user_id
    ).items():
        body = {"trace_id": forged_trace_id}
        for reply in (
            stranger.request("DELETE", f"/subscriptions/{list_id}", json=body),
            stranger.post(f"/subscriptions/{list_id}/delete", json=body),
            stranger.put(f"/subscriptions/{list_id}/email", json={**body, "enabled": False}),
            stranger.get("/subscriptions/opponent", params=body),
        ):
            assert (forgery, reply.status_code) == (forgery, 403)
            problem(reply, 403, "trace.invalid")
    assert reader.read_status(list_id) == ("active", True)
    assert (
        data(stranger.delete(f"/subscriptions/{list_id}", params={"trace_id": genuine_trace_id}))
        == 1
    )


def test_trace_id_in_another_base64_alphabet_is_rejected(
    stack: Stack, stranger: httpx2.Client, list_id: int
) -> None:
    keyring = stack.resources.keyring
    trace_ids = (
        traces.create_trace_id(keyring, Trace(list_id, PersonId(user_id)))
        for user_id in range(2**40, 2**40 + 200)
    )
    spellings = [
        spelling for trace_id in trace_ids for spelling in translate_to_standard_base64(trace_id)
    ]
    assert spellings
    for trace_id in spellings[:5]:
        reply = stranger.delete(f"/subscriptions/{list_id}", params={"trace_id": trace_id})
        problem(reply, 403, "trace.invalid")


def test_trace_id_needs_no_url_encoding_and_has_a_maximum_length(stack: Stack) -> None:
    longest_trace_id = trace_for(stack, 2**53 - 1, 2**53 - 1)
    assert len(longest_trace_id) <= traces.MAX_TRACE_ID_CHARACTERS
    assert set(longest_trace_id) <= set(string.ascii_letters + string.digits + "_.-")


def test_trace_id_signed_with_a_retired_key_is_accepted(
    stack: Stack, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    assert stack.resources.keyring.current != RETIRED_KEY
    reader.joins(list_id)
    trace_id = traces.create_trace_id(
        Keyring([RETIRED_KEY]), Trace(list_id, PersonId(reader.user_id))
    )
    assert f".{RETIRED_KEY.id}." in trace_id
    assert data(stranger.delete(f"/subscriptions/{list_id}", params={"trace_id": trace_id})) == 1
    assert reader.read_status(list_id)[0] == "unsubscribed"


def test_opt_out_stored_with_a_retired_key_still_applies(
    stack: Stack, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    digest = Keyring([RETIRED_KEY]).signer("opt-out").digest(reader.email.encode())
    stack.query(
        "INSERT INTO opt_outs (list_id, address_hmac, kind, source) "
        "VALUES (%s, %s, 'list', 'page')",
        list_id,
        digest,
    )
    assert data(subscribe(stranger, list_id, reader.email)) == 1
    assert reader.read_status(list_id)[0] == "pending"
    reader.joins(list_id)
    assert stack.query("SELECT 1 FROM opt_outs WHERE list_id = %s", list_id) == []
