"""Tests of consent columns in imported files, which decide who is added and who is opted out."""

import secrets
from typing import Any

import httpx2
import pytest

from devstack.harness.stack import Stack
from tests.support.http.replies import data, problem
from tests.support.imports.bulk import (
    active_members,
    add,
    build_addresses,
    build_csv,
    fetch_rejected_rows,
    import_members_file,
    nonzero_counts,
    upload,
)
from tests.support.lists.subscribers import find_member, new_list


class ImportedList:
    """A mailing list, with methods that import files and read what an import recorded."""

    def __init__(self, stack: Stack, client: httpx2.Client) -> None:
        self._domain = f"{secrets.token_hex(5)}.example.com"
        self._stack = stack
        self._client = client
        self.list_id = int(new_list(client)["id"])

    def file(self, text: str) -> bytes:
        return text.replace("@", f"@{self._domain}").encode()

    def imported(self, text: str, **params: str) -> dict[str, Any]:
        return import_members_file(self._client, self.list_id, self.file(text), **params)

    def members(self) -> set[str]:
        return {email.partition("@")[0] for email in active_members(self._client, self.list_id)}

    def opt_outs(self) -> dict[str, str]:
        rows = self._stack.query(
            "SELECT split_part(email, '@', 1), source FROM opt_outs"
            " JOIN users ON users.id = opt_outs.user_id WHERE list_id = %s AND kind = 'list'",
            self.list_id,
        )
        return {str(name): str(source) for name, source in rows}

    def codes(self, result: dict[str, Any]) -> dict[str, str]:
        """Return the error code of each rejected row, as a dict from the person's name."""
        values = [list(row.values()) for row in fetch_rejected_rows(result["errors_url"])]
        return {
            next(cell for cell in row if "@" in cell).partition("@")[0]: row[-2]
            for row in values
            if row[-2].startswith("row.")
        }


@pytest.fixture
def imported_list(stack: Stack, client: httpx2.Client) -> ImportedList:
    """A new mailing list into which a test imports files."""
    return ImportedList(stack, client)


def test_import_opts_out_every_person_whom_any_column_marks_as_opted_out(
    imported_list: ImportedList,
) -> None:
    files = [
        (
            "Email,Portal Bounce,Portal Unsubscribe,Portal Spam Report,Marketing Information\n"
            "in1@,FALSE,FALSE,FALSE,FALSE\nout1@,FALSE,TRUE,FALSE,TRUE\n"
            "bounced1@,TRUE,FALSE,FALSE,FALSE\ncomplained1@,FALSE,FALSE,TRUE,FALSE\n"
        ),
        "firstname,email,doNotContact\nAnn,in2@,0\nBob,out2@,1\n",
        "E-mail;acceptsEmail\nout3@;false\nin3@;true\n",
        (
            '{"channels": {"email": {"address": "out4@", "subscribeStatus": "unsubscribed"}}}\n'
            '{"channels": {"email": {"address": "in4@", "subscribeStatus": "subscribed"}}}\n'
        ),
        "email,Do not email\nin5@,Allow\nout5@,Do Not Allow\n",
        "email,Unsubscribed\nin6@,Subscribed\nout6@,Unsubscribed\n",
        "email,Opted in\nin7@,opted in\nout7@,opted out\n",
        "email,Accepts marketing\nin8@,subscribed\nout8@,unsubscribed\n",
        "Email Address,Name,State\nin9@,Ann,Active\nout9@,Bob,Unsubscribed\n",
        "Name,Email,Stop Time,Status\nAnn,in10@,,subscribed\nBob,out10@,2024-03-01 10:00,\n",
        "email,No emails\nin11@,no\nout11@,yes\n",
    ]
    for file in files:
        imported_list.imported(file)
    assert imported_list.members() == {f"in{number}" for number in range(1, 12)}
    assert imported_list.opt_outs() == {
        **{f"out{number}": "import" for number in range(1, 12)},
        "bounced1": "bounce",
        "complained1": "complaint",
    }


