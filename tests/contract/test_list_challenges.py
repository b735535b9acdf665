"""Which challenge a list asks for: only of a provider that is set up here."""

import httpx

from tests.contract.replies import data, problem
from tests.contract.subscribers import new_list, new_slug
from tests.contract.test_lists import fields_at_fault
from tests.stack import Stack

LACKING = "list.challenge_provider"


def test_challenge_needs_a_provider(client: httpx.Client, list_id: int) -> None:
    path = f"/lists/{list_id}"
    body = problem(client.patch(path, json={"challenge_enabled": True}), 422, LACKING)
    assert fields_at_fault(body) == ["body.challenge_provider"]
    both = {"challenge_enabled": True, "challenge_provider": "turnstile"}
    assert data(client.patch(path, json=both))["challenge_site_key"] == "sandbox-turnstile-site-key"
    problem(client.patch(path, json={"challenge_provider": None}), 422, LACKING)
    off = {"challenge_enabled": False, "challenge_provider": None}
    changed = data(client.patch(path, json=off))
    assert (changed["challenge_provider"], changed["challenge_site_key"]) == (None, None)


def test_challenge_provider_must_be_set_up(quiet: Stack, quiet_client: httpx.Client) -> None:
    """That stack has no provider."""
    both = {"challenge_enabled": True, "challenge_provider": "recaptcha"}
    body = {"title": "T", "slug": new_slug(), **both}
    refusal = problem(quiet_client.post("/lists", json=body), 422, LACKING)
    assert "none" in refusal["message"]
    made = new_list(quiet_client)
    problem(quiet_client.patch(f"/lists/{made['id']}", json=both), 422, LACKING)


def test_a_list_whose_provider_is_gone_can_be_changed_otherwise(
    quiet: Stack, quiet_client: httpx.Client
) -> None:
    path = f"/lists/{new_list(quiet_client)['id']}"
    list_id = path.rpartition("/")[2]
    quiet.query(
        "UPDATE lists SET challenge_enabled = true, challenge_provider = 'recaptcha' WHERE id = %s",
        list_id,
    )
    assert data(quiet_client.patch(path, json={"title": "New"}))["title"] == "New"
    reply = quiet_client.post(
        f"/subscriptions/{list_id}",
        json={
            "email": "reader@example.com",
            "challenge-provider": "recaptcha",
            "challenge-token": "pass-1",
            "challenge-action": "subscribe",
        },
    )
    problem(reply, 503, "challenge.not_configured")
    assert "retry-after" in reply.headers
    assert data(quiet_client.patch(path, json={"challenge_enabled": False}))
