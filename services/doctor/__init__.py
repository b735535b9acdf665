"""Checks a deployment's settings and services, and mails the operator about failing checks."""
