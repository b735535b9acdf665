"""The receivers of webhooks: servers that strangers name, so that each call to one is guarded."""
