"""The metrics of a loader: what boards show is what its loops got, whoever asks, and how often."""

import gc
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from widths import examples

from jreader import DataLoader, Pipeline, arrays, observe
from jreader.loaders.queries.stats import METRICS, StageStats, Stats

prometheus_client = pytest.importorskip("prometheus_client")
parser = pytest.importorskip("prometheus_client.parser")


def loader_of(samples=12, **options):
    return Pipeline(arrays(n=np.arange(samples))).batch(2).load(**options)


def families(text):
    """The metrics of a text as Prometheus reads them: of each its kind, and its samples."""
    found = list(parser.text_string_to_metric_families(text))
    assert len({family.name for family in found}) == len(found)
    return {family.name: family for family in found}


def values(text):
    samples = [sample for family in families(text).values() for sample in family.samples]
    found = {(each.name, *sorted(each.labels.items())): each.value for each in samples}
    assert len(found) == len(samples)
    return found


def fed(registry, name="loader"):
    return registry.get_sample_value("jreader_feeds_total", {"loader": name})


passes = st.lists(
    st.one_of(
        st.tuples(st.just("epoch"), st.integers(0, 8)),
        st.tuples(st.just("steps"), st.integers(0, 20)),
        st.tuples(st.just("seek"), st.integers(0, 5)),
        st.tuples(st.just("leave out"), st.integers(0, 5)),
        st.tuples(st.just("both"), st.integers(0, 4)),
    ),
    max_size=5,
)


@examples(60)
@given(passes, st.sampled_from([0, 2]))
def test_counters_count_every_feed_and_wait_of_any_passes_and_never_go_down(how, capacity):
    loader, got, waited = loader_of(capacity=capacity), 0, 0.0
    for kind, number in how:
        feeds = {
            "steps": lambda n=number: loader.steps(n),
            "leave out": lambda n=number: loader.epoch(0, skip_steps=range(n)),
        }.get(kind, lambda: iter(loader))()
        if kind == "seek":
            got += len([*zip(range(2), feeds, strict=False)])
            feeds.seek(number)
        beside = iter(loader) if kind == "both" else None
        for _ in zip(range(number if kind == "epoch" else 100), feeds, strict=False):
            got += 1
            got += beside is not None and next(beside, None) is not None
        before = loader.stats()
        assert before.feeds == got
        waited += feeds.waited + (beside.waited if beside else 0)
        assert math.isclose(1e-9 * before.waited_ns, waited, rel_tol=1e-9)


def test_counters_go_on_where_a_loader_is_reset_and_gets_another_source():
    loader = DataLoader.from_generator(["n"], iterable=False)
    for epoch in (1, 2):
        loader.set_sample_generator(lambda: ((n,) for n in range(8)), batch_size=2)
        loader.start()
        loader.next()
        loader.reset()
        assert loader.stats().feeds == epoch


def test_a_copy_counts_from_nothing():
    loader = loader_of()
    assert len(list(loader)) == 6
    assert loader.on_device(lambda feed: feed).stats().feeds == 0


