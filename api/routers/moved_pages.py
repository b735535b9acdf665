"""Leads from where pages were to where they are: people keep links, and have mails with them."""

from fastapi import APIRouter
from fastapi.responses import Response

from api.access.page_sessions import redirect_to_path
from api.access.requirements import PUBLIC
from api.parameters import StateOf
from services.people.page_urls import GRANTS_PATH, KEYS_PATH, NEW_KEY_PATH

# No operations of the API, so not in its document.
router = APIRouter(dependencies=[PUBLIC], include_in_schema=False)


@router.get("/account/keys")
async def lead_to_keys(state: StateOf) -> Response:
    return redirect_to_path(state, KEYS_PATH)


@router.get("/account/keys/new")
async def lead_to_new_key(state: StateOf) -> Response:
    return redirect_to_path(state, NEW_KEY_PATH)


@router.get("/account/grants")
async def lead_to_grants(state: StateOf) -> Response:
    return redirect_to_path(state, GRANTS_PATH)
