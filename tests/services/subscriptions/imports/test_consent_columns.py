"""Recognition of the columns that state opting out, consent, confirmation or a status."""

import pytest

from core.errors import DomainError
from services.subscriptions.imports.columns.consent_columns import Unclear, recognise_header
from services.subscriptions.imports.columns.consent_interpreter import (
    MAX_COLUMNS_WATCHED,
    ConsentInterpreter,
)
from services.subscriptions.imports.rows import MemberRow
from tests.support.imports.forms import open_reader, read_rows

OPT_OUT_HEADERS = {
    "unsubscribed": """
        Portal Unsubscribe|doNotContact|Unsubscribed from all email|HasOptedOutOfEmail
        IsUnsubscribed|Email Opt Out|email_opt-out|Opted out of email: Newsletter|optedOut2024
        Do not allow Emails|DoNotBulkEMail|Don't email|isunsubscribed|hasoptedoutofemail|donotemail
        Global suppression|suppressed_on|On blocklist|Blacklisted?|Confirmed Opt-Out Date
        contact.channels.email.unsubscribed_at|UNSUBSCRIBED|Unsub|Abmeldedatum|Newsletter abgemeldet
        Ausgetragen am|Werbewiderspruch|Mailsperre|Nicht kontaktieren|Keine Werbung
        Désabonné le|Désinscription newsletter|Ne pas contacter|Fecha de baja|Dado de baja
        Lista negra|Descadastrado em|Não contatar|Disiscritto il|Lista nera|Uitgeschreven op
        Niet mailen|Avregistrerad|Wypisany|Czarna lista|Дата отписки|Отписан|已退订时间|配信停止日
        No emails|No newsletter|noEmails|No more marketing emails|Please send no newsletter|DND
        do_not_disturb|Nicht stören|Stop Time|stop_date|Stopped at|Stop emails|Pas de newsletter
        Ne pas déranger|Aucun e-mail|Sin boletín|No quiere correos|Geen nieuwsbrief|Inget nyhetsbrev
        Ingen nyhedsbrev|Ei uutiskirjettä|Sem newsletter|Niente newsletter|Bez newslettera
        Без рассылки|Do not send newsletter by e-mail|Newsletter stop|Newsletterstopp|Werbestopp
        Werbeverbot|D.N.D.|do_not_email|DNE|No contact|Opt me out of emails|Dezabonat
        Will keinen Newsletter
    """,
    "bounced": """
        Portal Bounce|Hard bounced at|emailBounced|last_bounce_date|Bounces|Gebounced|Rimbalzato
    """,
    "may_pass": "Soft bounce|soft_bounced_at|Transient bounces",
    "complained": """
        Portal Spam Report|spam_complaint_at|Marked as Spam (date)|Reported as spam|Complaints
        Spambeschwerde|Жалоба|Plainte
    """,
}
OTHER_HEADERS = {
    "subscribed": """
        acceptsEmail|channels.email.subscribeStatus|GDPR consent|Marketing consent given
        Subscribed?|Subscribed (yes/no)|is_subscribed_to_news|Consent status|Einwilligung
        Abonniert|Angemeldet|Inscrit à la newsletter|Suscrito|Consentimiento|Consenso|Toestemming
        Samtycke|Zgoda|Подписан|Marketingeinwilligung|訂閱|Consent given by customer
        Einwilligung liegt vor|GDPR consent date|Accepts our newsletter
        Consent to be contacted by e-mail
    """,
    "opted_in": """
        Double Opt-In|optedin|opt_in_newsletter|Opt-In Status|OPTIN|Nieuwsbrief|Boletín (sí/no)
        Newsletter wanted|wantsNewsletter|E-mail allowed|allow_email|emailallowed|Can email
        OK to email|May we e-mail you?|Email permission|Permission to email|Marketing permission
        Mailing wanted|Receives emails|Send newsletter|Contact by email
        Interested in the newsletter|Email permission text|Newsletter subscription
        Newsletter-Anmeldung|Newsletter erwünscht|Newsletter erhalten|E-Mail-Werbung erlaubt
        Rundbrief gewünscht|Newsletterempfang|Darf E-Mails bekommen|Reçoit la newsletter
        Souhaite recevoir nos e-mails|Recibe boletín|Quiere correos|Recebe newsletter
        Riceve la newsletter|Vuole email|Wil nieuwsbrief|Nieuwsbrief ontvangen|Vill ha nyhetsbrev
        Ønsker nyhedsbrev|Haluaa uutiskirjeen|Otrzymuje newsletter|Chce newsletter|Kér hírlevelet
        Bülten istiyor|Получает рассылку|Хоче розсилку|メルマガ希望|接收邮件|뉴스레터 수신
        Monthly newsletter|Kundennewsletter|Newsletter 2024|Newsletter (monthly)|In newsletter
        Newsletter on/off|Newsletter subscriber|E-Mail-Verteiler|Email preference|Email me
        Sign me up for the newsletter|Keep me informed by e-mail|May be e-mailed|Mag gemaild worden
        Permitir e-mails|Zezwalam na e-maile
    """,
    "confirmed": """
        confirmed|Email verified|isVerified|Bestätigt|Confirmado|Bevestigd|Potwierdzony|Подтвержден
    """,
    "status": """
        Status|Global status|newsletterStatus|Newsletterstatus|Статус рассылки|status_id|Status code
        StatusNumber|Statusnummer|Status-Nr.|Subscriber status ID|Consent status code|Codice stato
    """,
    "on_hold": """
        On hold|onHold|Held|held_at|Mail on hold|Angehalten|In de wacht|In sospeso|Приостановлен
    """,
}
HEADERS_WITHOUT_CONSENT = """
    email|Name|Marketing Information|Confirmation code|Bounce rate|bouncecount|Spam score
    unsubscribe_url|consent_text|optin_ip|Email campaign score|Unsub reason|UNSUB_CAMPAIGN_TITLE
    Unsubscribe link|Consent source|Opt-in ID|Bounced address|Abmeldegrund|Bounceanzahl|Optional
    Mailing City|MailingStreet|Mailing Postal Code|Mailing address|Subscriber|Subscription plan
    Notes|Newsletter topic|created_at|optin_time|Marital status|Order status|Corporate
    Subscribed at|email_verified_at|motif de désabonnement|Motivo de baja|Причина отписки
    Acceptance rate|consent_claimed_by|Accepts SMS Marketing|Phone consent|WhatsApp opt-in
    Number of bounces|Consent to Track|trackingConsent|Cookie consent|Cookies akzeptiert
    Consent for profiling|Profiling opt-out|Opt-out of tracking|Photo consent|Einwilligung Fotos
    Fotoeinwilligung|Consenso foto|Toestemming foto's|Zgoda na zdjęcia|Согласие на фото|写真同意
    Consent to be filmed|Terms accepted|T&Cs accepted|AGB akzeptiert|CGU acceptées
    Acepta condiciones|Accetta termini|Voorwaarden geaccepteerd|Godkänner villkor
    Privacy policy accepted|Consent to data processing|Data sharing consent
    Consent to share my details with partners|Einwilligung Datenverarbeitung
    Datenschutz zugestimmt|Fotosperre|Liefersperre
    Widerspruch Datenweitergabe|Consentement au traitement des données
    Consentimiento protección de datos|Consenso trattamento dati|Zgoda na przetwarzanie danych
    Согласие на обработку персональных данных|개인정보 동의|Do Not Postal Mail
    Do not contact by post|Postal opt-out|Einwilligung Post|Werbung per Post erlaubt
    Consentement courrier|SMS marketing consent|Marketing by phone allowed|Telefonwerbung erlaubt
    Unsubscribed from SMS|Terms confirmed|Order status ID|Payment status code
    Shipment status number|Family status|Familienstand|Bestellstatus|Order on hold|Payment on hold
    Number of status changes|Status URL|Accepts returns|Last newsletter|Newsletter source
    Emails sent|No. of emails|Member No|Send date|Data|Subscribed to podcast|YouTube subscribed
    Slack opt-out|Facebook opt-in|Briefwerbung widersprochen|Отписан от телеграма
    CCPA opt-out|Instagram consent|Einwilligung Bildnutzung|Haftungsausschluss akzeptiert
    Datenschutzerklärung akzeptiert|Consenso chiamate|Order confirmed|Zahlung bestätigt
    Paiement confirmé|Newsletter opened|Newsletter author|Newsletter team|Wrote for newsletter
    Invoice emailed|Newsletter photo
"""
UNCLEAR_HEADERS = """
    Opt-in/Opt-out|Subscribed or unsubscribed|Consent to unsubscribe|opt|Mailing
    Mailings|Consent withdrawn|Not confirmed|Pending opt-in|Not unsubscribed|Unverified
    Einwilligung widerrufen|Non confirmé|Email opt|Email and SMS consent|Consent to email tracking
    Newsletter and photo consent|Einwilligung Newsletter und Fotos|Email/phone opt-out
    Do not contact by email or post|Newsletter terms accepted|Newsletter nicht erwünscht
    Newsletter unerwünscht|Does not want newsletter|Email not allowed|Cannot email|Accepts pets
    Consent to karaoke|Einwilligung Mitfahrt|Benefits opt-out|Beta opt-in|Member directory opt out
    不接收邮件|DNC
"""


