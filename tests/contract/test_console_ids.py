"""Console forms with an id field are sent with numbers that aren't valid ids."""

import httpx2
import pytest

from core.ids import MAX_UINT64
from devstack.harness.stack import Stack
from tests.support.lists.subscribers import new_list
from tests.support.people.consoles import OwnerAtConsole, at_operators_console

# Python's ``int`` refuses more than 4,300 digits, but accepts a non-ASCII digit and an underscore.
NUMBERS = ("1" * 5_000, str(MAX_UINT64 + 1), str(MAX_UINT64), "0", "-1", "٣", "1_0")
_LIST = "/console/lists/{list_id}"
# The path of the form, its id field, and the other required fields.
FIELDS: list[tuple[str, str, dict[str, str]]] = [
    (f"{_LIST}/export", "segment_id", {"format": "csv"}),
    (f"{_LIST}/members/1/move", "list", {}),
    (
        "/console/developers/webhooks/new",
        "list_id",
        {"url": "http://127.0.0.1:9/", "type.subscription.created": "on"},
    ),
    ("/account/sessions", "session", {}),
    ("/account/factors", "remove", {}),
]


@pytest.fixture
def form_client(console: OwnerAtConsole) -> httpx2.Client:
    """An HTTP client that sends the same Origin header as a form on a console page."""
    return from_our_pages(console)


def from_our_pages(console: OwnerAtConsole) -> httpx2.Client:
    client = console.visitor.client
    client.headers["Origin"] = str(client.base_url).rstrip("/")
    return client


@pytest.mark.parametrize(("path", "field", "others"), FIELDS)
def test_console_form_rejects_malformed_ids(
    *,
    console: OwnerAtConsole,
    form_client: httpx2.Client,
    path: str,
    field: str,
    others: dict[str, str],
) -> None:
    address = path.format(list_id=new_list(console.api)["id"])
    for number in NUMBERS:
        reply = form_client.post(address, data={**others, field: number})
        # The form must not act on all members, for example, if no segment has this id.
        assert reply.status_code in {404, 422}, (number[:30], reply.text)


def test_malformed_id_in_console_form_revokes_no_key_and_selects_no_segment(
    console: OwnerAtConsole, form_client: httpx2.Client
) -> None:
    for number in NUMBERS:
        form = {"password": "x", f"end.{number}": "on", "shown": number}
        assert form_client.post("/account/password", data=form).status_code == 422
        page = f"/console/lists/{new_list(console.api)['id']}/members"
        assert console.visitor.get(page, segment=number).status_code < 500
        files = {"file": ("members.csv", b"email\r\n")}
        upload = {"kind": "members", "list_id": number}
        reply = form_client.post("/console/imports/new", data=upload, files=files)
        assert reply.status_code in {404, 422}, (number[:30], reply.text)


def test_malformed_id_in_operator_console_selects_no_text_and_no_user(stack: Stack) -> None:
    with at_operators_console(stack) as operator:
        for number in NUMBERS:
            form = {"kind": "list", "id": number, "version": "1"}
            reply = from_our_pages(operator).post("/console/operators/texts", data=form)
            assert reply.status_code == 303
            found = operator.visitor.get("/console/operators/users", user=number)
            assert found.status_code in {404, 422}, number[:30]
