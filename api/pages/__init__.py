from api.pages import topup_return
from api.pages.account import registration
from api.pages.login import routes as login
from api.pages.oauth_consent import routes as oauth_consent
from api.pages.preferences import routes as preferences
from api.pages.sign_up import routes as sign_up
from api.pages.unsubscribe import routes as unsubscribe

# The pages that readers get, in their own language.
READER_PAGES = (unsubscribe.router, sign_up.router, preferences.router)

# The pages for browsers, without those of the console.
PAGES = (
    *READER_PAGES,
    topup_return.router,
    login.router,
    registration.router,
    oauth_consent.router,
)
