"""Tests that run the recipes of docs/sending.md as a reader does, and check the sent mails."""

import re
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import httpx2
import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from core.scopes import Scope
from devstack import LOOPBACK
from devstack.harness.free_ports import free_port
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack, plain_client
from devstack.sandbox.sandbox_settings import (
    LISTMONK_PREFIX,
    LISTMONK_TOKEN,
    LISTMONK_USER,
    RESEND_API_KEY,
    RESEND_PREFIX,
)
from devstack.supervisor.prepare import DEMO_LIST_SLUG
from tests.support.documents import markdown
from tests.support.documents.reader_folder import reader_folder
from tests.support.http.replies import data
from tests.support.imports.bulk import export_emails
from tests.support.prerequisites import skip_or_fail

_DOCUMENT = markdown.ROOT / "docs" / "sending.md"
_FILE_NAME = re.compile(r"# (\w+\.py)\n")
_LINK = re.compile(r"<(http\S+/unsubscribe\?trace_id=[\w.~-]+)>")
_RECIPES = ("smtp", "resend", "listmonk")
# The members of the mailing list in docs/sending.md. The first two attempts to send mail to
# ``later@example.com`` fail.
_READERS = ["ada@example.com", "later@example.com"]


def _blocks(language: str) -> list[str]:
    return [
        each.text
        for each in markdown.blocks(_DOCUMENT)
        if each.is_run and each.language == language
    ]


def _preparation() -> str:
    return _blocks("sh")[0]


def _commands(recipe: str) -> str:
    return next(each for each in _blocks("sh") if f"send_{recipe}.py" in each)


@dataclass
class Sender:
    """The computer of a reader who has saved all files of the document in one directory."""

    stack: Stack
    folder: Path
    owner: Owner
    # The folder with the package of the Python client.
    client: Path

    def run(self, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            check=False,
            cwd=self.folder,
            env=self.build_environment(**environment),
            capture_output=True,
            text=True,
        )

    def build_environment(self, **environment: str) -> dict[str, str]:
        home = {"HOME": str(self.folder), "CURL_HOME": str(self.folder)}
        client = {"PYTHONPATH": str(self.client)}
        return {**self.stack.environment, **home, **client, **environment}

    def create_list(self, *members: str) -> str:
        """Create a list with these members, in this order, and return the list's slug."""
        slug = f"letter-{time.time_ns()}"
        with self.stack.client(self.owner.key) as client:
            data(client.post("/lists", json={"title": "Letter", "slug": slug}))
            for email in members:
                data(client.put(f"/lists/{slug}/members/{email}", json={}))
        return slug

    def build_resend_environment(self, slug: str) -> dict[str, str]:
        """Return the environment of ``send_resend.py`` for a list."""
        return {
            "PRESSROOM_URL": self.stack.api_url,
            "PRESSROOM_KEY": self.stack.create_key(self.owner.user_id, Scope.DELIVERY),
            "LIST": slug,
            "ISSUE": slug,
            "RESEND_URL": f"{self.stack.sandbox_url}{RESEND_PREFIX}",
            "RESEND_API_KEY": RESEND_API_KEY,
        }

    def mails(self, to: str) -> list[dict[str, Any]]:
        with plain_client() as client:
            reply = client.get(f"{self.stack.sandbox_url}/mail/messages", params={"to": to})
        messages: list[dict[str, Any]] = reply.raise_for_status().json()
        return messages

    def clear_mailbox(self, *addresses: str) -> None:
        with plain_client() as client:
            for address in addresses:
                path = f"{self.stack.sandbox_url}/mail/messages"
                client.delete(path, params={"to": address}).raise_for_status()


@pytest.fixture
def sender(stack: Stack, demo: Owner, client_folder: Path, tmp_path: Path) -> Iterator[Sender]:
    if shutil.which("curl") is None:
        skip_or_fail("the recipes need curl")
    for block in _blocks("python"):
        name = _FILE_NAME.match(block)
        assert name is not None, block
        (tmp_path / name[1]).write_text(block)
    with reader_folder(tmp_path, stack, demo.key) as folder:
        sender = Sender(stack, folder, demo, client_folder)
        yield sender
    # Other tests expect only Pressroom's own mails to these addresses.
    sender.clear_mailbox(*_READERS)


