from api.pages import topup_return
from api.pages.account import registration
from api.pages.engagement import routes as engagement
from api.pages.login import routes as login
from api.pages.oauth_consent import routes as oauth_consent
from api.pages.preferences import links as preference_links
from api.pages.preferences import routes as preferences
from api.pages.reports import routes as reports
from api.pages.unsubscribe import routes as unsubscribe
from api.sign_up import confirmation, subscribed
from api.sign_up import pages as sign_up

# The routers of the pages that are shown in the reader's language.
READER_PAGES = (
    unsubscribe.router,
    reports.router,
    sign_up.router,
    subscribed.router,
    confirmation.router,
    preferences.router,
    preference_links.router,
    engagement.router,
)

# The routers of all HTML pages outside the console.
PAGES = (
    *READER_PAGES,
    topup_return.router,
    login.router,
    registration.router,
    oauth_consent.router,
)
