"""Manages second factors, such as passkeys, which a login requires in addition to the password."""
