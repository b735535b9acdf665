"""Simulates mail providers that post reports about sent mails to Pressroom."""
