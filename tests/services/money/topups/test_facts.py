"""In whichever order news come, and however often, what is known at the end is the same."""

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
from services.money.topups import facts

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
        "refunded_minor": 0,
        "refunds_failed_minor": 0,
        "is_failed": False,
        "is_expired": False,
        "credited": Decimal(0),
        "taken": Decimal(0),
    }
    return PaymentOrder(**(terms | more))


def walk(subject: PaymentOrder) -> list[str]:
    seen = [str(subject.status)]
    while (status := facts.next_status(subject)) is not None:
        subject.status = status
        seen.append(status)
    return seen


def told(subject: PaymentOrder, *news: Evidence) -> PaymentOrder:
    for evidence in news:
        facts.add_evidence(subject, evidence)
        walk(subject)
    return subject


def outcome(subject: PaymentOrder) -> tuple[object, ...]:
    return subject.status, facts.due_back(subject), subject.refunded_amount


refunds = st.builds(lambda minor: replace(PAID, refunded_minor=minor), st.integers(1, 1000))
failures = st.builds(
    lambda total, failed: Evidence(
        payment_id="pi", refunded_minor=max(total, failed), refunds_failed_minor=failed
    ),
    st.integers(1, 1500),
    st.integers(1, 1000),
)
disputes = st.builds(
    lambda state: Evidence(payment_id="pi", dispute=state, disputed_minor=400),
    st.sampled_from([DisputeStatus.OPEN, DisputeStatus.WON]),
)
expiry = st.just(Evidence(order_id=7, session_id="cs", expired=True))


@given(
    st.lists(
        st.one_of(st.just(PAID), refunds, failures, disputes, expiry), min_size=1, max_size=6
    ).flatmap(lambda news: st.tuples(st.just(news), st.permutations(news + news)))
)
def test_order_and_number_of_news_do_not_matter(
    drawn: tuple[list[Evidence], list[Evidence]],
) -> None:
    once, shuffled = drawn
    assert outcome(told(order(), *once)) == outcome(told(order(), *shuffled))


def test_news_before_we_know_of_the_page_is_not_lost() -> None:
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
def test_a_payment_that_differs_goes_to_review(status: str, strange: Evidence) -> None:
    user_id = None if status == "paid_unclaimed" else 1
    subject = told(order(status=status, user_id=user_id), strange)
    assert subject.status == OrderStatus.REVIEW
    assert not facts.is_credited(subject)
    # What comes later does not talk it out of that; an operator does.
    assert told(subject, PAID).status == OrderStatus.REVIEW
    subject.user_id, subject.resolution = 1, Resolution.CREDIT
    assert walk(subject)[-1] == OrderStatus.PAID


@pytest.mark.parametrize("status", ["paid", "disputed", "refunded"])
def test_a_payment_that_differs_changes_nothing_later(status: str) -> None:
    dispute = DisputeStatus.OPEN if status == "disputed" else None
    subject = order(status=status, paid_at=clock.now(), dispute=dispute)
    before = outcome(subject)
    assert outcome(told(subject, replace(PAID, amount_minor=1, refunded_minor=1000))) == before


def test_unpaid_news_that_differ_are_no_news() -> None:
    subject = told(order(), Evidence(order_id=7, amount_minor=1, currency="USD", expired=True))
    assert (subject.status, subject.mismatch) == ("pending", None)


def test_a_payment_without_amount_or_currency_does_not_count() -> None:
    for lacking in (replace(PAID, amount_minor=None), replace(PAID, currency=None)):
        assert told(order(), lacking).status == "pending"


def test_currencies_are_compared_whatever_their_case() -> None:
    assert told(order(), replace(PAID, currency="usd")).status == "paid"


@pytest.mark.parametrize(
    ("back", "due"),
    [(0, "0"), (1, "0.3334"), (500, "166.6667"), (999, "333"), (1000, "333.3333")],
)
def test_what_is_due_is_rounded_up_and_all_for_all(back: int, due: str) -> None:
    assert facts.due_back(order(refunded_minor=back)) == Decimal(due)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=8), st.integers(1, 10**12))
