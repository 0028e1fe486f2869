"""Adapters that hand loaders to the trainers of other libraries, a module for each.

They import loaders and what is below; no other package imports them at import time.
"""
