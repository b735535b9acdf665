"""Verifies and reads reports from mail providers, such as reports of bounces and complaints."""
