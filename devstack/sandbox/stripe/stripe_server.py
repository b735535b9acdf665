"""The stand-in for Stripe as a whole: an account, its API, its pages and its webhooks."""

from fastapi import APIRouter

from devstack.sandbox.stripe import control, pages, stripe_api
from devstack.sandbox.stripe.account import Account
from devstack.sandbox.stripe.gateway import StripeGateway
from devstack.sandbox.stripe.keys import StripeKeys
from devstack.sandbox.stripe.webhook_sender import WebhookSender


class StripeServer:
    def __init__(self, keys: StripeKeys) -> None:
        self.keys = keys
        self.sender = WebhookSender(keys)
        self.account = Account(self.sender.tell)
        self.gateway = StripeGateway(keys)

    def router(self) -> APIRouter:
        """All routes, for mounting at ``/stripe``."""
        router = pages.make_router(self.account, self.sender)
        operations = stripe_api.StripeOperations(self.account)
        router.include_router(stripe_api.make_router(self.gateway, operations))
        router.include_router(control.make_router(self.account, self.sender, self.gateway))
        return router
