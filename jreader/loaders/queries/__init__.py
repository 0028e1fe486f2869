"""Queries: questions that a loader answers without moving a pass.

seeking: The cursor of any step of an indexed plan, found without reading.
provenance: `loader.samples(step)`: which samples a step sees.
occurrences: `loader.where(indices)`: which steps hold a sample.
asked_rows: Samples as a user names them: by number, in a source or a file.
removal: `loader.without(indices)`: the same run, with some rows empty.
shapes: `loader.shapes()`: every shape of an epoch, known in advance.
warm_up: `loader.warm(step)`: a step compiled for all of them.
stats: `loader.stats()`: the times of the stages for the last feeds.
notebook_table: A loader's table in a notebook.
"""
