"""Durable slow work. Start with ``kinds``, ``outbox.enqueue_job`` and ``transitions``."""