def test_import_rejects_rows_of_unknown_status_until_the_status_is_mapped(
    client: httpx2.Client, imported_list: ImportedList
) -> None:
    file = "EMAIL,STATUS,note\na@,1,x\nb@,2,x\nc@,3,x\nd@,2,x\n"
    preview = imported_list.imported(file, dry_run="1")
    assert nonzero_counts(preview) == {"received": 4, "invalid": 4}
    assert preview["unknown_status"] == 4
    unknown_values = [("2", 2), ("1", 1), ("3", 1)]
    assert preview["unknown_values"] == [
        {"column": "STATUS", "value": value, "rows": rows} for value, rows in unknown_values
    ]
    assert preview["columns"][1]["values"] == [
        {"value": value, "rows": rows, "read_as": "unknown"} for value, rows in unknown_values
    ]
    assert preview["columns"][1]["meanings"] == [{"read_as": "unknown", "rows": 4}]
    assert "values" not in preview["columns"][2]
    assert {each["code"] for each in preview["preview"]} == {"row.status_unknown"}
    reply = upload(
        client,
        imported_list.list_id,
        imported_list.file(file),
        status_values='{"unsubscribed": "subscribed"}',
    )
    assert "'unsubscribed'" in problem(reply, 422, "import.status_values")["detail"]
    values = '{"1": "subscribed", "2": "unsubscribed"}'
    result = imported_list.imported(file, status_values=values)
    assert nonzero_counts(result) == {"received": 4, "added": 1, "opted_out": 2, "invalid": 1}
    assert result["unknown_status"] == 1
    assert imported_list.codes(result) == {"c": "row.status_unknown"}
    assert imported_list.members() == {"a"}
    assert imported_list.opt_outs() == {"b": "import", "d": "import"}
    record = data(client.get(f"/imports/{result['import_id']}"))
    assert record["unknown_status"] == 1


def test_import_adds_nobody_without_permission_and_opts_nobody_out_for_lack_of_it(
    imported_list: ImportedList,
) -> None:
    files = [
        "E-Mail;Newsletter erwünscht\nin1@;ja\nwaits1@;nein\n",
        "email,Marketing permission\nin2@,Yes\nwaits2@,No\n",
        "email,Send newsletter\nin3@,Yes\nwaits3@,No\n",
        "Email Address,State\nin4@,Active\nwaits4@,Deleted\n",
        "email,Monthly newsletter\nin5@,yes\nwaits5@,no\n",
    ]
    for number, file in enumerate(files, 1):
        codes = imported_list.codes(imported_list.imported(file))
        assert codes == {f"waits{number}": "row.not_subscribed"}
    cancelled = imported_list.imported("email,Newsletter cancelled\nin6@,no\nasked6@,yes\n")
    assert imported_list.codes(cancelled) == {"asked6": "row.status_unknown"}
    assert imported_list.members() == {f"in{number}" for number in range(1, 7)}
    assert imported_list.opt_outs() == {}


def test_import_ignores_consent_to_other_things_and_explains_unused_columns(
    imported_list: ImportedList,
) -> None:
    file = (
        "email,Consent to Track,Terms accepted,Do Not Postal Mail,Unsub reason,Global status,"
        "Comment,Colour\n"
        "a@,Yes,Yes,No,,1,great,red\nb@,No,No,Yes,Other,2,unsubscribed,blue\nc@,Unchanged,,,,3,,\n"
    )
    preview = imported_list.imported(file, dry_run="1")
    reasons = {each["name"]: each.get("ignored_reason") for each in preview["columns"]}
    other_subject = "The header is about something other than mail."
    assert {name for name, reason in reasons.items() if reason == other_subject} == {
        *("Consent to Track", "Terms accepted", "Do Not Postal Mail")
    }
    assert "names something else" in reasons["Unsub reason"]
    assert "cells don't answer" in reasons["Global status"]
    assert "status words" in reasons["Comment"]
    assert [name for name, reason in reasons.items() if reason is None] == ["email", "Colour"]
    result = imported_list.imported(file)
    assert nonzero_counts(result) == {"received": 3, "added": 3}
    assert set(reasons) - {"email"} == set(result["ignored_columns"])
    assert imported_list.opt_outs() == {}


def test_import_preview_finds_a_status_word_after_thousands_of_rows_of_an_unused_column(
    client: httpx2.Client, list_id: int
) -> None:
    emails = build_addresses(1_500)
    rows = [[email, "great", f"Text {number}"] for number, email in enumerate(emails[:-1])]
    content = build_csv(["Email", "Remark", "Story"], *rows, [emails[-1], "opted out", "opted out"])
    preview = import_members_file(client, list_id, content, dry_run="1")
    assert ["ignored_reason" in each for each in preview["columns"]] == [False, True, False]


def test_import_recognises_status_codes_and_german_status_words(
    imported_list: ImportedList,
) -> None:
    imported_list.imported(
        '"Email","Name","Status","Date"\n"in1@","Ann","C","2024-01-02 10:00:00"\n'
        '"out1@","Bob","U","2024-01-02 10:00:00"\n"bounced1@","Cy","B","2024-01-02 10:00:00"\n'
        '"waits1@","Di","S","2024-01-02 10:00:00"\n"complained1@","Ed","P","2024-01-02 10:00:00"\n'
    )
    imported_list.imported(
        "E-Mail;Name;Status\nin2@;Ann;aktiv\nout2@;Bob;ausgetragen\nwaits2@;Di;gekündigt\n"
        "out3@;Fo;gesperrt\nsoft2@;Gi;soft bounce\nout4@;Hu;unsubscribed (2024-01-02)\n"
    )
    assert imported_list.members() == {"in1", "in2"}
    assert imported_list.opt_outs() == {
        **dict.fromkeys(("out1", "out2", "out3", "out4"), "import"),
        "bounced1": "bounce",
        "complained1": "complaint",
    }


