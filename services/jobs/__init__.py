"""Durable jobs.

To get to know this package, read ``kinds``, ``outbox.enqueue_job`` and ``transitions`` first.
"""