def header(mail: dict[str, Any], name: str) -> str:
    return str(mail["headers"][name])


@pytest.mark.parametrize("recipe", _RECIPES)
def test_recipe_mails_each_member_once_with_working_unsubscribe_link(
    recipe: str, sender: Sender
) -> None:
    leaver = f"leaver-{recipe}@example.com"
    muted = f"muted-{recipe}@example.com"
    pending = f"pending-{recipe}@example.com"
    removed = f"removed-{recipe}@example.com"
    path = f"/lists/{DEMO_LIST_SLUG}/members"
    with sender.stack.client(sender.owner.key) as client:
        members = {
            each: data(client.put(f"{path}/{each}", json={})) for each in (leaver, muted, removed)
        }
        subscriptions = f"/subscriptions/{DEMO_LIST_SLUG}/members"
        muted_id = members[muted]["user_id"]
        removed_id = members[removed]["user_id"]
        data(client.put(f"{subscriptions}/{muted_id}/email", json={"enabled": False}))
        data(client.delete(f"{subscriptions}/{removed_id}"))
        list_id = data(client.get(f"/lists/{DEMO_LIST_SLUG}"))["id"]
    with sender.stack.client() as stranger:
        data(stranger.post(f"/subscriptions/{list_id}", json={"email": pending}))
    sender.clear_mailbox(*_READERS)

    script = _preparation() + _commands(recipe)
    for count in (len((*_READERS, leaver)), 0):
        completed = sender.run(script)
        assert completed.returncode == 0, completed.stdout + completed.stderr
        assert completed.stdout.endswith(f"{count} mails sent\n")

    links: list[str] = []
    for address in (*_READERS, leaver):
        [mail] = sender.mails(address)
        assert mail["subject"] == "Tea in November"
        assert mail["from"] == "The Daily Demo <news@example.com>"
        assert header(mail, "To") == address
        assert header(mail, "List-Unsubscribe-Post") == "List-Unsubscribe=One-Click"
        assert header(mail, "List-Id").startswith(f"<{DEMO_LIST_SLUG}."), mail["headers"]
        link = _LINK.fullmatch(header(mail, "List-Unsubscribe"))
        assert link is not None, mail["headers"]
        links.append(link[1])
        assert f'<a href="{link[1]}">Unsubscribe</a>' in mail["html"]
        if recipe != "listmonk":
            assert f"Unsubscribe: {link[1]}\n" in mail["text"]
    assert len(set(links)) == len(links)
    subjects = [each["subject"] for each in sender.mails(pending)]
    assert "Tea in November" not in subjects
    assert sender.mails(muted) == sender.mails(removed) == []

    one_click = httpx2.post(links[-1], data={"List-Unsubscribe": "One-Click"})
    assert one_click.status_code == 200, one_click.text
    key = sender.stack.create_key(sender.owner.user_id, Scope.DELIVERY)
    with sender.stack.client(key) as client:
        assert sorted(export_emails(client, list_id, "delivery")) == _READERS


def test_sending_continues_after_a_crash_without_a_second_mail(sender: Sender) -> None:
    first_email, slow_email, last_email = (
        f"{name}+{time.time_ns()}@example.com" for name in ("first", "slow", "last")
    )
    slug = sender.create_list(first_email, slow_email, last_email)
    environment = sender.build_resend_environment(slug)
    command = [sys.executable, "send_resend.py"]
    crashing = subprocess.Popen(
        command, cwd=sender.folder, env=sender.build_environment(**environment)
    )
    try:
        eventually(lambda: len(_read_log(sender.folder, slug)) == 2, what="the slow mail")
        second_program = sender.run("python send_resend.py", **environment, PATH=_python_path())
        assert "database is locked" in second_program.stderr
    finally:
        crashing.kill()
        crashing.wait()
    assert sorted(_read_log(sender.folder, slug)) == [0, 1]
    assert sender.mails(last_email) == []

    # Pretend that the program crashed before it recorded that the provider accepted the first mail.
    with sqlite3.connect(sender.folder / f"{slug}.sqlite3") as log:
        log.execute("UPDATE members SET sent = 0")
    with sender.stack.client(sender.owner.key) as client:
        slow_id = data(client.get(f"/lists/{slug}/members/{slow_email}"))["user_id"]
        data(client.delete(f"/subscriptions/{slug}/members/{slow_id}"))
    completed = sender.run("python send_resend.py", **environment, PATH=_python_path())
    assert completed.returncode == 0, completed.stderr
    mail_counts = [len(sender.mails(each)) for each in (first_email, slow_email, last_email)]
    assert mail_counts == [1, 0, 1]


