"""Tests of the console pages that lead an owner to a sender's first report."""

import html
import re

import pytest

from api.auth.member_reads import MAX_PAGES_PER_HOUR
from devstack.harness.stack import Stack
from tests.support.documents import markdown
from tests.support.http.replies import data
from tests.support.imports.bulk import add
from tests.support.lists.subscribers import new_address, new_list, require_member
from tests.support.people.consoles import (
    OwnerAtConsole,
    forms_of,
    heading,
    read_error,
    read_page,
    rows_of,
)
from tests.support.senders.own_senders import new_sender
from tests.support.senders.posting import body_of, bounce, deliver, reject_calls

SENDERS_PATH = "/console/developers/senders"
NEW_PATH = f"{SENDERS_PATH}/new"
LABELS = {
    "generic": "Your own program",
    "ses": "Amazon SES",
    "postmark": "Postmark",
    "mailgun": "Mailgun",
    "sendgrid": "SendGrid",
    "brevo": "Brevo",
    "resend": "Resend",
}
GUIDE = markdown.ROOT / "docs" / "senders.md"
WAITING = "Waiting for the first report…"


def read_documented_steps(provider: str) -> list[str]:
    """Return the steps in docs/senders.md without the one that creates the sender."""
    section = GUIDE.read_text().partition(f"\n### {LABELS[provider]}\n")[2].partition("\n#")[0]
    section = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", section)
    items = re.findall(r"^\d+\. (.*?)(?=\n\d+\. |\n\n|\Z)", section, re.DOTALL | re.MULTILINE)
    steps = [" ".join(each.replace("`", "").split()) for each in items]
    created = f"Create a sender with the provider {provider}"
    assert len([each for each in steps if each.startswith(created)]) == 1
    return [each for each in steps if not each.startswith(created)]


def read_steps(text: str) -> list[str]:
    [steps] = re.findall(r'<ol class="checklist">(.*?)</ol>', text, re.DOTALL)
    items = re.findall(r"<li[^>]*>\s*<p>(.*?)</p>", steps, re.DOTALL)
    plain_items = [html.unescape(re.sub(r"<[^>]+>", "", each)) for each in items]
    return [" ".join(each.replace("’", "'").split()) for each in plain_items]


@pytest.mark.parametrize("provider", LABELS)
def test_pages_of_a_provider_have_the_steps_of_the_guide(
    console: OwnerAtConsole, provider: str
) -> None:
    assert f'{NEW_PATH}?provider={provider}"' in console.see(NEW_PATH)
    steps = read_documented_steps(provider)
    text = console.see(NEW_PATH, provider=provider)
    assert heading(text).lower() == f"connect {LABELS[provider]}".lower()
    assert read_steps(text) == [*steps, "Wait for the first report."]


def test_steps_of_amazon_ses_link_to_the_same_pages_of_amazon_as_the_guide(
    console: OwnerAtConsole,
) -> None:
    documented_links = set(re.findall(r"https://docs\.aws\.amazon\.com/[^)]+", GUIDE.read_text()))
    assert len(documented_links) == 5
    path = f"{NEW_PATH}?provider=ses"
    text = console.see(path)
    assert "Next, you get the sender’s URL for the steps below." in text
    topic = {"topic_arn": "arn:aws:sns:eu-west-1:123456789012:mail-events"}
    for page in (text, read_page(console.send(path, name="Ours", **topic))):
        links = re.findall(r'<a href="(https://[^"]+)" target="_blank" rel="noopener">', page)
        assert len(links) == 5
        assert set(links) == documented_links
    assert "This step turns green when a report arrives." in page


@pytest.mark.parametrize(
    ("provider", "field", "label", "rule"),
    [
        ("ses", "topic_arn", "SNS topic ARN", "Must be the ARN of a standard topic"),
        ("mailgun", "signing_key", "HTTP webhook signing key", None),
        ("sendgrid", "public_key", "Verification key", "Must be an ECDSA public key"),
        ("resend", "signing_secret", "Signing secret", "Must begin with whsec_"),
    ],
)
def test_form_asks_for_the_key_of_a_provider_in_its_words(
    console: OwnerAtConsole, provider: str, field: str, label: str, rule: str | None
) -> None:
    path = f"{NEW_PATH}?provider={provider}"
    assert f'<label for="{field}">{label}</label>' in console.see(NEW_PATH, provider=provider)
    text = read_page(console.send(path, name="Ours"), 422)
    sentence = label if label.startswith(("SNS", "HTTP")) else label.lower()
    assert read_error(text, field) == f"Enter the {sentence}."
    assert 'value="Ours"' in text
    if rule is not None:
        reply = console.send(path, name="Ours", **{field: "wrong"})
        assert read_error(read_page(reply, 422), field).startswith(rule)
        [(_, values)] = forms_of(reply)
        assert (values["provider"], values[field]) == (provider, "wrong")
    assert data(console.api.get("/senders")) == []


