"""Queries: what a loader answers without moving a pass.

seeking: The cursor of any step of an indexed plan, found without reading.
provenance: `loader.samples(step)`: which samples a step sees.
shapes: `loader.shapes()`: every shape of an epoch, known before it.
warm_up: `loader.warm(step)`: a step compiled for all of them.
stats: `loader.stats()`: what the stages took for the last feeds.
notebook_table: What a notebook shows of a loader.
"""
