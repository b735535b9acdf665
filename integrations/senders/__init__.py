"""Verifies and reads the reports that mail providers post about sent mails."""