def test_sending_skips_refused_addresses_and_reports_their_number(sender: Sender) -> None:
    refused_email, accepted_email = (
        f"{name}+{time.time_ns()}@example.com" for name in ("reject", "reader")
    )
    slug = sender.create_list(refused_email, accepted_email)
    environment = sender.build_resend_environment(slug) | {
        "SMTP_URL": sender.stack.environment["PRESSROOM_MAIL_URL"]
    }
    for _ in range(2):
        completed = sender.run("python send_smtp.py", **environment, PATH=_python_path())
        assert completed.returncode == 1
        assert "There is no such mailbox" in completed.stderr
        assert "1 mails were not sent. Run the program again later" in completed.stderr
    assert len(sender.mails(accepted_email)) == 1


def test_many_refused_addresses_stop_only_the_first_run(sender: Sender) -> None:
    number = time.time_ns()
    accepted_email = f"reader+{number}@example.com"
    refused_emails = [f"reject+{number}.{each}@example.com" for each in range(5)]
    slug = sender.create_list(*refused_emails, accepted_email)
    environment = sender.build_resend_environment(slug) | {
        "SMTP_URL": sender.stack.environment["PRESSROOM_MAIL_URL"]
    }
    for expected_mails in (0, 1, 1):
        completed = sender.run("python send_smtp.py", **environment, PATH=_python_path())
        assert completed.returncode == 1
        assert len(sender.mails(accepted_email)) == expected_mails, completed.stderr
    with sender.stack.client(sender.owner.key) as client:
        mailings = data(client.get(f"/lists/{slug}/mailings"))["items"]
    assert {each["label"] for each in mailings} == {slug}


