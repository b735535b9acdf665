"""The console is the web site on which an owner manages lists, members and credits.

Each package below ``api.console`` contains the routes and page templates of one area, such as
imports or credits. A module called ``forms`` or ``views`` contains code that several modules of its
package share.
"""

from api.console import assets
from api.console.account import factors
from api.console.account import routes as account
from api.console.composer import routes as composer
from api.console.credits import routes as credits
from api.console.developers import routes as developers
from api.console.developers import senders, webhooks
from api.console.exports import routes as exports
from api.console.images import routes as images
from api.console.imports import routes as imports
from api.console.lists import engagement, growth_page, mailings, sending
from api.console.lists import routes as lists
from api.console.members import bulk, fields, member_page, segments, watches
from api.console.members import routes as members
from api.console.operators import routes as operators
from api.console.overview import routes as overview

# FastAPI uses the first router in this tuple that matches the path of a request.
ROUTERS = (
    overview.router,
    lists.router,
    growth_page.router,
    engagement.router,
    mailings.router,
    sending.router,
    members.router,
    member_page.router,
    segments.router,
    watches.router,
    bulk.router,
    fields.router,
    imports.router,
    exports.router,
    images.router,
    credits.router,
    developers.router,
    webhooks.router,
    senders.router,
    composer.router,
    operators.router,
    account.router,
    factors.router,
    assets.assets_router,
)