def split_headers(text: str) -> list[str]:
    return [header.strip() for header in text.replace("\n", "|").split("|") if header.strip()]


@pytest.mark.parametrize(
    ("header", "reason"),
    [(each, reason) for reason, text in OPT_OUT_HEADERS.items() for each in split_headers(text)],
)
def test_opt_out_column_is_recognised_in_any_spelling_and_language(
    header: str, reason: str
) -> None:
    [row] = open_reader(f'email,"{header}"\na@example.com,yes\n')
    assert isinstance(row, MemberRow)
    assert row.suppression == reason


@pytest.mark.parametrize(
    ("header", "subject"),
    [(each, subject) for subject, text in OTHER_HEADERS.items() for each in split_headers(text)],
)
def test_consent_confirmation_and_status_columns_are_recognised_in_many_languages(
    header: str, subject: str
) -> None:
    column = recognise_header(header)
    assert column is not None
    assert not isinstance(column, Unclear)
    assert column.subject == subject


@pytest.mark.parametrize("header", split_headers(HEADERS_WITHOUT_CONSENT))
def test_column_unrelated_to_consent_opts_nobody_out(header: str) -> None:
    assert recognise_header(header) is None
    file = f'mail,"{header}"\na@example.com,1\nb@example.com,perhaps\nc@example.com,unsubscribed?\n'
    assert {row.suppression for row in read_rows(file, mapping={"0": "email"})} == {"wanted"}


