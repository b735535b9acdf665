"""Recognises user agents of programs that open mails and follow links without a person."""

# Apple's mail privacy proxy sends exactly this text.
_APPLE_PROXY = "Mozilla/5.0"
# Image proxies and mail scanners have a user agent that contains one of these texts in any case.
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