class TestText:
    def test_every_metric_has_its_kind_its_words_and_its_unit(self):
        loader = loader_of()
        list(loader)
        found = families(loader.stats().prometheus())
        assert {name: family.type for name, family in found.items()} == {
            "jreader_feeds": "counter",
            "jreader_wait_seconds": "counter",
            "jreader_waiting_ratio": "gauge",
            "jreader_stage_seconds": "gauge",
        }
        assert all(family.documentation.endswith(".") for family in found.values())
        stages = {sample.labels["stage"] for sample in found["jreader_stage_seconds"].samples}
        assert stages == {"read", "collate", "transfer", "step"}

    def test_two_functions_of_one_name_are_told_apart(self):
        plan = Pipeline(arrays(np.arange(64)))
        plan = plan.map(lambda n: n, threads=2)
        plan = plan.map(lambda n: n, threads=2)
        loader = plan.batch(8).load()
        list(loader)
        found = values(loader.stats().prometheus())
        stages = [dict(key[1:])["stage"] for key in found if key[0] == "jreader_stage_seconds"]
        assert "map <lambda>" in stages
        assert "map <lambda> 2" in stages
        assert len(loader.stats().scalars()) == len(found)

    @given(st.text(), st.text())
    def test_any_name_comes_out_as_it_went_in(self, name, function):
        stage = StageStats("map", 3_000_000_000, 2, function=function)
        found = families(Stats((), (), (stage,), ()).prometheus(name))
        (sample,) = found["jreader_stage_seconds"].samples
        assert sample.labels == {"loader": name, "stage": f"map {function}".strip()}
        assert sample.value == 1.5

    def test_a_table_of_the_documentation_has_each_metric(self):
        page = Path(__file__).parents[2] / "docs" / "how_to" / "watch_a_run.md"
        rows = [line.split("|")[1].strip() for line in page.read_text().splitlines() if "|" in line]
        for name, (_, called, *_) in METRICS.items():
            assert any(f"`jreader_{name}" in row and f"`{called}`" in row for row in rows), name


def test_scalars_are_plain_floats_by_flat_names_and_those_of_prometheus():
    loader = loader_of()
    list(loader)
    stats = loader.stats()
    scalars = stats.scalars("train")
    assert {type(value) for value in scalars.values()} == {float}
    assert sorted(scalars.values()) == sorted(values(stats.prometheus()).values())
    assert scalars["train/feeds"] == 6
    assert scalars["train/wait_seconds"] == 1e-9 * stats.waited_ns
    assert scalars["train/waiting_ratio"] == stats.waiting


class TestRegistry:
    def test_it_shows_two_loaders_by_name(self):
        registry = prometheus_client.CollectorRegistry(auto_describe=True)
        train, test = loader_of(), loader_of()
        observe(train, registry=registry, name="train")
        observe(test, registry=registry, name="test")
        observe(test, registry=registry, name="test")
        list(train)
        next(iter(test))
        assert (fed(registry, "train"), fed(registry, "test")) == (6, 1)
        text = prometheus_client.generate_latest(registry).decode()
        assert values(text)["jreader_feeds_total", ("loader", "train")] == 6

    def test_a_loader_that_is_gone_is_shown_no_more_and_its_name_is_free(self):
        registry = prometheus_client.CollectorRegistry()
        loader = loader_of()
        observe(loader, registry=registry)
        assert fed(registry) == 0
        del loader
        gc.collect()
        assert fed(registry) is None
        other = loader_of()
        observe(other, registry=registry)
        next(iter(other))
        assert fed(registry) == 1

    def test_two_registries_have_a_loader_each_by_one_name(self):
        registries = [prometheus_client.CollectorRegistry() for _ in range(2)]
        loaders = [loader_of() for _ in registries]
        for loader, registry in zip(loaders, registries, strict=True):
            observe(loader, registry=registry)
        list(loaders[0])
        assert [fed(registry) for registry in registries] == [6, 0]


class TestErrors:
    def test_a_name_that_another_loader_has(self):
        registry, one, other = prometheus_client.CollectorRegistry(), loader_of(), loader_of()
        observe(one, registry=registry, name="train")
        with pytest.raises(ValueError, match=r"another loader .* type name='train 2'"):
            observe(other, registry=registry, name="train")

    @pytest.mark.parametrize(
        "given",
        [
            {},
            {"meter": 3},
            {"registry": object()},
            {"registry": prometheus_client.CollectorRegistry(), "name": 3},
            {
                "registry": prometheus_client.CollectorRegistry(),
                "meter": prometheus_client.CollectorRegistry(),
            },
        ],
    )
    def test_neither_a_meter_nor_a_registry_and_a_name_that_is_no_text(self, given):
        with pytest.raises(TypeError, match="or registry, and a name: not DataLoader"):
            observe(loader_of(), **given)

    def test_a_metric_of_yours_by_that_name_is_an_error_until_it_is_gone(self):
        registry, loader = prometheus_client.CollectorRegistry(auto_describe=True), loader_of()
        yours = prometheus_client.Gauge("jreader_waiting_ratio", "yours", registry=registry)
        with pytest.raises(ValueError, match="Duplicated"):
            observe(loader, registry=registry)
        registry.unregister(yours)
        observe(loader, registry=registry)
        assert fed(registry) == 0

    def test_what_is_no_loader(self):
        with pytest.raises(TypeError, match=r"needs what .load\(\) returns, .* not Pipeline"):
            observe(Pipeline(range), registry=prometheus_client.CollectorRegistry())


