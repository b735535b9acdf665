from datetime import UTC, datetime

import pytest

from services.subscriptions.imports.rows import MemberRow, SuppressionStatus
from tests.support.imports.forms import open_reader

WANTED = SuppressionStatus.WANTED
UNSUBSCRIBED = SuppressionStatus.UNSUBSCRIBED
NOT_SUBSCRIBED = "row.not_subscribed"

MAILCHIMP_HEADER = (
    "Email Address,First Name,Last Name,Address,MEMBER_RATING,OPTIN_TIME,OPTIN_IP,CONFIRM_TIME,"
    "CONFIRM_IP,LATITUDE,LONGITUDE,GMTOFF,DSTOFF,TIMEZONE,CC,REGION,LAST_CHANGED,{}LEID,EUID,"
    "NOTES,TAGS\n"
)
SUBSCRIBED_HEADER = MAILCHIMP_HEADER.format("")
UNSUBSCRIBED_HEADER = MAILCHIMP_HEADER.format(
    "UNSUB_TIME,UNSUB_CAMPAIGN_TITLE,UNSUB_CAMPAIGN_ID,UNSUB_REASON,UNSUB_REASON_OTHER,"
)
CLEANED_HEADER = MAILCHIMP_HEADER.format("CLEAN_TIME,CLEAN_CAMPAIGN_TITLE,CLEAN_CAMPAIGN_ID,")

Verdict = tuple[str, str, str | None, SuppressionStatus] | tuple[str, str]


def read_verdicts(file: str, product: str | None) -> list[Verdict]:
    reader = open_reader(file)
    assert reader.description.product == product
    rows = [row for row in reader if isinstance(row, MemberRow)]
    return [
        (row.email, row.problem.code)
        if row.problem
        else (row.email, row.name, row.tier, row.suppression)
        for row in rows
    ]


def test_mailchimp_audience_files_are_imported_with_their_statuses() -> None:
    person = 'ada@example.com,Ada,Byron,"1 Road, Town",4,2024-01-02 10:00:00,,2024-01-02 10:01:00'
    place = ",,,,,,,GB,,2024-02-01 09:00:00"
    assert read_verdicts(f'{SUBSCRIBED_HEADER}{person}{place},1,e,,"""vip"""\n', "mailchimp") == [
        ("ada@example.com", "Ada Byron", None, WANTED)
    ]
    assert read_verdicts(
        f"{UNSUBSCRIBED_HEADER}{person}{place},2024-03-01 08:00:00,May,7,NORMAL,,1,e,,\n",
        "mailchimp",
    ) == [("ada@example.com", "Ada Byron", None, UNSUBSCRIBED)]
    assert read_verdicts(
        f"{CLEANED_HEADER}{person}{place},2024-03-01 08:00:00,May,7,1,e,,\n", "mailchimp"
    ) == [("ada@example.com", "Ada Byron", None, SuppressionStatus.CLEANED)]


def test_substack_email_list_is_imported_with_tiers_expiries_and_opt_outs() -> None:
    file = (
        "email,active_subscription,expiry,plan,email_disabled,created_at,first_payment_at\n"
        "free@example.com,false,,other,false,2025-01-01T00:00:00.000Z,\n"
        "year@example.com,true,2027-07-01T16:20:44.000Z,yearly,false,2025-01-01T00:00:00.000Z,x\n"
        "founder@example.com,true,2027-07-01T16:20:44.000Z,founding,false,2025-01-01,x\n"
        "lapsed@example.com,false,2024-07-01T16:20:44.000Z,yearly,false,2023-01-01,x\n"
        "silent@example.com,true,2027-07-01T16:20:44.000Z,monthly,true,2025-01-01,x\n"
    )

    assert read_verdicts(file, "substack") == [
        ("free@example.com", "", "free", WANTED),
        ("year@example.com", "", "silver", WANTED),
        ("founder@example.com", "", "gold", WANTED),
        ("lapsed@example.com", "", "free", WANTED),
        ("silent@example.com", "", "silver", UNSUBSCRIBED),
    ]
    paid = datetime(2027, 7, 1, 16, 20, 44, tzinfo=UTC)
    expiries = [row.paid_expiry for row in open_reader(file) if isinstance(row, MemberRow)]
    assert expiries == [None, paid, paid, None, paid]


