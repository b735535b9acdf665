"""All tables.

Importing ``models`` registers every table with SQLAlchemy, so that migrations know all tables.
"""

from core.plans import Plan
from models.api_request import ApiRequest
from models.attachment import Attachment, AttachmentStatus, ObjectRemoval
from models.bounce import Bounce
from models.bulk_action import BulkAction, BulkActionKind, BulkChange
from models.consent_entry import ConsentClaim, ConsentEntry, ConsentHow, ConsentWording
from models.credit import (
    CreditAccount,
    CreditAction,
    CreditCheckpoint,
    CreditEntry,
    OpenCharge,
    OrderStatus,
    OrderVia,
    PaymentEvent,
    PaymentOrder,
    PaymentOrderChange,
    PaymentOrderCheckpoint,
    PaymentOrderTransition,
    Resolution,
)
from models.declarative import Model
from models.engagement import EngagementAnswer, EngagementMode, MemberEngagement
from models.event import FeedEvent, FeedOffset, RecordedEvent
from models.job import FINISHED, IdempotencyRecord, Job, JobStatus
from models.mailing import Mailing, MailingMark
from models.mailing_list import (
    DEFAULT_SOFT_BOUNCE_LIMIT,
    MAX_SOFT_BOUNCE_LIMIT,
    DeletedTag,
    FieldType,
    ListReport,
    MailingList,
    MemberField,
    MemberTag,
    Segment,
)
from models.maintenance import Maintenance
from models.member_transfer import (
    ImportChange,
    ImportChunk,
    ImportKind,
    MemberExport,
    MemberImport,
    NamedMember,
    WaitingChunk,
)
from models.oauth import OAuthClient, OAuthCode, OAuthGrant, OAuthToken, TokenKind
from models.opt_out import (
    AddressOptOut,
    DeniedEntry,
    Departure,
    DepartureKind,
    ErasedDenial,
    OptOut,
    OptOutKind,
)
from models.quota_use import ComposerUse, MailCount, StorageUse
from models.segment_watch import (
    MemberChange,
    PauseReason,
    SegmentChange,
    SegmentMember,
    SegmentWatch,
)
from models.sender import (
    ReportOutcome,
    Sender,
    SenderBody,
    SenderCount,
    SenderReport,
    SenderSecret,
    SenderState,
)
from models.sign_up_funnel import (
    LANDINGS_AND_DELTAS,
    ORIGINS_AND_DELTAS,
    LandingDay,
    LandingDayDelta,
    OriginDay,
    OriginDayDelta,
    SignUpView,
)
from models.subscriber_count import (
    COUNTS_AND_DELTAS,
    DAYS_AND_DELTAS,
    MemberDay,
    MemberDayDelta,
    SubscriberCount,
    SubscriberDelta,
    active_count,
)
from models.subscription import (
    IS_DEPARTURE,
    MailedLink,
    Subscription,
    SubscriptionEvent,
    SubscriptionStatus,
    Tier,
)
from models.teammate import Teammate
from models.user import (
    AccountMail,
    ApiKey,
    Erasure,
    FormerAddress,
    LoginAttempts,
    Passkey,
    RecoveryCode,
    SpentProof,
    TotpSecret,
    User,
    UserSession,
)
from models.webhook import (
    DeliveryStatus,
    EndpointState,
    WebhookDelivery,
    WebhookEndpoint,
    WebhookSecret,
)
