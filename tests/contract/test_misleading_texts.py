"""Tests that an owner can't put links or false names into texts that strangers read."""

import random
import string
from typing import Any

import httpx2
import pytest

from devstack.harness.stack import Owner, Stack
from tests.support.commands.running import require_command_error, run_json_command
from tests.support.http.replies import data, fields_at_fault, problem
from tests.support.imports.bulk import build_csv, import_members_file
from tests.support.lists.segments import VIP, new_segment, put_member
from tests.support.lists.subscribers import new_address, new_slug
from tests.support.people.consoles import at_operators_console, forms_of, heading

# Harmless texts. Pressroom must accept each of them as a choice of a member field, and as a list's
# title, tagline or any other text in ``LIST_TEXT_FIELDS``, except the sender name.
HARMLESS_TEXTS = [
    *("Node.js Weekly", "St. Gallen 9.30 Uhr", "U.S. News", "Dr.Müller", "Vol. 2.0, 24/7"),
    *("Nachrichten aus Köln. Täglich", "Concerts, 24.12.2026", "Season 2025-2026"),
    *("C++ & C# digest", "J.R.R. Tolkien society", "e.V. der Gärtner", "Привет, мир"),
    *("日刊ニュース", "Q&A: tea, toast; and more…", "Ph.D. students", "Jeden Tag um 7.15"),
]
TEXTS_WITH_LINKS = [
    "Win at https://evil.example/now",
    "Your PayPal account is locked. Verify at paypal-login.com",
    *("evil.com", "EVIL.CO.UK", "t.me/evil", "//evil", "www.evil", "me@evil"),
    *("evil\u3002com", "\uff45vil\uff0ecom", "evil\u200b.\u200dcom", "evil.\u0441\u043e\u043c"),
    *("evil.xn--p1ai", "evil(dot)com", "evil[.]com", "192.168.0.1", "Call 0123 4567 890"),
    *("Daily \u202egpj.elif", "\u2066Daily\u2069", "Daily\u200f", "\u061cDaily"),
]
LIST_TEXT_FIELDS = (
    *("title", "tagline", "consent_wording", "sender_name"),
    *("sign_up_text", "thanks_text", "confirmation_text"),
)

CLEARED_TEXTS = {"sender_name": None, "tagline": None}
OPERATORS_PATH = "/console/operators"


def build_field(**values: Any) -> dict[str, Any]:
    return {"key": new_slug().replace("-", "_"), "label": "City", "type": "text", **values}


def test_public_texts_of_lists_and_fields_reject_links_and_addresses(
    client: httpx2.Client, list_id: int
) -> None:
    for text in TEXTS_WITH_LINKS:
        reply = client.patch(f"/lists/{list_id}", json={"title": text})
        assert fields_at_fault(problem(reply, 422, "text.leads_away")) == ["body.title"]
    reply_to_new_list = client.post("/lists", json={"title": text, "slug": new_slug()})
    problem(reply_to_new_list, 422, "text.leads_away")
    for name in LIST_TEXT_FIELDS:
        reply = client.patch(f"/lists/{list_id}", json={name: text})
        assert fields_at_fault(problem(reply, 422, "text.leads_away")) == [f"body.{name}"]
    label_reply = client.post("/fields", json=build_field(label=text))
    assert fields_at_fault(problem(label_reply, 422, "text.leads_away")) == ["body.label"]
    choice_reply = client.post("/fields", json=build_field(type="choice", choices=["Rome", text]))
    assert fields_at_fault(problem(choice_reply, 422, "text.leads_away")) == ["body.choices"]


def test_harmless_public_texts_are_accepted(client: httpx2.Client, list_id: int) -> None:
    names = [name for name in LIST_TEXT_FIELDS if name != "sender_name"]
    for text in HARMLESS_TEXTS:
        texts = dict.fromkeys(names, text)
        changed_list = data(client.patch(f"/lists/{list_id}", json=texts))
        assert {name: changed_list[name] for name in texts} == texts
    field = build_field(type="choice", choices=HARMLESS_TEXTS)
    assert data(client.post("/fields", json=field))["choices"] == HARMLESS_TEXTS