def test_older_substack_files_are_imported_with_tiers_and_opt_outs() -> None:
    signups = (
        "email,active_subscription,expiry,email_disabled,created_at\n"
        "a@example.com,true,2027-07-01T16:20:44.000Z,false,2020-08-27T15:06:27.713Z\n"
        "b@example.com,,,false,2020-08-27T15:06:27.713Z\n"
    )
    subscribers = (
        "email,expiry,email_disabled,stripe_connected_customer_id,type\n"
        "a@example.com,2027-07-01T16:20:44.000Z,false,cus_1,paid\n"
        "b@example.com,2027-07-01T16:20:44.000Z,true,,comp\n"
    )

    assert [verdict[2] for verdict in read_verdicts(signups, "substack") if len(verdict) == 4] == [
        "silver",
        "free",
    ]
    assert read_verdicts(subscribers, "substack") == [
        ("a@example.com", "", "silver", WANTED),
        ("b@example.com", "", "silver", UNSUBSCRIBED),
    ]


def test_ghost_members_are_imported_with_tiers_and_opt_outs() -> None:
    file = (
        "id,email,name,note,subscribed_to_emails,complimentary_plan,stripe_customer_id,created_at,"
        "deleted_at,labels,tiers\n"
        "1,ada@example.com,Ada Byron,,true,false,,2024-01-01T00:00:00.000Z,,,\n"
        "2,bob@example.com,,,true,true,,2024-01-01T00:00:00.000Z,,vip,Supporters\n"
        '3,cy@example.com,Cy,"a\nnote",false,false,,2024-01-01T00:00:00.000Z,,"a,b",\n'
        "4,di@example.com,Di,,true,false,cus_1,2024-01-01T00:00:00.000Z,2024-05-01T00:00:00.000Z,,\n"
    )

    assert read_verdicts(file, "ghost") == [
        ("ada@example.com", "Ada Byron", None, WANTED),
        ("bob@example.com", "", "silver", WANTED),
        ("cy@example.com", "Cy", None, UNSUBSCRIBED),
        ("di@example.com", NOT_SUBSCRIBED),
    ]


def test_buttondown_subscribers_are_imported_with_tiers_and_statuses() -> None:
    kinds = (
        "regular premium gifted unactivated unsubscribed spammy removed paused past_due new_word"
    )
    header = "email,notes,subscriber_type,creation_date,tags\n"
    file = header + "".join(f"{kind}@example.com,,{kind},2024-02-02,x\n" for kind in kinds.split())

    assert read_verdicts(file, "buttondown") == [
        ("regular@example.com", "", "free", WANTED),
        ("premium@example.com", "", "silver", WANTED),
        ("gifted@example.com", "", "silver", WANTED),
        ("unactivated@example.com", NOT_SUBSCRIBED),
        ("unsubscribed@example.com", "", None, UNSUBSCRIBED),
        ("spammy@example.com", "", None, SuppressionStatus.COMPLAINED),
        ("removed@example.com", NOT_SUBSCRIBED),
        ("paused@example.com", "", "silver", WANTED),
        ("past_due@example.com", "", "silver", WANTED),
        ("new_word@example.com", "row.status_unknown"),
    ]
    newer_file = (
        "id,creation_date,email_address,metadata,type\n1,2024-02-02,a@example.com,{},regular\n"
    )
    assert read_verdicts(newer_file, "buttondown") == [("a@example.com", "", "free", WANTED)]


