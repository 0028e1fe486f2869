"""Queries: what a loader answers without moving a pass.

seeking: The cursor of any step of an indexed plan, found without reading.
provenance: `loader.samples(step)`: which samples a step sees.
occurrences: `loader.where(indices)`: which steps hold a sample.
asked_rows: Samples as a user names them: by number, in a source or a file.
removal: `loader.without(indices)`: the same run, with some rows empty.
shapes: `loader.shapes()`: every shape of an epoch, known before it.
warm_up: `loader.warm(step)`: a step compiled for all of them.
stats: `loader.stats()`: what the stages took for the last feeds.
notebook_table: What a notebook shows of a loader.
"""
