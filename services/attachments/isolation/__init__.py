"""Decodes uploads in a child process, which gives up its privileges before the first upload.

Only the child process loads Pillow. Modules that other processes import must not load Pillow.
"""
