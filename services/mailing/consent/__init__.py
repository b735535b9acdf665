"""Consent: how each member came onto a list, which no owner can rewrite.

What Pressroom saw itself is an entry; what a file or an owner says is a claim. Below
``services.mailing.subscriptions``, which records an entry with each act that brings a person.
"""
