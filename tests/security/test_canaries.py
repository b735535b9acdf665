"""Tests that no secret of a request or a setting appears in logs, responses, metrics or results."""

import base64
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from devstack import LOOPBACK
from devstack.harness.free_ports import free_port
from devstack.harness.polling import eventually
from devstack.harness.running import Running
from devstack.harness.stack import Stack
from devstack.supervisor.programs import is_responding
from tests.support.images.pictures import encoded
from tests.support.lists.subscribers import new_list
from tests.support.people.visiting import read_hidden_fields

METRICS_TOKEN = "canary-metrics-" + secrets.token_hex(8)
FLOWER_PASSWORD = "canary-flower-" + secrets.token_hex(8)


def canary(name: str) -> str:
    return f"canary-{name}-{secrets.token_hex(8)}"


class CanaryStack:
    """A stack with a canary value in every secret setting, and all texts that the stack writes."""

    def __init__(self, stack: Stack, home: Path) -> None:
        self.stack = stack
        key = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
        settings = {
            "METRICS_TOKEN": METRICS_TOKEN,
            "FLOWER_PASSWORD": FLOWER_PASSWORD,
            "MAIL_URL": f"smtp://user:{canary('mail')}@{LOOPBACK}:9",
            "TURNSTILE_SECRET": canary("turnstile"),
            "TURNSTILE_SITE_KEY": "site",
            "TURNSTILE_URL": f"http://{LOOPBACK}:9/",
            "STRIPE_SECRET_KEY": f"sk_test_{canary('stripe')}",
            "STRIPE_WEBHOOK_SECRET": f"whsec_{canary('webhook')}",
            "STRIPE_BASE_URL": f"http://{LOOPBACK}:9",
            "LLM_PROVIDER": "openai",
            "LLM_MODEL": "model",
            "LLM_BASE_URL": f"http://{LOOPBACK}:9/v1",
            "LLM_API_KEY": canary("llm"),
            "STOCK_PHOTO_PROVIDER": "unsplash",
            "UNSPLASH_ACCESS_KEY": canary("unsplash"),
            "UNSPLASH_BASE_URL": f"http://{LOOPBACK}:9",
            "SECRET_KEYS": f"{stack.environment['PRESSROOM_SECRET_KEYS']},canary:{key}",
            "LOG_LEVEL": "debug",
        }
        stack.environment |= {f"PRESSROOM_{name}": each for name, each in settings.items()}
        self.secrets = {
            each for name, each in settings.items() if name.endswith(("SECRET", "KEY", "TOKEN"))
        } - {"site"}
        self.secrets |= {FLOWER_PASSWORD, settings["MAIL_URL"].split(":")[2].split("@")[0], key}
        for name in ("DATABASE_URL", "REDIS_URL"):
            credentials = stack.environment[f"PRESSROOM_{name}"].split("@")[0]
            self.secrets.add(credentials.rpartition(":")[2])
        for name in ("S3_SECRET_KEY", "ENCRYPTION_KEYS", "SECRET_KEYS"):
            self.secrets.add(stack.environment[f"PRESSROOM_{name}"].rpartition(":")[2])
        self.flower_port = free_port()
        self.answers: list[str] = []
        self.processes = self._start()

    def _start(self) -> list[Running]:
        stack = self.stack
        port = self.flower_port
        return [
            stack.start_api(),
            stack.start_worker("request", "photos", "money", "mail", "maintenance"),
            stack.start_worker("media"),
            stack.start_worker("bulk", concurrency=1),
            stack.start(
                "flower",
                "flower",
                "--port",
                str(port),
                ready=lambda: is_responding(port, "/healthcheck"),
            ),
        ]

    def readable_texts(self) -> dict[str, str]:
        """Return every text in which a secret could leak: logs, pages, jobs and API responses."""
        flower = httpx2.Client(
            base_url=f"http://{LOOPBACK}:{self.flower_port}",
            auth=("operator", FLOWER_PASSWORD),
            timeout=30.0,
        )
        with flower, self.stack.client(METRICS_TOKEN) as operator:
            pages = {path: flower.get(path).text for path in ("/workers", "/tasks", "/api/tasks")}
            pages["/metrics"] = operator.get("/metrics").text
        jobs = self.stack.query("SELECT row_to_json(jobs)::text FROM jobs")
        logs = {str(each.log): each.log.read_text() for each in self.stack.processes}
        return {
            **logs,
            **pages,
            "jobs": "\n".join(str(row) for (row,) in jobs),
            "answers": "\n".join(self.answers),
        }


@pytest.fixture(scope="module")
def canary_stack(make_stack: object, home: Path) -> Iterator[CanaryStack]:
    """A test stack whose secret settings are random words, which no output may ever contain."""
    assert callable(make_stack)
    created_stack = CanaryStack(make_stack("canaries"), home)
    yield created_stack
    created_stack.stack.stop()


