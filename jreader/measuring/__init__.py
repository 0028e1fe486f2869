"""Measuring: what limits the epoch of a loader, from counters and from reading a few feeds again.

reporting: `report(loader)` and `Report`: the verdict, the advice and the table behind it; also for
    a loop that does nothing with its feeds.
verdicts: Which stage limits the epoch, from counted and measured times.
advice: What to change, and by how much, so that the stage no longer limits.
probing: Read a few feeds in a separate pass that times each stage.
bars: The table of a report as HTML, for notebooks.
fleet: Merge the reports of all processes of a run.
observing: `observe(loader)`: export loader metrics to OpenTelemetry and Prometheus.
"""

from jreader.measuring.observing import observe
from jreader.measuring.reporting import Report, report

__all__ = ["Report", "observe", "report"]
