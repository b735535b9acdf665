"""An owner's credits: what they have, what became of them, and the order of more."""

from decimal import Decimal
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.access.page_sessions import redirect_to_path
from api.access.requirements import PUBLIC
from api.console.assets import CONSOLE_PATH
from api.console.of_credits.amounts import credits_text, typed_amount
from api.console.of_credits.buy_forms import (
    PLACES,
    channel_choices,
    credit_prices,
    order_request,
)
from api.console.of_credits.shown_ledger import (
    ACTION,
    FIRST,
    LAST,
    ShownEntry,
    action_choices,
    ledger_filter,
    shown_balance,
)
from api.console.typed_forms import TypedForm, wrong_field
from api.console.visits import ConsoleVisit, FormVisit, Visit
from api.job_answers import wait_for_job
from api.limits.bulkheads import MONEY
from api.parameters import Cursor
from api.request_ids import current_request_id
from core.errors import DomainError
from core.lanes import Lane
from services.money.credits import ledger, low_balance
from services.money.credits.ledger_search import MAX_ENTRIES_LOOKED_AT
from services.money.topups import checkout
from services.paging import PageOfRows, PageRequest

# No operations of the API, so not in its document.
PATH = f"{CONSOLE_PATH}/credits"
router = APIRouter(prefix=PATH, dependencies=[PUBLIC], include_in_schema=False)

ENTRIES_ON_PAGE = 50
BELOW = "below_credit"
# A person waits so long before an empty page; then the order's page tells how it goes on.
WAIT_SECONDS = 15.0


@router.get("")
@MONEY.threaded
def show_credits(visit: Visit, cursor: Cursor = None) -> Response:
    """The balance, and the entries that the query asks for, newest first."""
    return _credits_page(visit, cursor, None)


@router.post("/low-balance")
@MONEY.threaded
def set_low_balance(visit: FormVisit) -> Response:
    """Set below which balance the owner's events tell that the credits run low."""
    try:
        below = typed_amount(visit.form, BELOW)
        if below is None:
            raise wrong_field(BELOW, "say a number; 0: nothing is told")
        low_balance.set_threshold(visit.state.resources.database, visit.user_id, below)
    except DomainError as error:
        return _credits_page(visit, None, visit.refused(error))
    return visit.done(PATH, "That is kept.")


@router.get("/buy")
@MONEY.threaded
def show_buying(visit: Visit) -> Response:
    return _buy_page(visit, TypedForm())


@router.post("/buy")
async def buy_credits(request: Request, visit: FormVisit) -> Response:
    """Order credits, and lead to the order, whose page leads to the payment.

    Not to the provider's page itself: our policy keeps forms from leading to other sites.
    """
    state = visit.state
    try:
        wanted = order_request(state, visit.form)
        state.lane_ages.check(Lane.MONEY, waits=True)
        accepted = await MONEY.run(
            checkout.accept,
            state.resources,
            state.payments,
            wanted,
            user_id=visit.user_id,
            key=None,
            request_id=current_request_id(),
        )
        await wait_for_job(request, state, accepted.job_id, WAIT_SECONDS)
    except DomainError as error:
        return await MONEY.run(_buy_page, visit, visit.refused(error, PLACES))
    return redirect_to_path(state, f"{PATH}/orders/{accepted.subject_id}")


def _credits_page(visit: ConsoleVisit, cursor: str | None, low: TypedForm | None) -> Response:
    sent = visit.request.query_params
    form = TypedForm({name: sent[name] for name in (ACTION, FIRST, LAST) if sent.get(name)})
    database = visit.state.resources.database
    found: PageOfRows[tuple[int, str]] = PageOfRows([], None)
    try:
        only, wanted = ledger_filter(form.typed), PageRequest(ENTRIES_ON_PAGE, cursor=cursor)
        found = ledger.page(database, visit.user_id, wanted, only)
    except DomainError as error:
        form = form.refused(error)
    below = credits_text(Decimal(low_balance.threshold(database, visit.user_id)))
    return visit.page(
        "credits.html",
        status=(low or form).status,
        form=form,
        low=low or TypedForm({BELOW: below}),
        balance=shown_balance(ledger.balance(database, visit.user_id)),
        entries=[ShownEntry.of(entry) for _, entry in found.rows],
        actions=action_choices(),
        looked_at=MAX_ENTRIES_LOOKED_AT,
        query=f"?{urlencode(form.typed)}",
        next_cursor=found.next_cursor,
        cursor=cursor,
    )


def _buy_page(visit: ConsoleVisit, form: TypedForm) -> Response:
    prices = credit_prices(visit.state)
    return visit.form_page(
        "buy_credits.html",
        form,
        prices=prices,
        currencies=[(each.currency, each.currency) for each in prices],
        channels=channel_choices(visit.state),
    )
