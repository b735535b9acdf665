"""The API endpoints for accounts."""

from fastapi import APIRouter

from api.auth.requirements import PersonalCaller
from api.route_classes import JsonRoute
from api.schemas.accounts import AccountRecord
from api.schemas.envelope import Envelope, build_envelope
from api.state import Transaction
from services.accounts import teams

router = APIRouter(tags=["Accounts"], route_class=JsonRoute)


@router.get("/accounts", summary="List your accounts")
def list_accounts(uow: Transaction, caller: PersonalCaller) -> Envelope[list[AccountRecord]]:
    """List the accounts in which the credential can act.

    A session chooses one of these accounts with the header `Pressroom-Account`. Without the header,
    it acts in the account that has the id of the person. An API key or an access token acts only in
    its own account.
    """
    accounts = teams.list_accounts(uow, caller)
    return build_envelope([AccountRecord.model_validate(account) for account in accounts])
