"""Parses the ARNs of topics of Amazon SNS, and builds the URLs of a topic's region."""

import re
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

# The pattern must not match names of other services. For example, "s3" isn't a region, because
# sns.s3.amazonaws.com is a folder that a customer of Amazon has created.
_TOPIC_ARN = re.compile(
    r"arn:(?P<partition>aws|aws-cn|aws-us-gov):sns:(?P<region>[a-z]{2}(?:-[a-z]{2,12}){1,2}-\d{1,2})"
    r":\d{12}:[A-Za-z0-9_-]{1,256}",
    re.ASCII,
)
_CERTIFICATE_PATH = re.compile(r"/SimpleNotificationService-[0-9a-fA-F]{1,64}\.pem", re.ASCII)


@dataclass(frozen=True)
class SnsTopic:
    """A topic of Amazon SNS.

    Attributes:
        host: the host of SNS in the topic's region.
    """

    arn: str
    region: str
    host: str

    def is_certificate_url(self, url: str) -> bool:
        """Return whether only Amazon can serve a certificate of the topic's region at a URL."""
        prefix = f"https://{self.host}"
        return url.startswith(prefix) and bool(
            _CERTIFICATE_PATH.fullmatch(url.removeprefix(prefix))
        )

    def build_certificate_url(self, name: str) -> str:
        """Return the URL of a signing certificate. ``name``: a hexadecimal number."""
        return f"https://{self.host}/SimpleNotificationService-{name}.pem"

    def build_confirming_url(self, token: str, *, authenticates_unsubscribe: bool) -> str:
        """Return the URL that confirms a subscription to the topic.

        Args:
            authenticates_unsubscribe: whether only the topic's owner can end the subscription.
        """
        query = {"Action": "ConfirmSubscription", "TopicArn": self.arn, "Token": token}
        if authenticates_unsubscribe:
            query["AuthenticateOnUnsubscribe"] = "true"
        return f"https://{self.host}/?{urlencode(query)}"


def parse_topic(arn: str) -> SnsTopic | None:
    """Return the topic with an ARN, or ``None`` if the ARN isn't one of a standard topic."""
    match = _TOPIC_ARN.fullmatch(arn)
    if match is None:
        return None
    region = match["region"]
    is_chinese = match["partition"] == "aws-cn"
    if is_chinese != region.startswith("cn-"):
        return None
    return SnsTopic(arn, region, f"sns.{region}.amazonaws.com" + (".cn" if is_chinese else ""))


def relocate_url(url: str, base_url: str | None) -> str:
    """Return a URL with ``base_url`` instead of its scheme and host.

    Args:
        base_url: the URL of a server that replaces all servers of Amazon, or ``None``.
    """
    if base_url is None:
        return url
    parts = urlsplit(url)
    query = f"?{parts.query}" if parts.query else ""
    return base_url.rstrip("/") + parts.path + query
