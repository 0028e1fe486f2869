"""Measuring: what limits the epoch of a loader, found by counters and by reading a few feeds again.

reporting: `report(loader)` and `Report`: the verdict, the advice and the table behind it; also of a
    loop that does nothing with its feeds.
verdicts: Which stage limits the epoch, of times that were counted and measured.
advice: What to change, and by how much, so that the stage limits no more.
probing: A few feeds are read in a pass of its own, in which each stage is timed.
bars: The table of a report as HTML, for notebooks.
fleet: The reports of all processes of a run as one.
observing: `observe(loader)`: OpenTelemetry and Prometheus read the metrics of loaders.
"""

from jreader.measuring.observing import observe
from jreader.measuring.reporting import Report, report

__all__ = ["Report", "observe", "report"]
