"""Segments: filters of a list's members that its owner keeps under a name.

A segment is its filter and nothing else: who is in it is looked up when it is used. A filter that
is kept (``stored_filters``) names fields by their ids, so that it stays the same when a field gets
another key.
"""
