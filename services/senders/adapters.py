"""Provides the adapters for mail providers, which verify and parse the providers' requests.

All code in a process shares the same adapters, because the adapter for Amazon SES caches
certificates.
"""

from collections.abc import Mapping

from integrations.senders import registry
from integrations.senders.port import SenderAdapter, SenderProvider
from storage.resources import Resources


def get_adapter(resources: Resources, provider: SenderProvider) -> SenderAdapter:
    return resources.shared(_create_adapters)[provider]


def get_sns_base_url(resources: Resources) -> str | None:
    """Return the URL of the server that replaces Amazon SNS, if any."""
    url = resources.settings.sns_base_url
    return None if url is None else str(url)


def _create_adapters(resources: Resources) -> Mapping[SenderProvider, SenderAdapter]:
    return registry.create_adapters(get_sns_base_url(resources))
