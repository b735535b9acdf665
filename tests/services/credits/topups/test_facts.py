import itertools
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import clock
from integrations.payments.port import DisputeStatus, Evidence
from models import OrderStatus, PaymentOrder, Resolution
from services.credits import order_facts

PAID = Evidence(
    order_id=7, session_id="cs", payment_id="pi", amount_minor=1000, currency="USD", paid=True
)


def order(**more: Any) -> PaymentOrder:
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
    return PaymentOrder(**(terms | more))


def walk(subject: PaymentOrder) -> list[str]:
    seen = [str(subject.status)]
    while (status := order_facts.next_status(subject)) is not None:
        subject.status = status
        seen.append(status)
    return seen


def told(subject: PaymentOrder, *news: Evidence) -> PaymentOrder:
    for evidence in news:
        order_facts.add_evidence(subject, evidence)
        walk(subject)
    return subject


def disputed(total: int, ended: int = 0, lost: int = 0) -> Evidence:
    """All disputes of the payment, as a list of them says at some moment."""
    return Evidence(
        payment_id="pi", disputes_minor=total, disputes_ended_minor=ended, disputes_lost_minor=lost
    )


def outcome(subject: PaymentOrder) -> tuple[object, ...]:
    return subject.status, order_facts.credits_due_back(subject), subject.refunded_amount


refunds = st.builds(lambda minor: replace(PAID, refunded_minor=minor), st.integers(1, 1000))
failures = st.builds(
    lambda total, failed: Evidence(
        payment_id="pi", refunded_minor=max(total, failed), refunds_failed_minor=failed
    ),
    st.integers(1, 1500),
    st.integers(1, 1000),
)
disputes = st.lists(st.integers(0, 700), min_size=3, max_size=3).map(
    lambda sums: disputed(*sorted(sums, reverse=True))
)
expiry = st.just(Evidence(order_id=7, session_id="cs", expired=True))


@given(
    st.lists(
        st.one_of(st.just(PAID), refunds, failures, disputes, expiry), min_size=1, max_size=6
    ).flatmap(lambda news: st.tuples(st.just(news), st.permutations(news + news)))
)
def test_payment_outcome_is_independent_of_sequence_and_repetition_of_provider_events(
    drawn: tuple[list[Evidence], list[Evidence]],
) -> None:
    once, shuffled = drawn
    assert outcome(told(order(), *once)) == outcome(told(order(), *shuffled))


def test_payment_event_that_arrives_before_its_checkout_session_is_kept() -> None:
    early = order(status="created", session_id=None)
    told(early, PAID)
    assert (early.status, early.session_id, early.payment_id) == ("paid", "cs", "pi")
    before_the_payment = order(status="created", session_id=None)
    told(before_the_payment, replace(PAID, session_id=None, refunded_minor=1000))
    assert before_the_payment.status == "refunded"


@pytest.mark.parametrize(
    "strange",
    [
        replace(PAID, amount_minor=999),
        replace(PAID, amount_minor=100_000),
        replace(PAID, currency="EUR"),
        replace(PAID, order_id=8),
        replace(PAID, session_id="cs_other"),
    ],
)
@pytest.mark.parametrize("status", ["created", "pending", "expired", "failed", "paid_unclaimed"])
def test_payment_that_differs_from_its_order_requires_review_by_an_operator(
    status: str, strange: Evidence
) -> None:
    user_id = None if status == "paid_unclaimed" else 1
    subject = told(order(status=status, user_id=user_id), strange)
    assert subject.status == OrderStatus.REVIEW
    assert not order_facts.is_credited(subject)
    # What comes later does not talk it out of that; an operator does.
    assert told(subject, PAID).status == OrderStatus.REVIEW
    subject.user_id, subject.resolution = 1, Resolution.CREDIT
    assert walk(subject)[-1] == OrderStatus.PAID


@pytest.mark.parametrize("status", ["paid", "disputed", "refunded"])
def test_deviating_payment_event_for_a_paid_order_changes_nothing(status: str) -> None:
    dispute = DisputeStatus.OPEN if status == "disputed" else None
    subject = order(status=status, paid_at=clock.now(), dispute=dispute)
    before = outcome(subject)
    assert outcome(told(subject, replace(PAID, amount_minor=1, refunded_minor=1000))) == before


def test_deviating_event_without_a_payment_is_ignored() -> None:
    subject = told(order(), Evidence(order_id=7, amount_minor=1, currency="USD", expired=True))
    assert (subject.status, subject.mismatch) == ("pending", None)


def test_payment_event_without_amount_or_currency_is_ignored() -> None:
    for lacking in (replace(PAID, amount_minor=None), replace(PAID, currency=None)):
        assert told(order(), lacking).status == "pending"


