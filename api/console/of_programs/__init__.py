"""What acts for an owner without them: keys, other programs, webhooks and events."""