class _ServerWithoutExtensions:
    """The handler of an SMTP server that doesn't offer SMTPUTF8. It stores the recipients."""

    def __init__(self) -> None:
        self.recipients: list[str] = []

    async def handle_RCPT(  # noqa: N802 - aiosmtpd's name
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        envelope.rcpt_tos.append(address)
        self.recipients.append(address)
        return "250 OK"


def test_addresses_beyond_ascii_are_converted_or_skipped_for_good(sender: Sender) -> None:
    number = time.time_ns()
    skipped = [f"jörg{index}+{number}@example.com" for index in range(6)]
    converted = f"ann+{number}@bücher.example.com"
    plain = f"ann+{number}@example.com"
    environment = sender.build_resend_environment(sender.create_list(*skipped, converted, plain))
    handler = _ServerWithoutExtensions()
    server = Controller(handler, hostname=LOOPBACK, port=free_port(), enable_SMTPUTF8=False)
    server.start()
    try:
        environment["SMTP_URL"] = f"smtp://{LOOPBACK}:{server.port}"
        first, second = (
            sender.run("python send_smtp.py", **environment, PATH=_python_path()) for _ in range(2)
        )
    finally:
        server.stop()
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert handler.recipients == [f"ann+{number}@xn--bcher-kva.example.com", plain]
    assert first.stdout.splitlines() == [
        "2 mails sent",
        "6 mails skipped, because the server refuses addresses beyond ASCII",
    ]
    assert second.stdout.splitlines() == ["0 mails sent"]


class _ServerThatRefusesTheSender(_ServerWithoutExtensions):
    """The handler of an SMTP server that refuses the sender of the first mails."""

    refused = True

    async def handle_MAIL(  # noqa: N802 - aiosmtpd's name
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if self.refused:
            return "550 5.7.1 Sender refused"
        envelope.mail_from = address
        envelope.mail_options.extend(options)
        return "250 OK"


def test_address_beyond_ascii_is_tried_again_if_the_server_refused_the_sender(
    sender: Sender,
) -> None:
    address = f"jörg+{time.time_ns()}@example.com"
    environment = sender.build_resend_environment(sender.create_list(address))
    handler = _ServerThatRefusesTheSender()
    server = Controller(handler, hostname=LOOPBACK, port=free_port(), enable_SMTPUTF8=True)
    server.start()
    try:
        environment["SMTP_URL"] = f"smtp://{LOOPBACK}:{server.port}"
        first = sender.run("python send_smtp.py", **environment, PATH=_python_path())
        handler.refused = False
        second = sender.run("python send_smtp.py", **environment, PATH=_python_path())
    finally:
        server.stop()
    assert first.returncode == 1
    assert "1 mails were not sent. Run the program again later" in first.stderr
    assert second.stdout == "1 mails sent\n", second.stderr
    assert handler.recipients == [address]


class _BusyProvider(BaseHTTPRequestHandler):
    """A mail provider that is busy at first, and names the date at which it will be available."""

    statuses: ClassVar[list[int]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.statuses.append(200 if self.statuses else 503)
        self.send_response(self.statuses[-1])
        self.send_header("Retry-After", "Wed, 21 Oct 2026 07:28:00 GMT")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")


def test_sending_continues_if_a_provider_asks_for_a_pause_until_a_date(sender: Sender) -> None:
    environment = sender.build_resend_environment(
        sender.create_list(f"reader+{time.time_ns()}@example.com")
    )
    with HTTPServer((LOOPBACK, 0), _BusyProvider) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        environment["RESEND_URL"] = f"http://{LOOPBACK}:{server.server_port}"
        completed = sender.run("python send_resend.py", **environment, PATH=_python_path())
        server.shutdown()
    assert completed.stdout == "1 mails sent\n", completed.stderr
    assert _BusyProvider.statuses == [503, 200]


@pytest.mark.parametrize("recipe", _RECIPES)
def test_corrected_issue_is_sent_to_the_members_who_have_not_got_it(
    recipe: str, sender: Sender
) -> None:
    first_email, second_email = (f"{name}+{time.time_ns()}@example.com" for name in ("one", "two"))
    slug = sender.create_list(first_email)
    environment = sender.build_resend_environment(slug) | {
        "SMTP_URL": sender.stack.environment["PRESSROOM_MAIL_URL"],
        "LISTMONK_URL": f"{sender.stack.sandbox_url}{LISTMONK_PREFIX}",
        "LISTMONK_USER": LISTMONK_USER,
        "LISTMONK_TOKEN": LISTMONK_TOKEN,
        # The corrected file has the same size and is written within the same second, so Python
        # would use the compiled file of the first issue.
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    issue = sender.folder / "issue.py"
    for email, month in ((first_email, "November"), (second_email, "December")):
        text = issue.read_text().replace("November", month)
        issue.write_text(text.replace("The kettle", f"The {month}"))
        with sender.stack.client(sender.owner.key) as client:
            data(client.put(f"/lists/{slug}/members/{email}", json={}))
        completed = sender.run(f"python send_{recipe}.py", **environment, PATH=_python_path())
        assert completed.stdout == "1 mails sent\n", completed.stderr
        [mail] = sender.mails(email)
        assert mail["subject"] == f"Tea in {month}"
        assert f"The {month} is on." in mail["html"]
        issue.write_text(issue.read_text().replace(f"The {month}", "The kettle"))


def test_sending_skips_people_who_unsubscribe_while_it_runs(sender: Sender) -> None:
    names = ("first", "second", "third")
    emails = [f"{name}+{time.time_ns()}@example.com" for name in names]
    slug = sender.create_list(*emails)
    script = """
import httpx2
from pressroom_client import Pressroom, read_roster, send_issue

client = Pressroom()
links = {each.address: each.row["one_click_url"] for each in read_roster(client, "LIST")}
got_mail = []


def send(recipient):
    got_mail.append(recipient.address)
    if len(got_mail) == 1:
        form = {"List-Unsubscribe": "One-Click"}
        httpx2.post(links["SECOND_ADDRESS"], data=form).raise_for_status()


print(send_issue(client, "LIST", send, log="LIST.sqlite3", max_roster_seconds=0))
print(*got_mail)
""".replace("SECOND_ADDRESS", emails[1]).replace("LIST", slug)
    (sender.folder / "driver.py").write_text(script)
    environment = sender.build_resend_environment(slug)
    completed = sender.run("python driver.py", **environment, PATH=_python_path())
    assert completed.stdout == f"2 mails sent\n{emails[0]} {emails[2]}\n", completed.stderr


def test_refusal_after_an_unclear_attempt_keeps_the_mail_for_the_next_run(sender: Sender) -> None:
    addresses = [f"{name}+{time.time_ns()}@example.com" for name in ("unclear", "refused")]
    slug = sender.create_list(*addresses)
    script = """
from pressroom_client import MailDelayed, MailRefused, Pressroom, send_issue

tried = set()


def send(recipient):
    print(recipient.address, recipient.row["delivery_id"])
    is_first = recipient.address not in tried
    tried.add(recipient.address)
    if is_first and recipient.address.startswith("unclear"):
        raise MailDelayed("The connection was lost after the mail.", 0)
    raise MailRefused("There is no such mailbox.")


send_issue(Pressroom(), "LIST", send, log="LIST.sqlite3")
""".replace("LIST", slug)
    (sender.folder / "driver.py").write_text(script)
    environment = sender.build_resend_environment(slug)
    delivery_ids: dict[str, list[str]] = {address: [] for address in addresses}
    for _ in range(3):
        completed = sender.run("python driver.py", **environment, PATH=_python_path())
        assert completed.returncode == 0, completed.stderr
        for line in completed.stdout.splitlines():
            address, delivery_id = line.split()
            delivery_ids[address].append(delivery_id)
    unclear, refused = (delivery_ids[address] for address in addresses)
    assert (len(unclear), len(set(unclear))) == (6, 1)
    assert (len(refused), len(set(refused))) == (3, 3)


def test_log_of_an_issue_sends_nothing_to_another_list(sender: Sender) -> None:
    number = time.time_ns()
    slugs = [sender.create_list(f"{name}+{number}@example.com") for name in ("one", "two")]
    for slug, printed in zip(slugs, ("1 mails sent\n", ""), strict=True):
        environment = sender.build_resend_environment(slug) | {"ISSUE": f"tea-{number}"}
        completed = sender.run("python send_resend.py", **environment, PATH=_python_path())
        assert completed.stdout == printed, completed.stderr
    assert "The log belongs to an issue of another list. Use another log." in completed.stderr
    assert sender.mails(f"two+{number}@example.com") == []


def test_sandbox_credentials_in_the_document_are_right() -> None:
    text = _DOCUMENT.read_text()
    assert f"RESEND_API_KEY={RESEND_API_KEY}\n" in text
    assert f"LISTMONK_USER={LISTMONK_USER} LISTMONK_TOKEN={LISTMONK_TOKEN}\n" in text


def _python_path() -> str:
    return f"{Path(sys.executable).parent}:/usr/bin:/bin"


def _read_log(folder: Path, issue: str) -> list[int]:
    """Return for each member in the issue's file whether the mail was sent."""
    path = folder / f"{issue}.sqlite3"
    copy = folder / "copy.sqlite3"
    if not path.exists():
        return []
    # The running program locks the file, so read a copy.
    shutil.copy(path, copy)
    try:
        with sqlite3.connect(copy) as log:
            return [sent for (sent,) in log.execute("SELECT sent FROM members ORDER BY rowid")]
    except sqlite3.Error:
        # The file was copied during a write.
        return []