def test_payment_currencies_are_compared_case_insensitively() -> None:
    assert told(order(), replace(PAID, currency="usd")).status == "paid"


@pytest.mark.parametrize(
    ("back", "due"), [(0, "0"), (1, "0.3334"), (500, "166.6667"), (999, "333"), (1000, "333.3333")]
)
def test_credits_taken_for_a_refund_are_rounded_up_and_complete_for_a_full_refund(
    back: int, due: str
) -> None:
    assert order_facts.credits_due_back(order(refunded_minor=back)) == Decimal(due)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=8), st.integers(1, 10**12))
def test_partial_refunds_never_leave_more_credits_than_money_kept(
    parts: list[int], credit_units: int
) -> None:
    credit_amount = Decimal(credit_units).scaleb(-4)
    totals = [min(1000, total) for total in itertools.accumulate(parts)]
    dues = [
        order_facts.credits_due_back(order(refunded_minor=t, credit_amount=credit_amount))
        for t in totals
    ]
    assert dues == sorted(dues)
    # What is left is never worth more than the money that was kept.
    for total, due in zip(totals, dues, strict=True):
        assert (credit_amount - due) * 1000 <= credit_amount * (1000 - total)
        assert (due == credit_amount) >= (total == 1000)


def test_refund_and_dispute_together_never_take_more_than_the_whole_order() -> None:
    subject = told(
        order(payment_id="pi"),
        replace(PAID, refunded_minor=700),
        disputed(1000, ended=1000, lost=1000),
    )
    assert outcome(subject) == ("refunded", Decimal("333.3333"), Decimal("10.00"))
    # As when the seller gives back at the first sign of fraud, and the bank takes the same money.
    open_still = told(order(payment_id="pi"), replace(PAID, refunded_minor=700), disputed(1000))
    assert outcome(open_still) == ("disputed", Decimal("333.3333"), Decimal("7.00"))
    told(open_still, disputed(1000, ended=1000))
    assert outcome(open_still) == ("paid", Decimal("233.3334"), Decimal("7.00"))


@given(
    st.lists(
        st.tuples(st.integers(1, 300), st.sampled_from(["open", "won", "lost"])),
        min_size=1,
        max_size=3,
    ).flatmap(lambda all_of: st.tuples(st.just(all_of), st.permutations([0, 1, 2, 3, 4, 5] * 2)))
)
def test_dispute_outcome_is_independent_of_the_sequence_of_dispute_reports(
    drawn: tuple[list[tuple[int, str]], list[int]],
) -> None:
    all_of, sequence = drawn
    # First each dispute opens, then each ends: a list of them after each of these.
    lists = [disputed(sum(minor for minor, _ in all_of[: n + 1])) for n in range(len(all_of))]
    total, ended, lost = lists[-1].disputes_minor or 0, 0, 0
    for minor, end in all_of:
        ended += minor if end != "open" else 0
        lost += minor if end == "lost" else 0
        lists.append(disputed(total, ended, lost))
    subject = told(order(payment_id="pi", credit_amount=Decimal(1000)), PAID)
    told(subject, *(lists[place] for place in sequence if place < len(lists)))
    state = "open" if total > ended else "lost" if lost else "won"
    assert (subject.dispute, order_facts.credits_due_back(subject)) == (
        state,
        Decimal(total - ended + lost),
    )
    assert subject.refunded_amount == Decimal(lost).scaleb(-2)


@pytest.mark.parametrize(
    ("resolution", "status"), [(Resolution.CREDIT, "paid"), (Resolution.REFUNDED, "refunded")]
)
def test_payment_for_a_failed_order_requires_review_by_an_operator(
    resolution: Resolution, status: str
) -> None:
    failed = told(order(), Evidence(order_id=7, failed=True))
    assert failed.status == OrderStatus.FAILED
    told(failed, PAID, PAID, Evidence(order_id=7, failed=True))
    assert (failed.status, failed.mismatch) == ("review", "the order was paid after it had failed")
    assert not order_facts.is_credited(failed)
    failed.resolution = resolution
    assert walk(failed)[-1] == status
    assert order_facts.is_credited(failed) == (resolution is Resolution.CREDIT)


def test_payment_received_before_a_failure_event_keeps_its_order_paid() -> None:
    assert told(order(), PAID, Evidence(order_id=7, failed=True)).status == "paid"


def test_fully_refunded_order_is_not_paid_again_by_a_late_payment_event() -> None:
    refunded = order(status="refunded", refunded_minor=1000)
    assert told(refunded, PAID).status == "refunded"
