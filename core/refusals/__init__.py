"""The catalogue of refusals: every code, kind and sentence that a caller can be refused with, once.

There is one module an area. Code raises an entry (``raise LIST_NOT_FOUND()``) and routes document
it (``refuses(LIST_NOT_FOUND)``), so that the document and the reply can't say different sentences.
"""
