"""Simulates mail providers that post reports on sent mails to Pressroom."""
