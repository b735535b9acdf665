"""Manages second factors of a login, such as passkeys and authenticator apps."""