@pytest.mark.parametrize("header", split_headers(UNCLEAR_HEADERS))
def test_ambiguous_consent_column_is_rejected_by_name_until_it_is_mapped(header: str) -> None:
    file = f'email,"{header}"\na@example.com,yes\n'
    with pytest.raises(DomainError) as error:
        open_reader(file)
    assert error.value.code == "import.column_ambiguous"
    assert repr(header) in error.value.message
    [row] = read_rows(file, mapping={header: "unsubscribed"})
    assert row.is_opt_out


@pytest.mark.parametrize(
    ("header", "cells", "statuses"),
    [
        # A column of links, addresses or counts doesn't state consent.
        ("Unsubscribe here", ["https://example.com/u/1", "www.example.com/2"], ["wanted"] * 2),
        ("Bounces", ["0", "1", "7"], ["wanted"] * 3),
        ("Mailing", ["12", "", "80"], ["wanted"] * 3),
        ("Verified contact", ["c@example.org", ""], ["wanted"] * 2),
        # A time in a consent column is a yes.
        (
            "Email Consent Timestamp",
            ["2024-01-02 10:00", "", "later"],
            ["wanted"] * 2 + ["unknown"],
        ),
        ("Photo consent", ["no", "unchanged"], ["wanted"] * 2),
        ("Do Not Postal Mail", ["yes", "2024-01-02"], ["wanted"] * 2),
        # Status words below a header about something else state nothing about mail.
        ("SMS status", ["unsubscribed", "subscribed"], ["wanted"] * 2),
        ("Cookie consent", ["opted out", "opted in"], ["wanted"] * 2),
        ("Payment status", ["bounced", "active"], ["wanted"] * 2),
        # A column of zeros and ones, or of dates in any format, states consent.
        ("Bounces", ["0", "1", "0.00"], ["wanted", "bounced", "wanted"]),
        ("Unsubscribe epoch", ["1704189600", "", "0"], ["unsubscribed", "wanted", "wanted"]),
        # If a header merely contains the word status, at least one value must be recognised.
        ("Marital status", ["single", "married"], ["wanted"] * 2),
        ("Kontaktstatus", ["single", "unsubscribed"], ["unknown", "unsubscribed"]),
        ("Status", ["single", "married"], ["unknown"] * 2),
        # A newsletter column states who gets mail, or which newsletters a person gets.
        ("Newsletter", ["ja", "nein", ""], ["wanted", "not_subscribed", "wanted"]),
        ("newsletter (yes/no)", ["no", "yes"], ["not_subscribed", "wanted"]),
        ("Boletín", ["sí", "no"], ["wanted", "not_subscribed"]),
        ("Nyhetsbrev", ["0", "1"], ["not_subscribed", "wanted"]),
        ("Newsletter", ["abgemeldet", "nein, danke"], ["unsubscribed", "unknown"]),
        ("Newsletter", ["Weekly", "Daily"], ["wanted"] * 2),
        ("Newsletter", ["3", "1", "0"], ["wanted"] * 3),
        ("Email marketing", ["yes", "no"], ["wanted", "not_subscribed"]),
        ("Newsletter topic", ["ja", "nein"], ["wanted"] * 2),
        # A permission column states who gets mail if one of its cells is yes or no.
        ("Email allowed", ["yes", "no", ""], ["wanted", "not_subscribed", "wanted"]),
        ("Newsletter erwünscht", ["nein", "vielleicht"], ["not_subscribed", "unknown"]),
        ("Send newsletter", ["opted out", "1", "0"], ["unsubscribed", "wanted", "not_subscribed"]),
        ("Newsletter wanted", ["Weekly", "Daily"], ["wanted"] * 2),
        ("Sends emails", ["12", "0", "1"], ["wanted"] * 3),
        ("Monthly newsletter", ["yes", "no", ""], ["wanted", "not_subscribed", "wanted"]),
        ("Monthly newsletter", ["Art", "Tea"], ["wanted"] * 2),
        ("Newsletter author", ["yes", "no"], ["wanted"] * 2),
        # A refusal or an end of mail may be an opt-out, so a yes is unknown, and a no says nothing.
        *(
            (
                header,
                ["yes", "2024-01-02", "no", "", "opted out"],
                ["unknown"] * 2 + ["wanted"] * 2 + ["unsubscribed"],
            )
            for header in (
                *(
                    "Newsletter cancelled",
                    "Unwanted newsletter",
                    "Emails disabled",
                    "Rejects emails",
                ),
                *(
                    "Newsletter abgelehnt",
                    "Refuse la newsletter",
                    "Rechaza correos",
                    "メルマガ不要",
                ),
                *("Newsletter nein", "Werbung untersagt", "Nechce newsletter", "Отказ от рассылки"),
            )
        ),
        ("Newsletter no", ["1", "2"], ["wanted"] * 2),
        ("Order confirmed", ["yes", "no"], ["wanted"] * 2),
        # Numbers that stand for statuses are unknown.
        ("Status ID", ["1", "2", "0", ""], ["unknown"] * 3 + ["wanted"]),
        ("status_code", ["unsubscribed", "1"], ["unsubscribed", "unknown"]),
        ("Consent status", ["1", "2"], ["unknown"] * 2),
        ("Consent status", ["1", "0"], ["wanted", "unsubscribed"]),
        ("Global status", ["1", "2"], ["wanted"] * 2),
        ("Order status ID", ["1", "2"], ["wanted"] * 2),
        # If the header isn't recognised, all values must be recognised.
        ("Zustand", ["unsubscribed", "active", ""], ["unsubscribed", "wanted", "wanted"]),
        *(
            (header, ["Active", "Unsubscribed", "Bounced"], ["wanted", "unsubscribed", "bounced"])
            for header in ("State", "Tags", "Plan", "Last name", "Notes", "Joined", "Status reason")
        ),
        ("State", ["Active", "Deleted"], ["wanted", "not_subscribed"]),
        ("State", ["Active", "-", "Unsubscribed"], ["wanted", "unknown", "unsubscribed"]),
        ("State", ["-", "n/a", ""], ["wanted"] * 3),
        ("Tila", ["Aktiivinen", "Tilaus peruttu"], ["wanted", "unsubscribed"]),
        ("Stage", ["Active", "Unconfirmed"], ["wanted", "not_subscribed"]),
        ("Stage", ["on hold", "active", "unsubscribed"], ["unknown", "wanted", "unsubscribed"]),
        ("Email delivery status", ["delivered", "Bounced"], ["unknown", "bounced"]),
        ("State", ["NY", "CA", "Unsubscribed"], ["wanted"] * 3),
        ("State", ["Bavaria", ""], ["wanted"] * 2),
        ("Comment", ["unsubscribed", "great"], ["wanted"] * 2),
        ("Two-factor login", ["enabled", "disabled"], ["wanted"] * 2),
        ("Account", ["blocked", "active", "left"], ["wanted"] * 3),
    ],
)
def test_cells_decide_whether_an_unclear_column_states_consent(
    header: str, cells: list[str], statuses: list[str]
) -> None:
    assert read_statuses(header, cells) == statuses


