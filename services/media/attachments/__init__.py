"""Attachments: images that the API accepts, a media worker converts, and readers fetch."""
