"""The words of headers and cells, in the products' exports and in several languages."""

import re
import unicodedata
from functools import lru_cache

from services.mailing.imports.mapping.rows import SuppressionStatus

MAX_WORD_CHARACTERS = 60

_NOT_A_WORD = re.compile(r"[\W_]+")


@lru_cache(4096)
def _folded(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text.casefold())
    kept = "".join(character for character in plain if not unicodedata.combining(character))
    return _NOT_A_WORD.sub("", kept)


def key(text: str) -> str:
    """``text`` as it is looked up: "E-mail Address " and "email_address" have the same key."""
    return _folded(text) if len(text) <= MAX_WORD_CHARACTERS else ""


def _keys(*words: str) -> frozenset[str]:
    return frozenset(key(word) for group in words for word in group.split(","))


EMAIL = _keys(
    "email,e-mail address,mail,mail address,subscriber email,contact email,member email,user email",
    "primary email,email 1,e-mail 1,e-mail 1 value,email id,customer email,work email,your email",
    "adresse e-mail,adresse email,adresse mail,courriel,adresse de courriel,adresse électronique",
    "e-mail-adresse,mailadresse,correo,correo electrónico,dirección de correo electrónico",
    "dirección de correo,e-mailadres,emailadres,indirizzo e-mail,indirizzo email,posta elettronica",
    "endereço de e-mail,correio eletrônico,adres e-mail,adres email,e-post,e-postadress",
    "epostadresse",
    "e-mailadresse,sähköposti,sähköpostiosoite,e-posta,e-posta adresi,e-mailová adresa,e-mail cím",
    "электронная почта,эл. почта,почта,адрес электронной почты,электронна пошта,имейл",
    "メール,メールアドレス,邮箱,邮件,电子邮件,电子邮箱,邮箱地址,電子郵件,信箱,이메일,이메일 주소",
)
NAME = _keys(
    "name,full name,display name,subscriber name,contact name,member name,user name,your name",
    "nom complet,vollständiger name,nombre completo,nome completo,volledige naam,naam",
    "nombre y apellidos,imię i nazwisko,имя и фамилия,фио,имя,氏名,名前,お名前,姓名,名字,이름,성명",
)
FIRST_NAME = _keys(
    "first name,firstname,fname,given name,forename,first",
    "prénom,vorname,nombre,nombres,nome,primeiro nome,voornaam,förnamn,fornavn,etunimi,imię,ad",
)
LAST_NAME = _keys(
    "last name,lastname,lname,surname,family name,last,second name",
    "nom,nom de famille,nachname,familienname,apellido,apellidos,cognome,sobrenome,apelido",
    "achternaam,efternamn,etternavn,efternavn,sukunimi,nazwisko,фамилия,soyad",
)
TIER = _keys(
    "tier,tiers,products,plan,membership,membership tier,membership level,subscription tier",
    "subscription plan,subscription type,stripe plan,level,abo,formule",
)
EXPIRY = _keys(
    "paid expiry,expiry,expires,expires at,expiry at,expiry date,expiration,expiration date",
    "paid until,paid through,valid until,subscription expires,membership expires,gift expires at",
)
STATUS = _keys(
    "status,subscription status,subscriber status,email status,list status,member status",
    "contact status,email marketing status,email subscriber status,statut,estado,stato,статус",
    "email permission status,marketing status",
)
# One word for status or tier, in the exports of Buttondown, Substack and Pressroom.
TYPE = _keys("type,subscriber type")
# Columns that are filled in once the person left.
LEFT_AT = {
    **dict.fromkeys(
        _keys(
            "unsub time,unsubscribed at,unsubscribe date,unsubscribed date,unsubscribed on",
            "date unsubscribed,unsubscription date,opt out date,opt out time,opted out at",
            "optout time,unsubscribe time,unsubscribed time,global unsubscribe,unsubscribed",
            "opted out,opt out,email opt out,email disabled,do not email,do not mail,suppressed",
            "email disabled at,abgemeldet,désabonné,désinscrit,désinscription",
        ),
        SuppressionStatus.UNSUBSCRIBED,
    ),
    **dict.fromkeys(_keys("clean time,cleaned at,cleaned"), SuppressionStatus.CLEANED),
    **dict.fromkeys(
        _keys("bounced at,bounced,hard bounced,undeliverable"), SuppressionStatus.BOUNCED
    ),
    **dict.fromkeys(
        _keys("complained at,complained,marked as spam,spam complaint"),
        SuppressionStatus.COMPLAINED,
    ),
}
# Columns of yes or no: whether the person gets mail.
SUBSCRIBED = _keys(
    "subscribed,subscribed to emails,is subscribed,email enabled,email subscribed,opted in,opt in",
    "email opt in,accepts marketing,accepts email marketing,marketing consent",
)
DELETED = _keys("deleted at,removed at")
PAID = _keys("complimentary plan,premium,is premium,paid,is paid,premium tier")
ACTIVE_SUBSCRIPTION = _keys("active subscription")

