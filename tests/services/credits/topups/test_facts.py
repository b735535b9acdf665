import itertools
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import clock
from core.ids import AccountId
from integrations.payments.port import DisputeStatus, Evidence
from models import OrderStatus, PaymentOrder, Resolution
from services.credits import order_facts

PAYMENT = Evidence(
    order_id=7, session_id="cs", payment_id="pi", amount_minor=1000, currency="USD", paid=True
)


def create_order(**values: Any) -> PaymentOrder:
    terms: dict[str, Any] = {
        "id": 7,
        "user_id": 1,
        "status": "pending",
        "channel": "stripe",
        "currency": "USD",
        "amount": Decimal(10),
        "amount_minor": 1000,
        "credit_amount": Decimal("333.3333"),
        "session_id": "cs",
        "expires_at": clock.now() + timedelta(hours=1),
        **dict.fromkeys(("refunded_minor", "refunds_failed_minor"), 0),
        **dict.fromkeys(("disputes_minor", "disputes_ended_minor", "disputes_lost_minor"), 0),
        **dict.fromkeys(("is_failed", "is_expired"), False),
        **dict.fromkeys(("credited", "taken"), Decimal(0)),
    }
    return PaymentOrder(**(terms | values))


def advance_status(payment_order: PaymentOrder) -> list[str]:
    statuses = [str(payment_order.status)]
    while (status := order_facts.next_status(payment_order)) is not None:
        payment_order.status = status
        statuses.append(status)
    return statuses


def apply_evidence(payment_order: PaymentOrder, *news: Evidence) -> PaymentOrder:
    for evidence in news:
        order_facts.add_evidence(payment_order, evidence)
        advance_status(payment_order)
    return payment_order


def report_disputes(total: int, ended: int = 0, lost: int = 0) -> Evidence:
    """Return evidence about a payment's disputes: the sums of all, ended and lost disputes."""
    return Evidence(
        payment_id="pi", disputes_minor=total, disputes_ended_minor=ended, disputes_lost_minor=lost
    )


def summarise_order(payment_order: PaymentOrder) -> tuple[object, ...]:
    return (
        payment_order.status,
        order_facts.credits_due_back(payment_order),
        payment_order.refunded_amount,
    )


refunds = st.builds(lambda minor: replace(PAYMENT, refunded_minor=minor), st.integers(1, 1000))
failures = st.builds(
    lambda total, failed_order: Evidence(
        payment_id="pi", refunded_minor=max(total, failed_order), refunds_failed_minor=failed_order
    ),
    st.integers(1, 1500),
    st.integers(1, 1000),
)
disputes = st.lists(st.integers(0, 700), min_size=3, max_size=3).map(
    lambda sums: report_disputes(*sorted(sums, reverse=True))
)
expiry = st.just(Evidence(order_id=7, session_id="cs", expired=True))


@given(
    st.lists(
        st.one_of(st.just(PAYMENT), refunds, failures, disputes, expiry), min_size=1, max_size=6
    ).flatmap(lambda news: st.tuples(st.just(news), st.permutations(news + news)))
)
def test_payment_outcome_is_independent_of_sequence_and_repetition_of_provider_events(
    sequences: tuple[list[Evidence], list[Evidence]],
) -> None:
    original, shuffled = sequences
    assert summarise_order(apply_evidence(create_order(), *original)) == summarise_order(
        apply_evidence(create_order(), *shuffled)
    )


def test_payment_event_that_arrives_before_its_checkout_session_is_kept() -> None:
    early_order = create_order(status="created", session_id=None)
    apply_evidence(early_order, PAYMENT)
    assert (early_order.status, early_order.session_id, early_order.payment_id) == (
        "paid",
        "cs",
        "pi",
    )
    refunded_order = create_order(status="created", session_id=None)
    apply_evidence(refunded_order, replace(PAYMENT, session_id=None, refunded_minor=1000))
    assert refunded_order.status == "refunded"


@pytest.mark.parametrize(
    "deviating_payment",
    [
        replace(PAYMENT, amount_minor=999),
        replace(PAYMENT, amount_minor=100_000),
        replace(PAYMENT, currency="EUR"),
        replace(PAYMENT, order_id=8),
        replace(PAYMENT, session_id="cs_other"),
    ],
)
@pytest.mark.parametrize("status", ["created", "pending", "expired", "failed", "paid_unclaimed"])
def test_payment_that_differs_from_its_order_requires_review_by_an_operator(
    status: str, deviating_payment: Evidence
) -> None:
    user_id = None if status == "paid_unclaimed" else 1
    payment_order = apply_evidence(create_order(status=status, user_id=user_id), deviating_payment)
    assert payment_order.status == OrderStatus.REVIEW
    assert not order_facts.is_credited(payment_order)
    # A payment event that arrives during the review of an order doesn't end the review. Only the
    # decision of an operator ends the review.
    assert apply_evidence(payment_order, PAYMENT).status == OrderStatus.REVIEW
    payment_order.user_id = AccountId(1)
    payment_order.resolution = Resolution.CREDIT
    assert advance_status(payment_order)[-1] == OrderStatus.PAID


@pytest.mark.parametrize("status", ["paid", "disputed", "refunded"])
def test_deviating_payment_event_for_a_paid_order_changes_nothing(status: str) -> None:
    dispute = DisputeStatus.OPEN if status == "disputed" else None
    payment_order = create_order(status=status, paid_at=clock.now(), dispute=dispute)
    before = summarise_order(payment_order)
    assert (
        summarise_order(
            apply_evidence(payment_order, replace(PAYMENT, amount_minor=1, refunded_minor=1000))
        )
        == before
    )