def test_no_secret_appears_in_logs_errors_metrics_or_results(canary_stack: CanaryStack) -> None:
    stack = canary_stack.stack
    owner = stack.create_owner()
    names = ("bearer", "cookie", "challenge", "token", "signature")
    canaries = {name: canary(name) for name in names}
    with stack.client(owner.key) as client, stack.client() as stranger:
        canary_stack.answers += _make_calls(client, stranger, canaries)
    eventually(
        lambda: "attachment" in str(canary_stack.readable_texts()["jobs"]), what="the upload's job"
    )
    texts = canary_stack.readable_texts()
    assert "request" in "".join(texts.values())
    secret_values = canary_stack.secrets | set(canaries.values()) | {owner.key}
    assert len(secret_values) >= 18
    leaks = [
        (value[:16], source)
        for value in secret_values
        for source, text in texts.items()
        if value in text
    ]
    assert not leaks


def test_address_in_a_sign_up_form_is_in_no_url_log_job_or_metric(
    canary_stack: CanaryStack,
) -> None:
    stack = canary_stack.stack
    name = canary("reader")
    with stack.client(stack.create_owner().key) as client:
        mailing_list = new_list(client, confirm_required=True)
    with stack.client() as browser:
        page = browser.post(
            f"/s/{mailing_list['slug']}",
            data={"email": f"{name}@example.com"},
            follow_redirects=True,
        )
        pages = [page]
        for action in ("again", "correct"):
            form = {"answers": read_hidden_fields(page)["answers"], "action": action}
            pages.append(browser.post(str(page.url), data=form, follow_redirects=True))
    replies = [reply for each in pages for reply in (*each.history, each)]
    assert len(replies) == 6
    assert not [reply.url for reply in replies if name in f"{reply.url} {reply.headers}"]
    # Wait until a worker has tried to send the mail. The attempt fails without a mail server.
    attempt = (
        "SELECT 1 FROM jobs JOIN subscriptions s ON s.id = subject_id"
        " WHERE kind = 'subscription.mail_confirmation' AND list_id = %s AND attempt > 0"
    )
    eventually(lambda: stack.query(attempt, mailing_list["id"]), what="an attempt to send the mail")
    texts = canary_stack.readable_texts()
    assert not [source for source, text in texts.items() if name in text]


def _make_calls(
    client: httpx2.Client, stranger: httpx2.Client, canaries: dict[str, str]
) -> list[str]:
    """Send the canary values in valid and invalid requests, and return the texts of all replies."""
    mailing_list = new_list(client, challenge_enabled=True, challenge_provider="turnstile")
    challenge = {
        "email": "reader@example.com",
        "challenge-provider": "turnstile",
        "challenge-token": canaries["challenge"],
        "challenge-action": "subscribe",
    }
    webhook = {"Stripe-Signature": f"t={int(time.time())},v1={canaries['signature']}"}
    post = {"title": "Birds", "content": "Some words about birds."}
    order = {"amount": 5, "redirect_url": "https://shop.example/done"}
    token = {"claim_token": canaries["token"]}
    short_wait = {"Prefer": "wait=1"}
    replies = [
        stranger.get("/users/me", headers={"Authorization": f"Bearer {canaries['bearer']}"}),
        stranger.get("/users/me", headers={"X-API-Key": canaries["bearer"]}),
        stranger.get("/users/me", headers={"Cookie": f"session={canaries['cookie']}"}),
        stranger.post(f"/subscriptions/{mailing_list['id']}", json=challenge),
        stranger.post("/webhooks/stripe", content=b"{}", headers=webhook),
        stranger.post("/auxilia/credits/orders/status", json=token),
        stranger.post("/auxilia/credits/topup", json=order, headers=short_wait),
        client.post("/composer/metadata", json=post),
        client.get("/composer/stockphoto/photos/search", params={"query": "birds"}),
        client.post("/attachments", files={"file": ("p.png", encoded("PNG"))}),
        client.post("/attachments", files={"file": ("p.png", b"no picture")}),
        client.get("/jobs"),
        client.get("/apikeys"),
    ]
    return [f"{reply.headers} {reply.text}" for reply in replies]


def test_links_from_mails_do_not_appear_in_logs(stack: Stack) -> None:
    word = canary("link")
    with stack.client() as stranger:
        stranger.get("/unsubscribe", params={"trace_id": word})
        stranger.get("/confirm", params={"token": word})
        stranger.get("/media/none.webp", params={"signature": word, "expires": "1"})
    logs = [each.log.read_text() for each in stack.processes]
    assert not any(word in text for text in logs)