def test_parts_given_back_one_after_the_other_take_what_all_at_once_does(
    parts: list[int], credit_units: int
) -> None:
    credit_amount = Decimal(credit_units).scaleb(-4)
    totals = [min(1000, total) for total in itertools.accumulate(parts)]
    dues = [facts.due_back(order(refunded_minor=t, credit_amount=credit_amount)) for t in totals]
    assert dues == sorted(dues)
    # What is left is never worth more than the money that was kept.
    for total, due in zip(totals, dues, strict=True):
        assert (credit_amount - due) * 1000 <= credit_amount * (1000 - total)
        assert (due == credit_amount) >= (total == 1000)


def test_a_dispute_takes_its_part_and_gives_it_back_when_won() -> None:
    opened = Evidence(payment_id="pi", dispute=DisputeStatus.OPEN, disputed_minor=500)
    subject = told(order(payment_id="pi"), PAID, opened)
    assert outcome(subject) == ("disputed", Decimal("166.6667"), Decimal("0.00"))
    told(subject, replace(opened, dispute=DisputeStatus.WON))
    assert outcome(subject) == ("paid", Decimal(0), Decimal("0.00"))
    # A dispute ends once.
    told(subject, opened, replace(opened, dispute=DisputeStatus.LOST))
    assert outcome(subject) == ("paid", Decimal(0), Decimal("0.00"))


@pytest.mark.parametrize(
    ("disputed", "status", "due", "back"),
    [
        (None, "refunded", "333.3333", "10.00"),
        (1000, "refunded", "333.3333", "10.00"),
        (400, "paid", "133.3334", "4.00"),
    ],
)
def test_a_lost_dispute_counts_as_given_back(
    disputed: int | None, status: str, due: str, back: str
) -> None:
    lost = Evidence(payment_id="pi", dispute=DisputeStatus.LOST, disputed_minor=disputed)
    opened = replace(lost, dispute=DisputeStatus.OPEN)
    for news in ((PAID, opened, lost), (opened, PAID, lost), (lost, opened, PAID)):
        subject = told(order(payment_id="pi"), *news)
        assert outcome(subject) == (status, Decimal(due), Decimal(back))


def test_refund_and_dispute_together_never_take_more_than_all() -> None:
    subject = told(
        order(payment_id="pi"),
        replace(PAID, refunded_minor=700),
        Evidence(payment_id="pi", dispute=DisputeStatus.LOST, disputed_minor=1000),
    )
    assert outcome(subject) == ("refunded", Decimal("333.3333"), Decimal("10.00"))


def test_late_payment_of_an_expired_order_counts() -> None:
    late = told(order(), Evidence(order_id=7, expired=True))
    assert late.status == "expired"
    assert told(late, PAID).status == "paid"


@pytest.mark.parametrize(
    ("resolution", "status"), [(Resolution.CREDIT, "paid"), (Resolution.REFUNDED, "refunded")]
)
def test_payment_of_a_failed_order_waits_for_an_operator(
    resolution: Resolution, status: str
) -> None:
    failed = told(order(), Evidence(order_id=7, failed=True))
    assert failed.status == OrderStatus.FAILED
    told(failed, PAID, PAID, Evidence(order_id=7, failed=True))
    assert (failed.status, failed.mismatch) == ("review", "it was paid after it had failed")
    assert not facts.is_credited(failed)
    failed.resolution = resolution
    assert walk(failed)[-1] == status
    assert facts.is_credited(failed) == (resolution is Resolution.CREDIT)


def test_a_payment_that_came_before_its_failure_counts() -> None:
    assert told(order(), PAID, Evidence(order_id=7, failed=True)).status == "paid"


def test_nothing_leads_out_of_refunded() -> None:
    refunded = order(status="refunded", refunded_minor=1000)
    assert told(refunded, PAID).status == "refunded"