def of_open_telemetry(reader):
    """What an exporter is given: for each metric its unit, whether it only grows, its points."""
    found = {}
    data = reader.get_metrics_data()
    for resource in data.resource_metrics if data else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                points = {
                    (point.attributes["loader"], point.attributes.get("stage")): point.value
                    for point in metric.data.data_points
                }
                found[metric.name] = metric.unit, getattr(metric.data, "is_monotonic", None), points
    return found


def test_a_meter_of_open_telemetry_reads_two_loaders_when_it_is_asked():
    export = pytest.importorskip("opentelemetry.sdk.metrics.export")
    sdk = pytest.importorskip("opentelemetry.sdk.metrics")
    reader = export.InMemoryMetricReader()
    meter = sdk.MeterProvider([reader]).get_meter("train")
    train, test = loader_of(), loader_of()
    observe(train, meter=meter, name="train")
    observe(test, meter=meter, name="test")
    list(train)
    first = of_open_telemetry(reader)
    assert first["jreader.feeds"] == ("{feed}", True, {("train", None): 6, ("test", None): 0})
    assert first["jreader.wait"][:2] == ("s", True)
    assert ("train", "read") in first["jreader.stage"][2]
    assert set(first) == {called for _, called, *_ in METRICS.values()}
    list(train)
    del test
    gc.collect()
    assert of_open_telemetry(reader)["jreader.feeds"][2] == {("train", None): 12}


def test_a_meter_without_a_provider_is_refused_since_it_would_lose_loaders():
    metrics = pytest.importorskip("opentelemetry.metrics")
    with pytest.raises(TypeError, match=r"its provider set\)"):
        observe(loader_of(), meter=metrics.get_meter("train"))


def test_the_exporter_of_open_telemetry_gives_prometheus_the_same_names_but_for_a_ratio():
    exporter = pytest.importorskip("opentelemetry.exporter.prometheus")
    sdk = pytest.importorskip("opentelemetry.sdk.metrics")
    provider = sdk.MeterProvider([exporter.PrometheusMetricReader()])
    loader = loader_of()
    observe(loader, meter=provider.get_meter("train"))
    list(loader)
    text = prometheus_client.generate_latest(prometheus_client.REGISTRY).decode()
    for name in METRICS:
        assert f"# TYPE jreader_{name.removesuffix('_ratio')} " in text
    provider.shutdown()


@pytest.mark.parametrize("package", ["tensorboardX", "torch.utils.tensorboard"])
def test_tensorboard_shows_the_scalars(package, tmp_path):
    writer = pytest.importorskip(package).SummaryWriter(str(tmp_path))
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    loader = loader_of()
    list(loader)
    for name, value in loader.stats().scalars().items():
        writer.add_scalar(name, value, 7)
    writer.close()
    shown = events.EventAccumulator(str(tmp_path))
    shown.Reload()
    (point,) = shown.Scalars("jreader/feeds")
    assert (point.step, point.value) == (7, 6)


def test_wandb_logs_the_scalars_offline(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    loader = loader_of()
    list(loader)
    run = wandb.init(mode="offline", dir=str(tmp_path), project="boards")
    scalars = loader.stats().scalars()
    run.log(scalars)
    assert run.summary["jreader/feeds"] == 6
    assert {*scalars} <= {*run.summary.keys()}
    run.finish()
    assert [*tmp_path.glob("wandb/offline-run*")]
