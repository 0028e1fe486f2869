"""Loaders as the trainers of other libraries take them: a file for each.

They import loaders and what is below; no other room imports them when it is imported.
"""
