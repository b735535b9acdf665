"""The custom resources that ours use, as far as they use them; any other key is an error.

Their controllers' own schemas are no part of Kubernetes, and change with each of their releases.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from tests.deployment.kubernetes.kustomization import Resource

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,62}$")]
Duration = Annotated[str, Field(pattern=r"^[1-9]\d*(s|m|h)$")]
Digits = Annotated[str, Field(pattern=r"^[0-9]+$")]
Count = Annotated[int, Field(ge=1)]


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)


class _Named(_Shape):
    name: Name


class _Metadata(_Shape):
    name: Name
    namespace: Name
    labels: dict[str, str] = {}


class _PostgresQuestion(_Shape):
    query: str
    target_query_value: Digits


class _RedisQuestion(_Shape):
    list_name: str
    list_length: Digits
    database_index: Digits
    enable_tls: Literal["true", "false"] = Field(alias="enableTLS")


class _PostgresTrigger(_Shape):
    type: Literal["postgresql"]
    name: Name
    metadata: _PostgresQuestion
    authentication_ref: _Named


class _RedisTrigger(_Shape):
    type: Literal["redis"]
    name: Name
    metadata: _RedisQuestion
    authentication_ref: _Named


class _Policy(_Shape):
    type: Literal["Pods"]
    value: Count
    period_seconds: Count


class _ScaleDown(_Shape):
    stabilization_window_seconds: Annotated[int, Field(ge=0, le=3600)]
    policies: list[_Policy]


class _Behavior(_Shape):
    scale_down: _ScaleDown


class _Autoscaler(_Shape):
    behavior: _Behavior


class _Advanced(_Shape):
    horizontal_pod_autoscaler_config: _Autoscaler


class _Scaling(_Shape):
    scale_target_ref: _Named
    polling_interval: Count
    min_replica_count: Count
    max_replica_count: Count
    advanced: _Advanced
    triggers: list[Annotated[_PostgresTrigger | _RedisTrigger, Field(discriminator="type")]]


class _SecretPlace(_Shape):
    parameter: Literal["connection", "address", "username", "password"]
    name: Name
    key: str


class _Authentication(_Shape):
    secret_target_ref: list[_SecretPlace]


class _Store(_Shape):
    kind: Literal["ClusterSecretStore"]
    name: Name


class _Extract(_Shape):
    key: str


class _Source(_Shape):
    extract: _Extract


class _External(_Shape):
    refresh_interval: Duration
    secret_store_ref: _Store
    target: _Named
    data_from: list[_Source]


class _Credentials(_Shape):
    name: Name
    key: str


class _Authorization(_Shape):
    type: Literal["Bearer"]
    credentials: _Credentials


class _Endpoint(_Shape):
    port: str
    path: str
    interval: Duration
    scrape_timeout: Duration
    authorization: _Authorization


class _Labels(_Shape):
    match_labels: dict[str, str]


class _Monitor(_Shape):
    selector: _Labels
    endpoints: list[_Endpoint]


class _Expression(_Shape):
    key: str
    operator: Literal["In"]
    values: list[Name]


class _Expressions(_Shape):
    match_expressions: list[_Expression]


class _PodEndpoint(_Shape):
    port: Name
    path: str
    interval: Duration
    scrape_timeout: Duration


class _PodMonitor(_Shape):
    selector: _Expressions
    pod_metrics_endpoints: list[_PodEndpoint]


_SPECS: dict[tuple[str, str], type[_Shape]] = {
    ("keda.sh/v1alpha1", "ScaledObject"): _Scaling,
    ("keda.sh/v1alpha1", "TriggerAuthentication"): _Authentication,
    ("external-secrets.io/v1", "ExternalSecret"): _External,
    ("monitoring.coreos.com/v1", "ServiceMonitor"): _Monitor,
    ("monitoring.coreos.com/v1", "PodMonitor"): _PodMonitor,
}


def is_custom(resource: Resource) -> bool:
    return "." in resource["apiVersion"].partition("/")[0].replace(".k8s.io", "")


def check(resource: Resource) -> None:
    """Raises ``ValidationError``, and ``KeyError`` for a kind that is not described here."""
    assert resource.keys() == {"apiVersion", "kind", "metadata", "spec"}
    _Metadata.model_validate(resource["metadata"])
    _SPECS[resource["apiVersion"], resource["kind"]].model_validate(resource["spec"])
