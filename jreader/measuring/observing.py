"""`observe(loader)`: export the metrics of loaders, read on request."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib import import_module
from typing import Any, Self
from weakref import WeakKeyDictionary, WeakValueDictionary

from jreader.loaders import DataLoader
from jreader.loaders.queries.stats import METRICS, measured, prometheus_text


def observe(
    loader: DataLoader[Any], *, meter: Any = None, registry: Any = None, name: str = "loader"
) -> None:
    """Export a loader's metrics to an OpenTelemetry meter, or a `prometheus_client` registry.

    >>> import prometheus_client
    >>> from jreader import Pipeline, arrays, observe
    >>> registry = prometheus_client.CollectorRegistry()  # or prometheus_client.REGISTRY
    >>> loader = Pipeline(arrays([1, 2, 3, 4])).batch(2).load()
    >>> observe(loader, registry=registry, name="train")
    >>> len(list(loader))
    2
    >>> registry.get_sample_value("jreader_feeds_total", {"loader": "train"})
    2.0

    An exporter, or Prometheus, reads the metrics on its own thread, when it needs them, at no cost
    to the loop. A garbage-collected loader is no longer observed.

    Args:
        loader: Any loader.
        meter: A meter, as `opentelemetry.metrics.get_meter("train")` returns it after
            `set_meter_provider` was called.
        registry: A registry, such as `prometheus_client.REGISTRY`.
        name: The value of the attribute or label `loader`, which distinguishes loaders.

    Raises:
        TypeError: `loader` is not a loader, or `name` not a text; or neither a meter nor a registry
            was given, or both; or the meter has no provider yet.
        ValueError: Another loader is already observed by that name.
    """
    meter = getattr(meter, "_real_meter", meter)  # a proxy would forget observers
    by, one = registry if meter is None else meter, (meter is None) != (registry is None)
    knows = hasattr(by, "create_observable_gauge") or hasattr(by, "register")
    if not (isinstance(loader, DataLoader) and one and knows and isinstance(name, str)):
        raise TypeError(
            f"observe(loader, meter=meter) needs what .load() returns, a meter (its provider set) "
            f"or registry, and a name: not {type(loader).__name__}, {meter=}, {registry=}, {name=}."
        )
    if by not in _observed:
        _observed[by] = _Loaders().joined(by)
    if _observed[by].setdefault(name, loader) is not loader:
        raise ValueError(f"{name!r} is another loader that is observed: type name='{name} 2'.")


class _Loaders(WeakValueDictionary[str, DataLoader[Any]]):
    """The loaders that a meter or registry observes, by name: it has each metric only once."""

    __hash__ = object.__hash__  # a registry keeps its collectors in a dict

    def joined(self, by: Any) -> Self:
        if hasattr(by, "register"):
            by.register(self)
        else:
            for metric, (kind, name, unit, about) in METRICS.items():
                ask = partial(self._observations, metric)
                getattr(by, f"create_observable_{kind}")(name, [ask], unit, about)
        return self

    def collect(self) -> Any:
        """Return the metrics in the form that a registry expects of a collector."""
        parser = import_module("prometheus_client.parser")
        return parser.text_string_to_metric_families(prometheus_text(self._measured()))

    def _observations(self, metric: str, _options: object) -> list[Any]:
        made = import_module("opentelemetry.metrics").Observation
        return [made(value, labels) for name, labels, value in self._measured() if name == metric]

    def _measured(self) -> Iterator[tuple[str, dict[str, str], float]]:
        return measured({name: loader.stats() for name, loader in list(self.items())})


_observed: WeakKeyDictionary[Any, _Loaders] = WeakKeyDictionary()
