"""What the document says of the API as a whole: its story in chapters, address and credentials."""

from typing import Any

from api.middleware.versions import VERSION_HEADER, VERSIONS
from core.scopes import EXPLANATIONS
from core.settings import Settings
from services.oauth.endpoints import AUTHORIZE_PATH, TOKEN_PATH

_DESCRIPTION = """
The back end of a newsletter and publishing platform.

Every successful answer is `{"data": …, "ts": <Unix seconds>}`; every refusal is
`application/problem+json` with a stable `code`; `/oauth/*` answers as the RFCs of OAuth say. Ids
are integers below 2^53, which every JavaScript number holds exactly; money and credits are numbers
of at most four decimals. Send an API key or an access token as `Authorization: Bearer …`, or the
key in `X-API-Key`; a browser with a session needs neither. Workers do slow work while your call
waits; `Prefer: respond-async` or `Prefer: wait=N` (seconds, at most 60) says for how long.
`Pressroom-Version` asks for the version of this contract that a program was written for.
"""

# The chapters, in the order in which a newcomer reads them.
_TAGS = {
    "Accounts": "Who you are, what your plan allows, and the API keys of your programs.",
    "OAuth": "Access to the accounts of other people, who agree to it and can end it.",
    "Lists": "Mailing lists: people subscribe to them, and their owner sends to them.",
    "Subscriptions": "For subscribers and the forms and mails they use: join, leave, stop mails.",
    "Members": "The people on a list, for its owner.",
    "Fields and tags": "What an owner keeps of members beside name and address.",
    "Bulk members": "Many members at once: add, import from a file, undo an import, export.",
    "Events": "What happened to what is yours, in order, for 30 days.",
    "Webhooks": "What Pressroom sends to URLs that an owner named, by Standard Webhooks.",
    "Jobs": "Slow work: its progress and result, also as a stream; cancel it or try it again.",
    "Attachments": "Images: uploaded, made ready for web and mail, and served.",
    "Composer": "What goes with a post: slug, summary, tags, posts for networks, stock photos.",
    "Credits": "Prepaid credits: the balance and its ledger, charges, and orders of credits.",
    "Operations": "For operators: what this is, whether it works, and its figures.",
}

_SESSION_SCHEME = {
    "type": "apiKey",
    "in": "cookie",
    "name": "__Host-pressroom_session",
    "description": "Of a user who logged in on the page /login; it may do what its user may. "
    "Writes need our own Origin or the header X-CSRF-Token too. Where the API is reached over http "
    "on its own machine, the name has no __Host-.",
}

VERSION_PARAMETER = {
    "name": VERSION_HEADER,
    "in": "header",
    "description": "The version of this contract that the program was written for; without it the "
    "oldest that there is.",
    "schema": {"type": "string", "enum": list(VERSIONS)},
}
VERSION_RESPONSE_HEADER = {
    "description": "The version of this contract by which the call was answered.",
    "schema": {"type": "string"},
    "example": VERSIONS[0],
}


def head(settings: Settings) -> dict[str, Any]:
    """The members of the document beside its operations and schemas."""
    base = _base(settings)
    return {
        "info": {
            "title": "Pressroom",
            "version": VERSIONS[0],
            "description": _DESCRIPTION.replace("X-API-Key", settings.api_key_header),
            "license": {"name": "Apache License 2.0", "identifier": "Apache-2.0"},
            "contact": {"name": "The operator of this server", "url": f"{base}/"},
        },
        "servers": [{"url": base or "/", "description": "This server"}],
        "tags": [{"name": name, "description": said} for name, said in _TAGS.items()],
    }


def security_schemes(settings: Settings) -> dict[str, Any]:
    base = _base(settings)
    flow = {
        "authorizationUrl": f"{base}{AUTHORIZE_PATH}",
        "tokenUrl": f"{base}{TOKEN_PATH}",
        "refreshUrl": f"{base}{TOKEN_PATH}",
        "scopes": {str(scope): explanation for scope, explanation in EXPLANATIONS.items()},
    }
    return {
        "bearer": {"type": "http", "scheme": "bearer"},
        "apiKey": {"type": "apiKey", "in": "header", "name": settings.api_key_header},
        "session": _SESSION_SCHEME,
        "oauth2": {
            "type": "oauth2",
            "description": "Authorization code with PKCE (S256), always.",
            "flows": {"authorizationCode": flow},
        },
    }


def _base(settings: Settings) -> str:
    """The public URL; nothing in the document of no deployment, whose addresses are relative."""
    return settings.public_base if "public_url" in settings.model_fields_set else ""
