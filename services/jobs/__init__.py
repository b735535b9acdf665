"""Durable slow work. The usual doors are ``kinds.register``, ``outbox.enqueue`` and ``lease``."""
