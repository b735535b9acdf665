import httpx2

from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from tests.support.composer.composer_stack import build_unique_post
from tests.support.http.replies import send
from tests.support.images.pictures import photo
from tests.support.imports.bulk import build_csv, import_members_file
from tests.support.lists.subscribers import new_list
from tests.support.observability.otlp_collector import Collector
from tests.support.observability.traced_calls import COMPOSE, upload

ADDRESS = "anna.karenina@private.example"
NAME = "Karenina"
QUERY = "moonlight"
# The personal data in all forms that a URL or a log may contain.
PRIVATE_WORDS = (ADDRESS, "anna.karenina", "anna%2ekarenina", "private.example", NAME, QUERY)


def test_trace_spans_contain_no_personal_data(traced_stack: Stack, collector: Collector) -> None:
    owner = traced_stack.create_owner()
    with traced_stack.client(owner.key) as client:
        _use_personal_data(client)
    eventually(
        lambda: (
            {COMPOSE, "job members.import", "job attachment.process"}
            <= {each.name for each in collector.spans()}
            and any(each.name == "GET unmatched" for each in collector.spans())
        ),
        what="the spans of all calls",
    )
    _assert_private(collector, owner)
    # The OpenTelemetry SDK can add exceptions to spans, as events or as a status message. The text
    # of an exception could contain personal data.
    assert not any(each.span.events or each.span.status.message for each in collector.spans())


def _use_personal_data(client: httpx2.Client) -> None:
    """Make API calls with personal data: an upload, an import, a composer call and errors."""
    upload(client, f"{ADDRESS}.jpg", params={"note": QUERY})
    assert send(client, photo()[:-2000], f"{ADDRESS}.jpg").status_code == 422
    list_id = new_list(client, title=f"Letters of {NAME}")["id"]
    rows = build_csv(["Email", "Name"], [ADDRESS, f"Anna {NAME}"], ["broken", NAME])
    for _ in range(2):
        import_members_file(client, list_id, rows, f"{NAME}.csv")
    reply = client.post(
        "/composer/metadata", json=build_unique_post(f"Write to {ADDRESS}, {NAME}.")
    )
    assert reply.status_code == 200
    # The API calls below contain the e-mail address in a path, in a query, and in request bodies.
    # Some of the calls fail, because the database or the API's schema rejects the request body.
    assert client.get(f"/lists/{list_id}/members/{ADDRESS}").status_code == 200
    client.get(f"/lists/{list_id}/members", params={"q": QUERY, "email": ADDRESS})
    client.post(f"/subscriptions/{list_id}", json={"email": ADDRESS, "name": NAME})
    client.post("/users", json={"email": ADDRESS, "password": QUERY})
    client.get(f"/nowhere/{ADDRESS}", params={"q": QUERY})


def _assert_private(collector: Collector, owner: Owner) -> None:
    exported = b"".join(collector.bodies).lower()
    assert b"pressroom-api" in exported
    for word in (*PRIVATE_WORDS, owner.key, owner.email):
        assert word.lower().encode() not in exported, word
