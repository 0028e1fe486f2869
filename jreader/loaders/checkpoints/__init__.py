"""Checkpoints: what a cursor stores, where a pass is, and what may change before a run resumes.

cursors: What a cursor holds, how it is checked, and which plans it fits.
positions: The place of a pass, noted for each feed; its steps, counted; epoch after epoch.
"""