def test_import_skips_unconfirmed_people_who_can_be_added_later(
    client: httpx2.Client, imported_list: ImportedList
) -> None:
    first_result = imported_list.imported("email,confirmed\nin1@,1\nwaits1@,0\n")
    assert imported_list.codes(first_result) == {"waits1": "row.not_subscribed"}
    second_result = imported_list.imported(
        "id,email,confirmed,blacklisted,optedin,bouncecount,entered\n"
        "1,in2@,1,0,0,0,2020-01-02 10:00:00\n2,out2@,1,1,0,0,2020-01-02 10:00:00\n"
        "3,waits2@,0,0,0,0,2020-01-02 10:00:00\n"
    )
    assert imported_list.codes(second_result) == {"waits2": "row.not_subscribed"}
    assert imported_list.members() == {"in1", "in2"}
    assert imported_list.opt_outs() == {"out2": "import"}
    assert data(add(client, imported_list.list_id, imported_list.file("waits1@").decode())) == 1


def test_bounce_import_opts_out_only_permanently_failing_addresses(
    imported_list: ImportedList,
) -> None:
    names = ["hard", "auto", "soft", "later", "dns", "wish", "delivered", "event", "code", "code4"]
    imported_list.imported("email\n" + "".join(f"{name}@\n" for name in names))
    types = {"hard": "HardBounce", "auto": "AutoResponder", "soft": "SoftBounce"}
    types |= {"later": "Transient", "dns": "DnsError", "wish": "Subscribe"}
    postmark_rows = "".join(f"1,{type_},{name}@,2024-01-01\n" for name, type_ in types.items())
    result = imported_list.imported(f"ID,Type,Email,BouncedAt\n{postmark_rows}", kind="bounces")
    assert imported_list.codes(result) == dict.fromkeys(list(types)[1:], "row.may_pass")
    result = imported_list.imported(
        "email,event,timestamp\ndelivered@,delivered,1\nevent@,bounce,1\nopen@,strange,1\n",
        kind="bounces",
    )
    assert imported_list.codes(result) == {"delivered": "row.may_pass", "open": "row.kind_unknown"}
    assert result["unknown_values"] == [{"column": "event", "value": "strange", "rows": 1}]
    imported_list.imported(
        "address,code,error\ncode@,550,No such mailbox\ncode4@,450 4.2.1 try later,x\n",
        kind="bounces",
    )
    assert imported_list.opt_outs() == dict.fromkeys(("hard", "event", "code"), "bounce")
    assert imported_list.members() == {*names} - {"hard", "event", "code"}


def test_import_asks_about_an_ambiguous_consent_column_and_counts_ignored_opt_outs(
    client: httpx2.Client, imported_list: ImportedList
) -> None:
    file = "email,Opt-in/Opt-out\na@,yes\nb@,no\n"
    reply = upload(client, imported_list.list_id, imported_list.file(file))
    error = problem(reply, 422, "import.column_ambiguous")
    assert "'Opt-in/Opt-out'" in error["detail"]
    mapping = '{"Opt-in/Opt-out": "subscribed"}'
    preview = imported_list.imported(file, mapping=mapping, dry_run="1")
    assert preview["columns"][1]["becomes"] == "subscribed"
    assert nonzero_counts(preview) == {"received": 2, "added": 1, "opted_out": 1}
    file = "email,Unsubscribed\na@,yes\nb@,\nc@,2024-01-02\n"
    preview = imported_list.imported(file, mapping='{"Unsubscribed": "ignore"}', dry_run="1")
    assert preview["columns"][1]["becomes"] == "ignored"
    assert preview["columns"][1]["ignored_opt_outs"] == 2
    assert nonzero_counts(preview) == {"received": 3, "added": 3}
    preview = imported_list.imported(file, mapping='{"Unsubscribed": "confirmed"}', dry_run="1")
    assert preview["columns"][1]["ignored_opt_outs"] == 2


def test_last_row_of_a_long_import_file_can_identify_the_status_column(
    client: httpx2.Client, list_id: int
) -> None:
    # The file is longer than the sample by which columns are first recognised.
    emails = build_addresses(1_500)
    rows = [[email, ""] for email in emails[:-2]] + [[emails[-2], "2"], [emails[-1], "bounced"]]
    result = import_members_file(client, list_id, build_csv(["Email", "Global status"], *rows))
    assert nonzero_counts(result) == {
        "received": 1_500,
        "added": 1_498,
        "opted_out": 1,
        "invalid": 1,
    }
    assert result["columns"][1]["becomes"] == "status"
    assert find_member(client, list_id, emails[-2]) is None