def test_cli_list_creation_rejects_titles_with_links(stack: Stack, owner: Owner) -> None:
    options = ("--title", "Win at evil.com", "--slug", new_slug())
    require_command_error(stack, "text.leads_away", "lists", "create", owner.email, *options)


def test_field_texts_that_ask_for_secrets_are_rejected(client: httpx2.Client) -> None:
    for label in (
        *("Your Pressroom password, to confirm that it is you", "P1N", "P.I.N."),
        *("\uff30\uff41\uff53\uff53word", "p\u0430ssw\u043erd", "pa55w0rd", "Pass\u00adwort"),
        *("Bank-Kennwort", "Mot de passe", "Contraseña", "Parola d'ordine", "Senha"),
        *("Kreditkartennummer", "Credit-card no.", "Numéro de carte", "Número de la tarjeta"),
        *("Numero della carta", "Número do cartão", "CVV", "Prüfziffer", "One-time code"),
        *("TAN-Nummer", "Code à usage unique", "Código de verificación", "Codice di verifica"),
    ):
        reply = client.post("/fields", json=build_field(label=label))
        assert fields_at_fault(problem(reply, 422, "text.misleading")) == ["body.label"]
    choice_reply = client.post("/fields", json=build_field(type="choice", choices=["No", label]))
    assert fields_at_fault(problem(choice_reply, 422, "text.misleading")) == ["body.choices"]
    description_reply = client.post("/fields", json=build_field(description=f"Please: {label}"))
    assert fields_at_fault(problem(description_reply, 422, "text.misleading")) == [
        "body.description"
    ]


@pytest.mark.parametrize(
    "label",
    [
        *("Pinboard name", "Postcard city", "Karten (Anzahl)", "Library card number"),
        *("Passport country", "Opinion", "Shipping address", "Company", "Code postal", "Tanzkurs"),
        *("Senhora ou senhor", "Carte de visite", "Clave de sol", "Birthday (24.12.1990)"),
    ],
)
def test_harmless_field_labels_are_accepted(client: httpx2.Client, label: str) -> None:
    assert data(client.post("/fields", json=build_field(label=label)))["label"] == label


def test_import_replaces_a_misleading_column_name_with_a_neutral_field_label(
    client: httpx2.Client, list_id: int
) -> None:
    rows = build_csv(["email", "Your password"], [new_address(), "x"])
    assert import_members_file(client, list_id, rows, create_fields="true")["added"] == 1
    labels = {each["key"]: each["label"] for each in data(client.get("/fields"))}
    assert labels["your_password"] == "Column 2"


@pytest.mark.parametrize(
    "name", ["Pressroom Security", "PRESS ROOM", "Pr\u0435ssr\u043eom", "Pr3ssr00m team"]
)
def test_sender_name_similar_to_the_installation_name_is_rejected(
    client: httpx2.Client, list_id: int, name: str
) -> None:
    reply = client.patch(f"/lists/{list_id}", json={"sender_name": name})
    assert fields_at_fault(problem(reply, 422, "text.misleading")) == ["body.sender_name"]


