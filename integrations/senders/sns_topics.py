"""Parses the ARNs of Amazon SNS topics, and builds and checks the URLs of SNS servers."""

import re
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

# The region in an ARN becomes part of the name of a trusted host, so ``_TOPIC_ARN`` must match only
# the names of regions. For example, ``_TOPIC_ARN`` must not match the region "s3", because anybody
# can create a storage bucket with the host name sns.s3.amazonaws.com.
_TOPIC_ARN = re.compile(
    r"arn:(?P<partition>aws|aws-cn|aws-us-gov):sns:(?P<region>[a-z]{2}(?:-[a-z]{2,12}){1,2}-\d{1,2})"
    r":\d{12}:[A-Za-z0-9_-]{1,256}",
    re.ASCII,
)
_CERTIFICATE_PATH = re.compile(r"/SimpleNotificationService-[0-9a-fA-F]{1,64}\.pem", re.ASCII)


@dataclass(frozen=True)
class SnsTopic:
    arn: str
    region: str
    host: str

    def is_certificate_url(self, url: str) -> bool:
        prefix = f"https://{self.host}"
        return url.startswith(prefix) and bool(
            _CERTIFICATE_PATH.fullmatch(url.removeprefix(prefix))
        )

    def build_certificate_url(self, name: str) -> str:
        return f"https://{self.host}/SimpleNotificationService-{name}.pem"

    def build_confirming_url(self, token: str, *, authenticates_unsubscribe: bool) -> str:
        query = {"Action": "ConfirmSubscription", "TopicArn": self.arn, "Token": token}
        if authenticates_unsubscribe:
            query["AuthenticateOnUnsubscribe"] = "true"
        return f"https://{self.host}/?{urlencode(query)}"


def parse_topic(arn: str) -> SnsTopic | None:
    """Return ``None`` unless the ARN belongs to a standard SNS topic."""
    match = _TOPIC_ARN.fullmatch(arn)
    if match is None:
        return None
    region = match["region"]
    is_chinese = match["partition"] == "aws-cn"
    if is_chinese != region.startswith("cn-"):
        return None
    return SnsTopic(arn, region, f"sns.{region}.amazonaws.com" + (".cn" if is_chinese else ""))


def relocate_url(url: str, base_url: str | None) -> str:
    if base_url is None:
        return url
    parts = urlsplit(url)
    query = f"?{parts.query}" if parts.query else ""
    return base_url.rstrip("/") + parts.path + query