def read_statuses(
    header: str, cells: list[str], interpreter: ConsentInterpreter | None = None
) -> list[str]:
    lines = (f'p{number}@example.com,"{cell}"\n' for number, cell in enumerate(cells))
    reader = open_reader(f'email,"{header}"\n' + "".join(lines), consent=interpreter)
    member_rows = [row for row in reader if isinstance(row, MemberRow)]
    assert len(member_rows) == len(cells)
    return [row.suppression for row in member_rows]


@pytest.mark.parametrize(
    ("header", "first", "last", "statuses"),
    [
        ("Zustand", "active", "unsubscribed", ("wanted", "unsubscribed")),
        ("Zustand", "unsubscribed", "great", ("wanted", "wanted")),
        ("Global status", "2", "bounced", ("unknown", "bounced")),
        ("Bounces", "1", "3", ("wanted", "wanted")),
        ("state", "", "cancelled", ("wanted", "unsubscribed")),
        ("state", "cancelled", "CA", ("wanted", "wanted")),
        ("state", "active", "unsubscribed", ("wanted", "unsubscribed")),
        ("state", "unsubscribed", "CA", ("wanted", "wanted")),
        ("Newsletter wanted", "Weekly", "no", ("unknown", "not_subscribed")),
        ("Status ID", "", "2", ("wanted", "unknown")),
    ],
)
def test_last_row_of_a_long_file_can_change_the_meaning_of_its_consent_column(
    header: str, first: str, last: str, statuses: tuple[str, str]
) -> None:
    cells = [first] * 3_000 + [last]
    interpreter = ConsentInterpreter()
    read_statuses(header, cells, interpreter)
    assert interpreter.has_misread_rows()
    second_interpreter = ConsentInterpreter(interpreter.find_decisions())
    final_statuses = read_statuses(header, cells, second_interpreter)
    assert not second_interpreter.has_misread_rows()
    assert (final_statuses[0], final_statuses[-1]) == statuses


