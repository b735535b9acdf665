"""The paths and URLs of the account pages, which mails link to."""

from urllib.parse import urlencode

from core.settings import Settings

LOGIN_PATH = "/login"
LOGOUT_PATH = "/logout"
REGISTER_PATH = "/register"
REGISTRATION_PATH = "/register/confirm"
FORGOTTEN_PATH = "/password/forgotten"
RESET_PATH = "/password/new"
ACCOUNT_PATH = "/account"
PASSWORD_PATH = "/account/password"  # noqa: S105 - a path
EMAIL_PATH = "/account/email"
UNDO_EMAIL_PATH = "/account/email/undo"
CONFIRM_EMAIL_PATH = "/account/email/confirm"
MERGE_PATH = "/account/email/merge"
SHOW_EMAIL_PATH = "/account/email/lists"
KEYS_PATH = "/console/programs/keys"
NEW_KEY_PATH = "/console/programs/keys/new"
GRANTS_PATH = "/console/programs/access"
EVENTS_PATH = "/account/events"
IMPORTS_PATH = "/account/imports"
FACTORS_PATH = "/account/factors"
ADD_APP_PATH = "/account/factors/app"
ADD_PASSKEY_PATH = "/account/factors/passkey"
RECOVERY_CODES_PATH = "/account/factors/codes"
SECOND_STEP_PATH = "/login/factor"
PASSKEY_LOGIN_PATH = "/login/passkey"
SESSIONS_PATH = "/account/sessions"


def page_url(settings: Settings, path: str, **query: str) -> str:
    return f"{settings.public_base}{path}" + (f"?{urlencode(query)}" if query else "")
