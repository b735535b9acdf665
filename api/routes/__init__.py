"""The routers of the API, in the order in which FastAPI tries them."""

from api.console import ROUTERS as CONSOLE_ROUTERS
from api.pages import PAGES
from api.routes import (
    attachments,
    composer,
    credits,
    deliveries,
    events,
    exports,
    fields,
    imports,
    jobs,
    lists,
    mailings,
    media,
    oauth,
    operations,
    segments,
    senders,
    subscriptions,
    users,
    webhook_endpoints,
    webhooks,
)
from api.routes.members import bulk, one, search
from api.sign_up import routes as sign_up

# Routers with frequent and cheap requests come first, because FastAPI tries the routers in order.
ROUTERS = (
    credits.router,
    composer.router,
    attachments.router,
    media.router,
    lists.router,
    sign_up.router,
    subscriptions.router,
    search.router,
    one.router,
    bulk.adds_router,
    fields.router,
    segments.router,
    bulk.router,
    imports.router,
    exports.router,
    deliveries.router,
    mailings.router,
    credits.orders_router,
    webhooks.router,
    webhook_endpoints.router,
    senders.router,
    lists.deny_list_router,
    jobs.router,
    events.router,
    users.router,
    oauth.router,
    users.grants_router,
    *PAGES,
    operations.router,
    operations.service_router,
    operations.well_known_router,
    *CONSOLE_ROUTERS,
)
