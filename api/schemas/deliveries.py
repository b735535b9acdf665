"""The request and response bodies of the API endpoint for deliveries."""

from typing import Annotated

from pydantic import Field

from api.schemas.envelope import AtMost, Body, Schema, Url
from core.ids import MAX_ID
from services.subscriptions.deliveries import MAX_MEMBERS_PER_REQUEST
from services.subscriptions.exports import MAX_MAILING_LABEL_CHARACTERS


class NewDeliveries(Body):
    user_ids: Annotated[
        list[Annotated[int, Field(ge=0, le=MAX_ID)]],
        Field(
            min_length=1,
            description="Ids of the members to mail. A repeated id counts once.",
            examples=[[4711]],
        ),
        AtMost(MAX_MEMBERS_PER_REQUEST),
    ]
    label: str = Field(
        min_length=1,
        max_length=MAX_MAILING_LABEL_CHARACTERS,
        description="Label of the mailing. Requests with the same label on the same day in UTC "
        "belong to one mailing.",
        examples=["Welcome"],
    )


class DeliveryRecord(Schema):
    """A member who gets the mail, with the fields of a row in the roster."""

    email: str = Field(examples=["reader@example.com"])
    name: str = Field(description="An empty text for a member without a name")
    user_id: int
    trace_id: str = Field(description="Secret token for the links in this member's mail")
    one_click_url: Url = Field(description="URL that accepts only the one-click POST request")
    list_id_header: str = Field(description="Value of the header List-Id")
    list_unsubscribe_header: str = Field(description="Value of the header List-Unsubscribe")
    list_unsubscribe_post_header: str = Field(
        description="Value of the header List-Unsubscribe-Post"
    )
    delivery_id: str = Field(description="Id of the mail, for the reports of senders")
    engagement: str = Field(
        description="full if the list records the member's opens and clicks, or else none"
    )


class DeliveriesRecord(Schema):
    mailing_id: int = Field(description="Id of the mailing, which counts each member once")
    members: list[DeliveryRecord] = Field(description="The members who get mail now")
    left_out: int = Field(
        description="Number of the named members who get no mail now", examples=[0]
    )
