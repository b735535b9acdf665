"""One account: its checkouts, what happens to them, and the events that say so."""

from collections import OrderedDict
from collections.abc import Callable

from devstack.sandbox.stripe.records import CheckoutSession, Dispute, Payment, Refund
from devstack.sandbox.stripe.stripe_objects import (
    Object,
    charge_object,
    dispute_object,
    payment_object,
    refund_object,
    session_object,
)

MAX_SESSIONS = 2_000

EventSink = Callable[[str, Object, str], None]


class ActionNotPossible(Exception):
    """The action is not possible with this checkout as it is; the message says why."""


class Account:
    """Keeps the last checkouts. It calls ``tell`` with each event's type, object and session id."""

    def __init__(self, tell: EventSink) -> None:
        self._tell = tell
        self._sessions: OrderedDict[str, CheckoutSession] = OrderedDict()

    def keep(self, session: CheckoutSession) -> None:
        self._sessions[session.id] = session
        if len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)

    def newest_first(self) -> list[CheckoutSession]:
        return list(reversed(self._sessions.values()))

    def session(self, session_id: str) -> CheckoutSession | None:
        return self._sessions.get(session_id)

    def payment(self, payment_id: str) -> Payment | None:
        payments = (each.payment for each in self._sessions.values())
        return next((each for each in payments if each and each.id == payment_id), None)

    # -- actions of the payer ----------------------------------------------------------------

    def pay(self, session: CheckoutSession, *, later: bool = False) -> None:
        """Pay by card; or `later`, by a bank debit, which ``settle`` ends."""
        payment = self._attempt(session)
        payment.status, payment.was_declined = "processing" if later else "succeeded", False
        payment.amount, payment.currency = session.amount, session.currency
        session.status, session.payment_status = "complete", "unpaid" if later else "paid"
        self._tell_of(session, "completed")

    def settle(self, session: CheckoutSession, *, comes: bool = True) -> None:
        """End a bank debit: the money comes, or the debit falls through."""
        if session.payment is None or not session.is_promised:
            raise ActionNotPossible("No bank debit is under way.")
        session.payment.status = "succeeded" if comes else "requires_payment_method"
        session.payment_status = "paid" if comes else "unpaid"
        self._tell_of(session, f"async_payment_{'succeeded' if comes else 'failed'}")

    def decline(self, session: CheckoutSession) -> None:
        """The checkout stays open: the payer may try another card."""
        payment = self._attempt(session)
        payment.was_declined = True
        self._tell("payment_intent.payment_failed", payment_object(payment), session.id)

    def expire(self, session: CheckoutSession) -> None:
        _require(session.is_open, f"This checkout is {session.status}.")
        session.status = "expired"
        self._tell_of(session, "expired")

    def expire_due(self, now: int) -> None:
        """Expire every checkout that was not paid in time."""
        for session in self.newest_first():
            if session.is_open and session.expires_at <= now:
                self.expire(session)

    # -- actions of the operator and the payer's bank ----------------------------------------

    def refund(self, session: CheckoutSession, amount: int | None = None) -> None:
        payment = _paid(session)
        left = payment.amount - payment.refunded
        given_back = left if amount is None else amount
        _require(0 < given_back <= left, f"{left} are left to be given back.")
        payment.refunds.append(Refund(given_back))
        self._tell("charge.refunded", charge_object(payment), session.id)

    def fail_refund(self, session: CheckoutSession) -> None:
        """The payer's bank sends the last refund back."""
        payment = _paid(session)
        refund = next((each for each in payment.refunds[::-1] if each.status == "succeeded"), None)
        if refund is None:
            raise ActionNotPossible("There is no refund that could fail.")
        refund.status = "failed"
        self._tell("refund.failed", refund_object(payment, refund), session.id)

    def dispute(
        self, session: CheckoutSession, amount: int | None = None, *, is_inquiry: bool = False
    ) -> None:
        payment = _paid(session)
        left = payment.undisputed
        status = "warning_needs_response" if is_inquiry else "needs_response"
        dispute = Dispute(left if amount is None else amount, status)
        _require(0 < dispute.amount <= left, f"{left} are left to be disputed.")
        payment.disputes.append(dispute)
        self._tell_of_dispute(session, dispute, "created")
        if not is_inquiry:
            self._tell_of_dispute(session, dispute, "funds_withdrawn")

    def end_dispute(
        self, session: CheckoutSession, outcome: str, amount: int | None = None
    ) -> None:
        """End the oldest open dispute; with an ``amount``, the oldest one of that amount."""
        found = (each for each in _paid(session).open_disputes if amount in (None, each.amount))
        dispute = next(found, None)
        if dispute is None:
            raise ActionNotPossible("There is no such open dispute.")
        dispute.status = "warning_closed" if dispute.status.startswith("warning_") else outcome
        self._tell_of_dispute(session, dispute, "closed")
        if dispute.status == "won":
            self._tell_of_dispute(session, dispute, "funds_reinstated")

    # -- inside ------------------------------------------------------------------------------

    def _attempt(self, session: CheckoutSession) -> Payment:
        _require(session.is_open, f"This checkout is {session.status}.")
        if session.payment is None:
            about = (dict(session.payment_metadata), session.payment_description)
            session.payment = Payment(session.amount, session.currency, *about)
        return session.payment

    def _tell_of(self, session: CheckoutSession, kind: str) -> None:
        self._tell(f"checkout.session.{kind}", session_object(session), session.id)

    def _tell_of_dispute(self, session: CheckoutSession, dispute: Dispute, what: str) -> None:
        shown = dispute_object(_paid(session), dispute)
        self._tell(f"charge.dispute.{what}", shown, session.id)


def _paid(session: CheckoutSession) -> Payment:
    if session.payment is None or not session.payment.is_paid:
        raise ActionNotPossible("Nothing was paid here.")
    return session.payment


def _require(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise ActionNotPossible(otherwise)