@pytest.mark.parametrize(
    "header", ["first_name,email,state,created_at", "id,email,first_name,status,created_at,tags"]
)
def test_kit_subscribers_are_imported_with_their_statuses(header: str) -> None:
    states = ["active", "inactive", "cancelled", "bounced", "complained", "new_word"]
    if "status" not in header:
        states.remove("new_word")
    names = header.split(",")
    file = header + "\n"
    for state in states:
        cells = {"first_name": "Ann", "email": f"{state}@example.com", "created_at": "2024-01-01"}
        cells |= {"state": state, "status": state}
        file += ",".join(cells.get(name, "") for name in names) + "\n"

    assert (
        read_verdicts(file, "kit")
        == [
            ("active@example.com", "Ann", None, WANTED),
            ("inactive@example.com", NOT_SUBSCRIBED),
            ("cancelled@example.com", "Ann", None, UNSUBSCRIBED),
            ("bounced@example.com", "Ann", None, SuppressionStatus.BOUNCED),
            ("complained@example.com", "Ann", None, SuppressionStatus.COMPLAINED),
            ("new_word@example.com", "row.status_unknown"),
        ][: len(states)]
    )


def test_state_column_with_geographical_states_is_not_read_as_a_status() -> None:
    file = "first_name,email,state,created_at\nAnn,a@example.com,CA,2024-01-01\n"

    assert read_verdicts(file, None) == [("a@example.com", "Ann", None, WANTED)]


def test_beehiiv_subscribers_are_imported_with_tiers_and_statuses() -> None:
    file = (
        "email,First Name,Last Name,status,tier,created_at,stripe_customer_id,Free Tier,"
        "Premium Tier,unsubscribed_at\n"
        "a@example.com,Ann,,active,free,2024-03-24 10:23:10 UTC,,Yes,No,\n"
        "b@example.com, Bob , Lee ,active,premium,2024-03-24 10:23:10 UTC,cus_1,No,Yes,\n"
        "c@example.com,,,inactive,free,2024-03-24 10:23:10 UTC,,Yes,No,\n"
        "d@example.com,,,pending,free,2024-03-24 10:23:10 UTC,,Yes,No,\n"
        "e@example.com,,Zed,active,free,2024-03-24 10:23:10 UTC,,Yes,No,2024-03-13 11:33:53 UTC\n"
    )

    assert read_verdicts(file, "beehiiv") == [
        ("a@example.com", "Ann", "free", WANTED),
        ("b@example.com", "Bob Lee", "silver", WANTED),
        ("c@example.com", "", "free", UNSUBSCRIBED),
        ("d@example.com", NOT_SUBSCRIBED),
        ("e@example.com", "Zed", "free", UNSUBSCRIBED),
    ]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("Subscribed", WANTED),
        ("customer", "row.status_unknown"),
        ("", WANTED),
        ("Unsubscribed", UNSUBSCRIBED),
        ("opted-out", UNSUBSCRIBED),
        ("Hard bounce", SuppressionStatus.BOUNCED),
        ("Cleaned", SuppressionStatus.CLEANED),
        ("SPAM complaint", SuppressionStatus.COMPLAINED),
        ("Unconfirmed", NOT_SUBSCRIBED),
        ("canceled", NOT_SUBSCRIBED),
    ],
)
def test_common_status_words_are_recognised_in_files_of_unknown_products(
    word: str, expected: str
) -> None:
    (row,) = open_reader(f"email,status\na@example.com,{word}\n")

    assert isinstance(row, MemberRow)
    assert (row.problem.code if row.problem else row.suppression) == expected


@pytest.mark.parametrize(
    ("column", "cell", "expected"),
    [
        ("Unsubscribed", "true", UNSUBSCRIBED),
        ("Unsubscribed", "no", WANTED),
        ("Unsubscribed At", "0000-00-00 00:00:00", WANTED),
        ("Opt-out date", "2024-01-01", UNSUBSCRIBED),
        ("Accepts Marketing", "no", UNSUBSCRIBED),
        ("Accepts Marketing", "yes", WANTED),
        ("subscribed", "", WANTED),
        ("Bounced", "1", SuppressionStatus.BOUNCED),
        ("complained_at", "n/a", WANTED),
    ],
)
def test_opt_out_consent_and_bounce_columns_mark_suppressed_members(
    column: str, cell: str, expected: SuppressionStatus
) -> None:
    (row,) = open_reader(f"email,{column}\na@example.com,{cell}\n")

    assert isinstance(row, MemberRow)
    assert row.suppression is expected
    assert row.is_opt_out is (expected is not WANTED)
