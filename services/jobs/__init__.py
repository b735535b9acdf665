"""Durable jobs. New readers start with ``kinds``, ``outbox.enqueue_job`` and ``transitions``."""
