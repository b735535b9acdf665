"""Receives reports about mails, such as bounces, and processes each report exactly once.

A sender is a registered source of reports: a mail provider, or a program that sends a list's mails.
A sender covers certain lists, and its reports can change only the members of these lists.
"""
