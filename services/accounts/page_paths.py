"""The URL paths of the account pages to which mails and the console link."""

from urllib.parse import urlencode

from core.settings import Settings

LOGIN_PATH = "/login"
LOGOUT_PATH = "/logout"
REGISTER_PATH = "/register"
REGISTRATION_PATH = "/register/confirm"
FORGOTTEN_PATH = "/password/forgotten"
RESET_PATH = "/password/new"
ACCOUNT_PATH = "/account"
OVERVIEW_PATH = "/console"
PASSWORD_PATH = "/account/password"  # noqa: S105 - a path
EMAIL_PATH = "/account/email"
UNDO_EMAIL_PATH = "/account/email/undo"
CONFIRM_EMAIL_PATH = "/account/email/confirm"
KEYS_PATH = "/console/developers/keys"
GRANTS_PATH = "/console/developers/access"
WEBHOOKS_PATH = "/console/developers/webhooks"
SENDERS_PATH = "/console/developers/senders"
EVENTS_PATH = "/account/events"
IMPORTS_PATH = "/console/imports"
LISTS_PATH = "/console/lists"
CREDITS_PATH = "/console/credits"
FACTORS_PATH = "/account/factors"
ADD_APP_PATH = "/account/factors/app"
ADD_PASSKEY_PATH = "/account/factors/passkey"
RECOVERY_CODES_PATH = "/account/factors/codes"
SECOND_STEP_PATH = "/login/factor"
LOGIN_LINK_PATH = "/login/link"
PASSKEY_LOGIN_PATH = "/login/passkey"
SESSIONS_PATH = "/account/sessions"


def page_url(settings: Settings, path: str, **query: str) -> str:
    return f"{settings.public_base}{path}" + (f"?{urlencode(query)}" if query else "")