def test_operator_reviews_suspicious_texts_and_sees_them_again_after_a_change(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    def list_suspicious_words() -> dict[str, list[str]]:
        suspicious_items = run_json_command(stack, "lists", "suspicious", "--limit", "1000")
        return {each["texts"][0]: each["words"] for each in suspicious_items}

    random_mark = "".join(random.choices(string.ascii_lowercase, k=12))
    title = f"P\u0430yPal acc0unt {random_mark}"
    changes = {"title": title, "sender_name": "Support", "tagline": "Your account is locked"}
    assert client.patch(f"/lists/{list_id}", json=changes).is_success
    label = f"Sicherheitsfrage {random_mark}"
    field = data(client.post("/fields", json=build_field(label=label)))
    ids_by_kind = {"list": str(list_id), "field": str(field["id"])}
    assert list_suspicious_words()[title] == ["paypal", "account", "locked", "support"]
    assert list_suspicious_words()[label] == ["sicherheitsfrage"]
    with at_operators_console(stack) as operator:
        assert heading(operator.see(OPERATORS_PATH)) == "Needs attention"
        for suspicious_text, kind in ((title, "list"), (label, "field")):
            form = next(
                number
                for number, (_, values) in enumerate(forms_of(operator.visitor.get(OPERATORS_PATH)))
                if values.get("kind") == kind and values["id"] == ids_by_kind[kind]
            )
            # The form's hidden field ``version`` is outdated if the text has changed since the page
            # was loaded.
            assert "changed in the meantime" in operator.do(OPERATORS_PATH, form, version="0" * 16)
            assert suspicious_text in list_suspicious_words()
            assert "Changed texts are shown again" in operator.do(OPERATORS_PATH, form)
            assert suspicious_text not in list_suspicious_words()
    assert client.patch(f"/lists/{list_id}", json={**changes, "colour": "#1d4ed8"}).is_success
    assert title not in list_suspicious_words()
    assert client.patch(f"/lists/{list_id}", json={"tagline": "Your bank"}).is_success
    assert "bank" in list_suspicious_words()[title]
    assert client.patch(f"/lists/{list_id}", json={"title": "News", **CLEARED_TEXTS}).is_success
    assert str(list_id) not in {
        str(each["id"])
        for each in run_json_command(stack, "lists", "suspicious", "--limit", "1000")
    }


NAMES_IN_ALL_SCRIPTS = [
    "👩\u200d👧",
    # Persian text contains zero-width non-joiners.
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
    "\u064a\u0648\u0645.",
    "日刊",
]
INVISIBLE_TEXTS = ["\u200b", "\u200d", "\u3164", "\u0301", "\ufe0f"]
TEXTS_WITH_CHANGED_DIRECTION = [
    "\u202e",
    "Daily \u202egpj.elif",
    "\u2066Daily\u2069",
    "\u202aDaily",
]


@pytest.mark.parametrize("name", NAMES_IN_ALL_SCRIPTS)
def test_names_and_texts_accept_any_script_and_emoji(
    client: httpx2.Client, list_id: int, name: str
) -> None:
    assert new_segment(client, list_id, name=name)["name"] == name
    texts = {
        **dict.fromkeys(("title", "sender_name", "thanks_text"), name),
        "sign_up_text": f"{name}\n{name}",
    }
    changed_list = data(client.patch(f"/lists/{list_id}", json=texts))
    assert {each: changed_list[each] for each in texts} == texts


@pytest.mark.parametrize("text", INVISIBLE_TEXTS)
def test_invisible_titles_and_labels_and_texts_are_rejected(
    client: httpx2.Client, list_id: int, text: str
) -> None:
    for path, body, code in (
        ("/lists", {"title": text, "slug": new_slug()}, "list.title"),
        ("/fields", build_field(label=text), "field.label"),
        ("/fields", build_field(type="choice", choices=["Rome", text]), "field.choices"),
    ):
        problem(client.post(path, json=body), 422, code)
    for name, code in (
        ("title", "list.title"),
        ("sender_name", "list.sender_name"),
        *((name, "list.words") for name in ("sign_up_text", "thanks_text")),
        ("confirmation_text", "list.words"),
    ):
        error = problem(client.patch(f"/lists/{list_id}", json={name: text}), 422, code)
        assert name != "title" or "visible" in error["detail"]


def test_segment_and_tag_names_reject_invisible_and_direction_changing_characters(
    client: httpx2.Client, list_id: int
) -> None:
    for name in INVISIBLE_TEXTS + TEXTS_WITH_CHANGED_DIRECTION:
        segment = {"name": name, "filter": VIP}
        problem(client.post(f"/lists/{list_id}/segments", json=segment), 422, "segment.name")
        email = new_address()
        put_member(client, list_id, email)
        tag_reply = client.patch(f"/lists/{list_id}/members/{email}", json={"tags": [name]})
        problem(tag_reply, 422, "body.invalid")
