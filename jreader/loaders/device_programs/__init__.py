"""Programs on the devices: functions of feeds, and whole pipelines, that jax compiles.

stages: `loader.on_device(fn)`: jitted functions of feeds, with random keys.
as_function: A pipeline as a function of (epoch, step) that jax can trace.
swept_weights: Weights of a mixture as an argument of that function.
exported: That function as bytes, which jax runs without jreader.
resident: Loaders whose data are on the devices, where feeds are gathered.
overlapping_rows: Columns with overlapping rows, as `as_function` keeps them on a device.
"""
