"""The request and response bodies of the API endpoints for the service itself."""

from pydantic import Field

from api.schemas.envelope import Schema, Url


class ServiceLinks(Schema):
    documentation: Url | None = Field(
        description="URL of the API reference for people, or null if the operator has "
        "disabled the reference",
        examples=["https://api.example.com/docs"],
    )
    openapi: Url | None = Field(
        description="URL of the API reference for programs, in OpenAPI 3.1",
        examples=["https://api.example.com/openapi.json"],
    )
    console: Url = Field(
        description="URL of the console with a user's lists, images, texts and credits",
        examples=["https://api.example.com/console"],
    )
    account: Url = Field(
        description="URL of the account page with keys, sessions and apps",
        examples=["https://api.example.com/account"],
    )
    health: Url = Field(examples=["https://api.example.com/healthz"])


class ServiceRecord(Schema):
    name: str = Field(examples=["Pressroom"])
    description: str = Field(
        examples=["The back end of a newsletter and publishing platform: it has no web site."]
    )
    version: str = Field(description="Version of the software", examples=["1.0.0"])
    contract: str = Field(description="The newest Pressroom-Version", examples=["2026-11-21"])
    contracts: list[str] = Field(
        description="Supported values of Pressroom-Version, newest first", examples=[["2026-11-21"]]
    )
    links: ServiceLinks


class ProcessHealth(Schema):
    status: str = Field(examples=["ok"])


class DependenciesHealth(Schema):
    status: str = Field(
        description="ok, degraded, unavailable, outdated or ending", examples=["ok"]
    )
    dependencies: dict[str, str] = Field(
        description="Status of each dependency by name. While the disk of a store is full, an "
        "entry such as `database_disk` has the status `full`",
        examples=[{"database": "ok", "redis": "ok", "broker": "ok", "objects": "ok"}],
    )
