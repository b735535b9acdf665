"""All tables, so that the migrations see every one of them."""

from core.plans import Plan
from models.account_mail import AccountMail
from models.account_merge import AccountMerge, MergeStatus
from models.api_key import ApiKey
from models.attachment import Attachment, AttachmentStatus
from models.bulk_act import BulkAct, BulkAction, BulkChange
from models.consent_entry import ConsentClaim, ConsentEntry, ConsentHow, ConsentWording
from models.credit import CreditAccount, CreditAction, CreditCheckpoint, CreditEntry
from models.declarative import Model
from models.deny_list import DeniedEntry
from models.departure import Departure, DepartureKind
from models.erasure import Erasure
from models.feed_event import FeedEvent, FeedOffset
from models.former_address import FormerAddress
from models.idempotency_record import IdempotencyRecord
from models.job import FINISHED, Job, JobStatus
from models.list_report import ListReport
from models.mail_count import MailCount
from models.mailed_link import MailedLink
from models.mailing_list import MailingList
from models.member_attribute import FieldType, MemberField, MemberTag
from models.member_day import DAYS_AND_DELTAS, MemberDay, MemberDayDelta
from models.member_export import MemberExport
from models.member_import import (
    ImportChange,
    ImportChunk,
    ImportKind,
    MemberImport,
    WaitingChunk,
)
from models.moved_account import MovedAccount
from models.oauth import OAuthClient, OAuthCode, OAuthGrant, OAuthToken, TokenKind
from models.object_removal import ObjectRemoval
from models.opt_out import OptOut, OptOutKind
from models.partition import Partition
from models.payment import (
    OrderStatus,
    OrderVia,
    PaymentEvent,
    PaymentOrder,
    PaymentOrderChange,
    PaymentOrderCheckpoint,
    PaymentOrderTransition,
    Resolution,
)
from models.quota_use import ComposerUse, StorageUse
from models.recorded_event import RecordedEvent
from models.second_factor import Passkey, RecoveryCode, SpentProof, TotpSecret
from models.segment import Segment
from models.subscriber_count import (
    COUNTS_AND_DELTAS,
    SubscriberCount,
    SubscriberDelta,
    active_count,
)
from models.subscription import Subscription, SubscriptionStatus, Tier
from models.subscription_event import SubscriptionEvent
from models.upkeep import Upkeep
from models.user import User
from models.user_session import LoginAttempts, UserSession
from models.webhook import (
    DeliveryStatus,
    EndpointState,
    WebhookDelivery,
    WebhookEndpoint,
    WebhookSecret,
)
