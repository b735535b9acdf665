"""The stand-in as one thing: an account, its API, its pages, its webhooks."""

from fastapi import APIRouter

from devstack.sandbox.stripe import api, control, pages
from devstack.sandbox.stripe.account import Account
from devstack.sandbox.stripe.courier import WebhookSender
from devstack.sandbox.stripe.desk import StripeGateway
from devstack.sandbox.stripe.keys import StripeKeys


class StripeServer:
    def __init__(self, keys: StripeKeys) -> None:
        self.keys = keys
        self.courier = WebhookSender(keys)
        self.account = Account(self.courier.tell)
        self.desk = StripeGateway(keys)

    def router(self) -> APIRouter:
        """Its routes, with paths below wherever it is mounted, which is ``/stripe``."""
        router = pages.make_router(self.account, self.courier)
        router.include_router(
            api.make_router(self.desk, api.StripeOperations(self.account, self.courier))
        )
        router.include_router(control.make_router(self.account, self.courier, self.desk))
        return router
