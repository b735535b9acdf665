"""Reads the data of the console's overview page."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from urllib.parse import urlsplit

from api.console.assets import CONSOLE_PATH
from api.console.console_display import QUOTAS, format_credits
from api.console.developers.views import EventView, list_newest_events
from api.console.growth import GrowthPlot, build_net_growth_plot
from api.console.navigation import get_list_path
from api.console.plan_notices import find_plan_contact
from api.console.requests import ConsoleRequest
from api.console.task_labels import shorten_reason
from api.responses.lists import describe_lists
from api.schemas.lists import Channel
from core.ids import AccountId
from core.settings.notations import PlanQuota
from core.settings.plan_contact import PlanContact
from models import MailingList, Plan
from services import attention
from services.access import quotas
from services.access.quotas import QuotaUse
from services.accounts import accounts
from services.attention import AttentionKind, AttentionLine, NextStep
from services.credits import ledger
from services.feed.catalogue import FeedEventType
from services.paging import PageRequest
from services.senders.notices import FailureReason
from services.subscriptions import daily_figures, first_steps, lists, mailings, page_urls
from services.subscriptions.mailings import Issue
from services.webhooks import webhook_endpoints
from storage.unit_of_work import UnitOfWork

LISTS_ON_OVERVIEW = 5
EVENTS_ON_OVERVIEW = 5
# Read more events than the page shows, because equal events are merged.
EVENTS_TO_MERGE = 20
# Maps each type of event that *Recent activity* shows to a description, such as "unsubscribed", and
# to a CSS class. The page writes the description after the member's name. The CSS class selects the
# plus or minus sign before the member's name.
ACTIVITIES: Mapping[str, tuple[str, str]] = {
    FeedEventType.SUBSCRIPTION_CREATED: ("subscribed", "plus"),
    FeedEventType.SUBSCRIPTION_CONFIRMED: ("confirmed the subscription", "plus"),
    FeedEventType.SUBSCRIPTION_LEFT: ("unsubscribed", "minus"),
    FeedEventType.SUBSCRIPTION_REMOVED: ("was removed", "minus"),
    FeedEventType.SUBSCRIPTION_EMAIL_OFF: ("gets no mail", "minus"),
}
# The maximum number of warnings that the overview shows. If there are more warnings, the user must
# unfold a section of the page to see the others.
VISIBLE_WARNINGS = 5
# If an owner has more members than ``MAX_MEMBERS_WITH_STEPS``, the overview hides the checklist for
# new owners even if some steps aren't done, because many owners never do some steps of the
# checklist, such as creating an API key.
MAX_MEMBERS_WITH_STEPS = 10
# Maps each next step to its label and to the folder of the page about the failure.
_NEXT_STEPS = {
    NextStep.RETRY_IMPORT: ("Try again", "imports"),
    NextStep.UPLOAD_AGAIN: ("See what is wrong with the file", "imports"),
    NextStep.RESUME_WEBHOOK: ("Resume the webhook", "developers/webhooks"),
    NextStep.CHECK_RECEIVER: ("See the last responses", "developers/webhooks"),
    NextStep.CHECK_PROVIDER: ("See how to repair it", "developers/senders"),
    NextStep.RESUME_SENDER: ("Resume the sender", "developers/senders"),
}
_FAILURES = {
    FailureReason.CALLS_REJECTED: "its calls are rejected",
    FailureReason.TOPIC_UNSUBSCRIBED: "Amazon SNS ended its subscription",
    FailureReason.NO_REPORTS: "no report arrived after a mailing",
}
_WEEK_DAYS = 7
_MONTH_DAYS = 30


@dataclass(frozen=True)
class Step:
    """A step on the checklist for new owners.

    Attributes:
        button: the label of the link to ``url``.
        url: the page on which the owner does the step, or ``None`` if an earlier step must be done
            first.
        other: the label and the URL of an alternative way to do the step, or ``None``.
    """

    label: str
    is_done: bool
    text: str
    button: str
    url: str | None
    other: tuple[str, str] | None = None


@dataclass(frozen=True)
class WarningView:
    """A failure that the owner can repair, with the label and the path of the next step."""

    line: AttentionLine
    text: str
    step: str
    folder: str

    @property
    def path(self) -> str:
        return f"{CONSOLE_PATH}/{self.folder}/{self.line.subject_id}"


@dataclass(frozen=True)
class Overview:
    """The data of the overview page.

    Attributes:
        lists: the newest lists, each with its net growth in a month.
        net: the net growth of all lists without imported members, by the number of days.
        events: the newest events that *Recent activity* shows.
        steps: the checklist for new owners. Empty if the owner no longer needs it.
        last_issue: the newest issue of all lists, or ``None``.
    """

    name: str | None
    plan: Plan
    contact: PlanContact | None
    credits: str
    usage: Mapping[PlanQuota, QuotaUse]
    is_near_a_limit: bool
    lists: Sequence[tuple[Channel, int]]
    has_more_lists: bool
    net: Mapping[int, int]
    plot: GrowthPlot
    events: Sequence[EventView]
    warnings: Sequence[WarningView]
    steps: Sequence[Step]
    last_issue: Issue | None

    @property
    def members(self) -> int:
        return self.usage[PlanQuota.MEMBERS].used

    @property
    def quotas(self) -> list[tuple[str, QuotaUse]]:
        return [(label, self.usage[quota]) for quota, label in QUOTAS.items()]

    @property
    def next_step(self) -> Step | None:
        return next((step for step in self.steps if not step.is_done), None)


def read_overview(uow: UnitOfWork, console: ConsoleRequest) -> Overview:
    database = console.state.resources.database
    credit_account = json.loads(ledger.read_account(database, console.account_id))
    account = accounts.get_account(uow, console.account_id)
    plan = Plan(account.plan)
    usage = quotas.list_uses(uow, account)
    page = lists.list_for_user(uow, console.account_id, PageRequest(LISTS_ON_OVERVIEW))
    growth = daily_figures.read_list_growth(uow, [each.id for each in page.rows], _MONTH_DAYS)
    figures = daily_figures.read_owner_figures(
        uow, console.account_id, daily_figures.choose_days(None, None)
    )
    types = [FeedEventType(each) for each in ACTIVITIES]
    page_of_events = list_newest_events(uow, console.caller, only=types, limit=EVENTS_TO_MERGE)
    # Events about erased people have no page, and tell the owner nothing.
    events = [each for each in page_of_events.events if each.path]
    return Overview(
        name=accounts.get_user(uow, console.person_id).name,
        plan=plan,
        contact=find_plan_contact(uow, plan),
        credits=format_credits(Decimal(str(credit_account["balance_credit"]))),
        usage=usage,
        is_near_a_limit=any(
            use.limit is not None and use.used * 2 > use.limit for use in usage.values()
        ),
        lists=[
            (each, sum(growth[each.id])) for each in describe_lists(uow, console.state, page.rows)
        ],
        has_more_lists=page.next_cursor is not None,
        net={
            days: sum(each.net - each.imported for each in figures[-days:])
            for days in (_WEEK_DAYS, _MONTH_DAYS)
        },
        plot=build_net_growth_plot(figures),
        events=events[:EVENTS_ON_OVERVIEW],
        warnings=_list_warnings(uow, console.account_id),
        steps=_list_first_steps(uow, console.account_id, page.rows, usage, plan),
        last_issue=mailings.find_newest_issue(uow, console.account_id),
    )


def _list_warnings(uow: UnitOfWork, account_id: AccountId) -> list[WarningView]:
    lines = attention.list_lines(uow, account_id)
    endpoints = webhook_endpoints.list_live_endpoints(uow, account_id)
    hosts = Counter(urlsplit(endpoint.url).netloc for endpoint in endpoints)
    return [
        WarningView(line, _describe_failure(line, hosts), *_NEXT_STEPS[line.next_step])
        for line in lines
    ]


def _describe_failure(line: AttentionLine, hosts: Mapping[str, int]) -> str:
    if line.kind is AttentionKind.IMPORT:
        reason = f" {shorten_reason(line.error)}" if line.error else ""
        return f"The import of {line.name or 'members'} failed.{reason}"
    if line.kind is AttentionKind.SENDER:
        if line.next_step is NextStep.RESUME_SENDER:
            return f"The sender {line.name} is paused, and its API key has expired."
        reasons = " and ".join(_FAILURES[reason] for reason in line.reasons)
        return f"The sender {line.name} is failing{reasons and ': '}{reasons}."
    url = urlsplit(line.name or "")
    # Several webhooks of one host can only be told apart by the rest of their URLs.
    target = url.netloc if hosts[url.netloc] == 1 else f"{url.netloc}{url.path}"
    is_paused = line.next_step is NextStep.RESUME_WEBHOOK
    return f"The webhook to {target} {'is paused' if is_paused else 'is failing'}."


def _list_first_steps(
    uow: UnitOfWork,
    account_id: AccountId,
    newest_lists: Sequence[MailingList],
    usage: Mapping[PlanQuota, QuotaUse],
    plan: Plan,
) -> list[Step]:
    """Return the checklist for new owners, or an empty list if the owner no longer needs it."""
    if usage[PlanQuota.MEMBERS].used > MAX_MEMBERS_WITH_STEPS:
        return []
    progress = first_steps.find_first_steps(uow, account_id)
    base = uow.settings.public_base
    form_label = "Add a form to your website"
    form_url = sign_up_url = send_url = other = None
    if newest_lists:
        newest = newest_lists[0]
        form_url = f"{base}{get_list_path(newest.id)}/public#elsewhere"
        sign_up_url = page_urls.sign_up_url(uow.settings, newest.slug)
        send_url = f"{base}{get_list_path(newest.id)}/send"
    if plan is not Plan.FREE:
        # Don't offer imports to owners with the free plan, because this plan forbids imports.
        form_label += ", or import members"
        other = ("Import members", f"{base}{CONSOLE_PATH}/imports/new")
    steps = [
        Step(
            "Create a list",
            bool(newest_lists),
            "People subscribe to a list to receive your newsletter.",
            "Create a list",
            f"{base}{CONSOLE_PATH}/lists/new",
        ),
        Step(
            form_label,
            progress.has_form_or_import,
            "Paste the form into any page of your website.",
            "Get the form",
            form_url,
            other if newest_lists else None,
        ),
        Step(
            "Make a test sign-up",
            progress.has_sign_up,
            "Subscribe with your own address, and see what your readers get.",
            "Open the sign-up page",
            sign_up_url,
        ),
        Step(
            "Send your first issue",
            progress.has_mailing,
            "Your own program or mail service sends it to the members of your list.",
            "How to send",
            send_url,
        ),
    ]
    return [] if all(step.is_done for step in steps) else steps
