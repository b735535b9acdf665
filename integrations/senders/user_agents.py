"""Recognises programs that open mails and follow links, by their user agents."""

# Apple's mail privacy proxy sends exactly this text.
_APPLE_PROXY = "Mozilla/5.0"
# Parts of the user agents of mail providers' image proxies and of mail scanners, in lower case.
_MACHINE_PARTS = (
    *("googleimageproxy", "yahoomailproxy", "barracuda", "mimecast", "proofpoint"),
    *("safelinks", "symantec", "trendmicro"),
)
_MAX_SEARCHED_CHARACTERS = 2_000


def is_machine_agent(user_agent: object) -> bool:
    """Return whether a user agent belongs to a proxy or a scanner and not to a person."""
    if not isinstance(user_agent, str):
        return False
    text = user_agent[:_MAX_SEARCHED_CHARACTERS].lower()
    return user_agent == _APPLE_PROXY or any(part in text for part in _MACHINE_PARTS)
