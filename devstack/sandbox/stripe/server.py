"""The stand-in as one thing: an account, its API, its pages, its webhooks."""

from fastapi import APIRouter

from devstack.sandbox.stripe import api, control, pages
from devstack.sandbox.stripe.account import Account
from devstack.sandbox.stripe.courier import Courier
from devstack.sandbox.stripe.desk import Desk
from devstack.sandbox.stripe.keys import Keys


class StripeServer:
    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self.courier = Courier(keys)
        self.account = Account(self.courier.tell)
        self.desk = Desk(keys)

    def router(self) -> APIRouter:
        """Its routes, with paths below wherever it is mounted, which is ``/stripe``."""
        router = pages.make_router(self.account, self.courier)
        router.include_router(api.make_router(self.desk, api.Shop(self.account, self.courier)))
        router.include_router(control.make_router(self.account, self.courier, self.desk))
        return router
