from typing import Annotated

from pydantic import Field

from api.schemas.envelope import Body, Schema
from services.mailing.deny_lists import MAX_ENTRIES

_ADDRESSES = ["spam@example.net"]
_DOMAINS = ["example.org", "*.example.org"]
Entries = Annotated[list[str], Field(max_length=MAX_ENTRIES)]


class DenyListRecord(Schema):
    addresses: list[str] = Field(examples=[_ADDRESSES])
    domains: list[str] = Field(
        description="*.example.org stands for all subdomains of example.org", examples=[_DOMAINS]
    )


class NewDenyList(Body):
    addresses: Entries = Field(examples=[_ADDRESSES])
    domains: Entries = Field(
        description="*.example.org stands for all subdomains of example.org", examples=[_DOMAINS]
    )


class DenyListChanges(Body):
    add_addresses: Entries = Field(default_factory=list, examples=[_ADDRESSES])
    add_domains: Entries = Field(default_factory=list, examples=[_DOMAINS])
    remove_addresses: Entries = Field(default_factory=list, examples=[["mistaken@example.com"]])
    remove_domains: Entries = Field(default_factory=list, examples=[["example.com"]])