NO = _keys("false,no,n,f,off,none,null,nil,n/a,nein,non,нет,never,否") | {""}

# The person is neither a member nor opted out: they are not imported, and may join.
NOT_SUBSCRIBED = None

STATUS_WORDS: dict[str, SuppressionStatus | None] = {
    **dict.fromkeys(
        _keys(
            "unsubscribed,unsubscribe,unsub,opted out,opt out,optout,left",
            "suppressed,do not email,do not contact,do not mail,blocked,blocklisted,blacklisted",
            "disabled,désabonné,désinscrit,abgemeldet,отписан,manual unsubscribe",
        ),
        SuppressionStatus.UNSUBSCRIBED,
    ),
    **dict.fromkeys(_keys("cleaned,invalid"), SuppressionStatus.CLEANED),
    **dict.fromkeys(
        _keys("bounced,bounce,hard bounce,hard bounced,soft bounced,undeliverable"),
        SuppressionStatus.BOUNCED,
    ),
    **dict.fromkeys(
        _keys("complained,complaint,spam,spammy,spam complaint,marked as spam,abuse,reported"),
        SuppressionStatus.COMPLAINED,
    ),
    **dict.fromkeys(
        _keys(
            "pending,unconfirmed,not confirmed,unactivated,unverified,needs approval,validating",
            "non-subscribed,nonsubscribed,not subscribed,never subscribed,transactional,archived",
            "removed,deleted,inactive,paused,waiting,requested",
            # The word alone does not say whether mail or a paid plan was cancelled.
            "cancelled,canceled",
        ),
        NOT_SUBSCRIBED,
    ),
    **dict.fromkeys(
        _keys(
            "active,subscribed,confirmed,cold,regular,premium,paid,free,gifted,gift,comp,trial",
            "trialed,trialing,churning,churned,unpaid,past due,enabled,silver,gold,founding",
        ),
        SuppressionStatus.WANTED,
    ),
}

TIERS = {
    **dict.fromkeys(_keys("free,none,regular,unpaid,churned,basic,free tier"), "free"),
    # Other products often have one paid tier; it becomes our first one.
    **dict.fromkeys(
        _keys(
            "silver,paid,premium,comp,complimentary,gift,gifted,pro,plus,member,trialed,churning",
            "paused,past due,monthly,yearly,annual,annually,month,year,monthly subscription",
            "yearly subscription,annual subscription,paid monthly,paid yearly,premium tier",
        ),
        "silver",
    ),
    **dict.fromkeys(_keys("gold,founding,founding member,founding plan"), "gold"),
}


def is_no(cell: str) -> bool:
    """Whether a cell says no, is empty, or is a date of zeros alone."""
    return len(cell) <= MAX_WORD_CHARACTERS and key(cell).lstrip("0") in NO
