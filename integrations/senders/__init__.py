"""Reads the reports of mail providers about sent mails."""
