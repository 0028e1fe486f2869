"""Checkpoints: the contents of a cursor, the position of a pass, and allowed changes on resuming.

cursors: What a cursor holds, how it is checked, and which plans it fits.
positions: The position of a pass, recorded for each feed; counting steps; epoch after epoch.
"""