def test_unnamed_status_column_is_recognised_only_with_at_most_20_distinct_values() -> None:
    status_words = (
        "unsubscribed abgemeldet ausgetragen désabonné désinscrit disiscritto uitgeschreven"
    )
    status_words += (
        " afgemeld avregistrerad wypisany wypisana отписан отписана отписано unsub optout"
    )
    status_words += " cleaned bounced complained blacklisted"
    assert set(read_statuses("Zustand", status_words.split())) > {"unsubscribed"}
    assert set(read_statuses("Zustand", [*status_words.split(), "blocklisted"])) == {"wanted"}


def test_status_column_behind_many_empty_columns_is_recognised() -> None:
    empty_columns = [f"c{number}" for number in range(MAX_COLUMNS_WATCHED + 20)]
    lines = [["email", *empty_columns, "State"]]
    for name, state in ("a", "Active"), ("b", "Unsubscribed"):
        lines.append([f"{name}@example.com", *[""] * len(empty_columns), state])
    member_rows = read_rows("".join(",".join(line) + "\n" for line in lines))
    assert [row.suppression for row in member_rows] == ["wanted", "unsubscribed"]


@pytest.mark.parametrize("header", ["Do Not Mail", "Do not allow Mails"])
def test_opt_out_of_mail_beside_an_opt_out_of_email_is_ambiguous(header: str) -> None:
    """In the exports of some products, "mail" beside "e-mail" means post."""
    file = f"email,Do Not Email,{header}\na@example.com,no,yes\n"
    with pytest.raises(DomainError) as error:
        open_reader(file)
    assert error.value.code == "import.column_ambiguous"
    assert repr(header) in error.value.message
    [row] = read_rows(file, mapping={header: "ignore"})
    assert not row.is_opt_out
    [row] = read_rows(f"email,{header}\na@example.com,yes\n")
    assert row.is_opt_out


