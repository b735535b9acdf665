"""OAuth clients and what people granted them.

What a client does wrong in the protocol itself is refused in the words of RFC 6749, by the library
that knows them.
"""

from core.refusals.refusal import invalid, not_found

OAUTH_CLIENT_NOT_FOUND = not_found("oauth_client.not_found", "There is no such client.")
OAUTH_CLIENT_NAME = invalid(
    "oauth_client.name", "A client's name has 1 to {most} printable characters.", most=100
)
OAUTH_CLIENT_REDIRECT_URI_MISSING = invalid(
    "oauth_client.redirect_uri", "A client needs a redirect URI."
)
OAUTH_CLIENT_REDIRECT_URI = invalid(
    "oauth_client.redirect_uri",
    "The redirect URI {uri} {reason}.",
    uri="https://example.com/#there",
    reason="has a fragment",
)
OAUTH_CLIENT_SCOPES_MISSING = invalid("oauth_client.scopes", "A client needs a scope.")
OAUTH_CLIENT_SCOPES = invalid(
    "oauth_client.scopes", "People can't give the scope {scopes}.", scopes="delivery"
)
GRANT_NOT_FOUND = not_found("grant.not_found", "There is no such grant.")