def test_form_with_an_unknown_provider_leads_back_to_the_choice(console: OwnerAtConsole) -> None:
    assert f"{NEW_PATH}?provider=ses" in console.see(NEW_PATH, provider="pigeon")
    reply = console.send(f"{NEW_PATH}?provider=brevo", name="Ours", provider="pigeon")
    text = read_page(reply, 422)
    assert 'id="provider-wrong"' in text
    assert f"{NEW_PATH}?provider=ses" in text


def test_page_of_a_new_sender_waits_for_the_first_report(
    stack: Stack, console: OwnerAtConsole
) -> None:
    text = read_page(console.send(f"{NEW_PATH}?provider=postmark", name="Our <Postmark>"))
    [record] = data(console.api.get("/senders"))
    path = f"{SENDERS_PATH}/{record['id']}"
    [secret] = re.findall(r'id="secret" value="([^"]+)"', text)
    for value in (record["url"], "pressroom"):
        assert re.search(rf'value="{re.escape(value)}" readonly\b[^>]* data-copy', text)
    assert "Secret of Our &lt;Postmark&gt;" in text
    assert read_steps(text)[-1].startswith(WAITING)
    own_page = console.see(path)
    assert secret not in own_page
    assert record["url"] in own_page
    for page in (text, own_page):
        assert f'hx-get="{stack.api_url}{path}"' in page
        assert f'<noscript><p><a href="{stack.api_url}{path}"' in page


def test_page_of_a_sender_shows_rejected_calls_and_then_that_reports_arrive(
    stack: Stack, console: OwnerAtConsole
) -> None:
    sender = new_sender(console.api)
    path = f"{SENDERS_PATH}/{sender['id']}"
    reject_calls(console.api, sender, count=1)
    text = console.see(path)
    assert WAITING in text
    assert "Pressroom rejected 1 call without a valid proof" in text
    assert [row[4] for row in rows_of(console.see(SENDERS_PATH))[1:]] == ["1"]
    deliver(stack, console.api, sender, bounce(email=new_address()))
    text = console.see(path)
    assert WAITING not in text
    assert "hx-get" not in text
    [part] = re.findall(r'<li id="first-report" class="done">(.*?)</li>', text, re.DOTALL)
    assert "Reports arrive" in part
    assert "reports arrive" in console.see(f"/console/lists/{new_list(console.api)['id']}/send")


def test_page_that_waits_for_a_report_is_no_page_of_members(console: OwnerAtConsole) -> None:
    path = f"{SENDERS_PATH}/{new_sender(console.api)['id']}"
    for _ in range(MAX_PAGES_PER_HOUR + 1):
        console.see(path)
    events = data(console.api.get("/users/me/security-events"))["items"]
    assert "members.read" not in {each["type"] for each in events}


def test_report_about_a_former_member_says_so(stack: Stack, console: OwnerAtConsole) -> None:
    list_id = int(new_list(console.api)["id"])
    emails = [new_address(), new_address()]
    data(add(console.api, list_id, *emails))
    user_ids = [require_member(console.api, list_id, each)["user_id"] for each in emails]
    for user_id in user_ids:
        data(console.api.delete(f"/subscriptions/{list_id}/members/{user_id}"))
    sender = new_sender(console.api)
    path = f"{SENDERS_PATH}/{sender['id']}"
    reports = [bounce(email=each) for each in (*emails, new_address())]
    deliver(stack, console.api, sender, *reports)
    # After the report, the second person returned to the list.
    data(add(console.api, list_id, emails[1]))
    text = console.see(path)
    effects = [row[2].partition(" The ")[0] for row in rows_of(text)[1:]]
    assert effects == ["No member found", "No member found", "No longer a member"]
    assert [f"/members/{user_id}" in text for user_id in user_ids] == [True, False]
    trial = body_of(bounce(email=emails[0])).decode()
    tried = read_page(console.send(f"{path}/try", body=trial))
    assert "No longer a member" in tried