def test_import_mapping_overrides_recognised_consent_columns() -> None:
    file = "email,Unsubscribed,flag,Opted in\na@example.com,yes,no,\nb@example.com,,yes,no\n"
    mapping = {"Unsubscribed": "ignore", "flag": "subscribed", "Opted in": "confirmed"}
    interpreter = ConsentInterpreter()
    parsed_rows = [*open_reader(file, mapping=mapping, consent=interpreter)]
    assert [row.suppression for row in parsed_rows if isinstance(row, MemberRow)] == [
        *("unsubscribed", "not_subscribed")
    ]
    # The opt-outs in an ignored column are reported to the owner.
    assert interpreter.count_ignored_opt_outs() == {1: 1, 3: 0}


@pytest.mark.parametrize(
    ("header", "cells", "role", "ignored"),
    [
        ("Unsubscribed", ["yes", "2024-01-02", "no", ""], "confirmed", 2),
        ("Unsubscribed", ["yes", "unsubscribed", "no", ""], "subscribed", 1),
        ("Subscribed", ["no", "unsubscribed", "yes", ""], "unsubscribed", 1),
        ("Accepts marketing", ["no", "yes"], "tags", 1),
        ("Newsletter wanted", ["no", "opted out"], "name", 1),
        ("Status", ["unsubscribed", "active"], "ignore", 1),
        ("Zustand", ["unsubscribed", "active"], "fields.state", 1),
        ("State", ["unsubscribed", "active"], "ignore", 1),
        # These roles lose no opt-out.
        ("Unsubscribed", ["yes", "no"], "unsubscribed", None),
        ("Subscribed", ["unsubscribed", "yes"], "status", 0),
        ("Bounces", ["0", "1", "7"], "ignore", None),
        ("State", ["NY", "CA"], "ignore", None),
        ("Photo consent", ["no", "yes"], "ignore", None),
    ],
)
def test_opt_outs_that_an_import_mapping_loses_are_counted(
    header: str, cells: list[str], role: str, ignored: int | None
) -> None:
    lines = (f"p{number}@example.com,{cell}\n" for number, cell in enumerate(cells))
    file = f"email,{header}\n" + "".join(lines)
    interpreter = ConsentInterpreter()
    list(open_reader(file, mapping={header: role}, consent=interpreter))
    assert interpreter.count_ignored_opt_outs().get(1) == ignored


def test_late_nested_json_key_is_recognised_as_a_consent_column() -> None:
    early_lines = "".join(f'{{"email": "m{n}@example.com"}}\n' for n in range(3_000))
    late_line = (
        '{"email": "z@example.com", "channels": {"email": {"subscribeStatus": "unsubscribed"}}}\n'
    )
    parsed_rows = [*open_reader(early_lines + late_line)]
    assert isinstance(parsed_rows[-1], MemberRow)
    assert parsed_rows[-1].is_opt_out


def test_second_column_of_a_file_without_header_may_hold_the_status() -> None:
    member_rows = read_rows("a@example.com,unsubscribed\nb@example.com,active\n")
    assert [(row.name, row.is_opt_out) for row in member_rows] == [("", True), ("", False)]