def test_deviating_event_without_a_payment_is_ignored() -> None:
    payment_order = apply_evidence(
        create_order(), Evidence(order_id=7, amount_minor=1, currency="USD", expired=True)
    )
    assert (payment_order.status, payment_order.mismatch) == ("pending", None)


def test_payment_event_without_amount_or_currency_is_ignored() -> None:
    for incomplete_payment in (
        replace(PAYMENT, amount_minor=None),
        replace(PAYMENT, currency=None),
    ):
        assert apply_evidence(create_order(), incomplete_payment).status == "pending"


def test_payment_currencies_are_compared_case_insensitively() -> None:
    assert apply_evidence(create_order(), replace(PAYMENT, currency="usd")).status == "paid"


@pytest.mark.parametrize(
    ("refunded_minor", "due"),
    [(0, "0"), (1, "0.3334"), (500, "166.6667"), (999, "333"), (1000, "333.3333")],
)
def test_credits_taken_for_a_refund_are_rounded_up_and_complete_for_a_full_refund(
    refunded_minor: int, due: str
) -> None:
    assert order_facts.credits_due_back(create_order(refunded_minor=refunded_minor)) == Decimal(due)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=8), st.integers(1, 10**12))
def test_partial_refunds_never_leave_more_credits_than_money_kept(
    parts: list[int], credit_units: int
) -> None:
    credit_amount = Decimal(credit_units).scaleb(-4)
    totals = [min(1000, total) for total in itertools.accumulate(parts)]
    dues = [
        order_facts.credits_due_back(create_order(refunded_minor=t, credit_amount=credit_amount))
        for t in totals
    ]
    assert dues == sorted(dues)
    # The credits that the buyer keeps are never worth more than the money that wasn't refunded.
    for total, due in zip(totals, dues, strict=True):
        assert (credit_amount - due) * 1000 <= credit_amount * (1000 - total)
        assert (due == credit_amount) >= (total == 1000)


def test_refund_and_dispute_together_never_take_more_than_the_whole_order() -> None:
    payment_order = apply_evidence(
        create_order(payment_id="pi"),
        replace(PAYMENT, refunded_minor=700),
        report_disputes(1000, ended=1000, lost=1000),
    )
    assert summarise_order(payment_order) == ("refunded", Decimal("333.3333"), Decimal("10.00"))
    # The seller has refunded a part of a suspicious payment, and then the bank disputes the whole
    # payment.
    disputed_order = apply_evidence(
        create_order(payment_id="pi"), replace(PAYMENT, refunded_minor=700), report_disputes(1000)
    )
    assert summarise_order(disputed_order) == ("disputed", Decimal("333.3333"), Decimal("7.00"))
    apply_evidence(disputed_order, report_disputes(1000, ended=1000))
    assert summarise_order(disputed_order) == ("paid", Decimal("233.3334"), Decimal("7.00"))


@given(
    st.lists(
        st.tuples(st.integers(1, 300), st.sampled_from(["open", "won", "lost"])),
        min_size=1,
        max_size=3,
    ).flatmap(
        lambda dispute_ends: st.tuples(
            st.just(dispute_ends), st.permutations([0, 1, 2, 3, 4, 5] * 2)
        )
    )
)
def test_dispute_outcome_is_independent_of_the_sequence_of_dispute_reports(
    sequences: tuple[list[tuple[int, str]], list[int]],
) -> None:
    dispute_ends, sequence = sequences
    # The disputes open one after the other. Once the last dispute is open, the disputes end one
    # after the other. Whenever a dispute opens or ends, the payment provider reports the sums of
    # all disputes of the payment.
    reports = [
        report_disputes(sum(minor for minor, _ in dispute_ends[: n + 1]))
        for n in range(len(dispute_ends))
    ]
    total = reports[-1].disputes_minor or 0
    ended = 0
    lost = 0
    for minor, end in dispute_ends:
        ended += minor if end != "open" else 0
        lost += minor if end == "lost" else 0
        reports.append(report_disputes(total, ended, lost))
    payment_order = apply_evidence(
        create_order(payment_id="pi", credit_amount=Decimal(1000)), PAYMENT
    )
    apply_evidence(payment_order, *(reports[index] for index in sequence if index < len(reports)))
    state = "open" if total > ended else "lost" if lost else "won"
    assert (payment_order.dispute, order_facts.credits_due_back(payment_order)) == (
        state,
        Decimal(total - ended + lost),
    )
    assert payment_order.refunded_amount == Decimal(lost).scaleb(-2)


@pytest.mark.parametrize(
    ("resolution", "status"), [(Resolution.CREDIT, "paid"), (Resolution.REFUNDED, "refunded")]
)
def test_payment_for_a_failed_order_requires_review_by_an_operator(
    resolution: Resolution, status: str
) -> None:
    failed_order = apply_evidence(create_order(), Evidence(order_id=7, failed=True))
    assert failed_order.status == OrderStatus.FAILED
    apply_evidence(failed_order, PAYMENT, PAYMENT, Evidence(order_id=7, failed=True))
    assert (failed_order.status, failed_order.mismatch) == (
        "review",
        "the order was paid after it had failed",
    )
    assert not order_facts.is_credited(failed_order)
    failed_order.resolution = resolution
    assert advance_status(failed_order)[-1] == status
    assert order_facts.is_credited(failed_order) == (resolution is Resolution.CREDIT)


def test_payment_received_before_a_failure_event_keeps_its_order_paid() -> None:
    assert (
        apply_evidence(create_order(), PAYMENT, Evidence(order_id=7, failed=True)).status == "paid"
    )


def test_fully_refunded_order_is_not_paid_again_by_a_late_payment_event() -> None:
    refunded_order = create_order(status="refunded", refunded_minor=1000)
    assert apply_evidence(refunded_order, PAYMENT).status == "refunded"
