"""Durable jobs.

Engineers who are new to this package should read ``kinds``, ``outbox.enqueue_job`` and
``transitions`` first.
"""
