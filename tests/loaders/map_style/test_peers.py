"""Data sets of other libraries, as they are: what has indices is indexed, what streams is read."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from steps import stream

from jreader import DataLoader
from jreader.datasets import BatchSampler, Subset, random_split

pytestmark = [
    pytest.mark.peers,
    pytest.mark.filterwarnings("ignore"),  # what other libraries warn of is theirs
]


def columns(count=7):
    return {"x": [float(n) for n in range(count)], "label": list(range(count))}


def expected(size):
    x, label = columns().values()
    return [
        {"x": x[place : place + size], "label": label[place : place + size]}
        for place in range(0, len(x), size)
    ]


class TestTorch:
    @pytest.fixture
    def torch(self):
        return pytest.importorskip("torch")

    def test_a_dataset_of_tensors(self, torch):
        images, labels = torch.arange(12.0).reshape(6, 2), torch.arange(6)
        dataset = torch.utils.data.TensorDataset(images, labels)
        feeds = list(DataLoader(dataset, 4))
        assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(feeds))
        theirs = torch.utils.data.DataLoader(dataset, 4)
        assert stream(feeds) == [[part.tolist() for part in feed] for feed in theirs]

    def test_a_dataset_of_users(self, torch):
        class Numbers(torch.utils.data.Dataset):
            def __getitem__(self, index):
                return {"x": float(index), "label": index, "name": f"{index}"}

            def __len__(self):
                return 7

        feeds = stream(DataLoader(Numbers(), 3, num_workers=2))
        names = [feed.pop("name") for feed in feeds]
        assert (feeds, names[0]) == (expected(3), ["0", "1", "2"])

    def test_getitems_of_a_subset_is_used(self, torch):
        calls = []

        class Several(torch.utils.data.Dataset):
            def __getitems__(self, indices):
                calls.append(indices)
                return indices

            def __len__(self):
                return 6

        subset = torch.utils.data.Subset(Several(), [5, 4, 3])
        assert stream(DataLoader(subset, 2)) == [[5, 4], [3]]
        assert calls == [[5, 4], [3]]

    def test_a_stream_is_read_once_also_if_it_says_its_length(self, torch):
        class Numbers(torch.utils.data.IterableDataset):
            def __iter__(self):
                yield from range(5)

            def __len__(self):
                return 5

        loader = DataLoader(Numbers(), 2, num_workers=2)
        assert (stream(loader), len(loader)) == ([[0, 1], [2, 3], [4]], 3)

    def test_its_samplers_deal_too(self, torch):
        sampler = torch.utils.data.BatchSampler(range(5), 2, drop_last=True)
        loader = DataLoader(range(5), batch_sampler=sampler)
        assert (stream(loader), len(loader)) == ([[0, 1], [2, 3]], 2)
        shuffled = torch.utils.data.RandomSampler(range(5))
        assert sorted(sum(BatchSampler(sampler=shuffled, batch_size=2)(), [])) == [0, 1, 2, 3, 4]  # noqa: RUF017  # five numbers

    def test_a_tensor_as_a_feed_of_its_own(self, torch):
        feeds = list(DataLoader([torch.ones(2), torch.zeros(3)], batch_size=None))
        assert stream(feeds) == [[1, 1], [0, 0, 0]]


class TestHuggingFace:
    @pytest.fixture
    def dataset(self):
        return pytest.importorskip("datasets").Dataset.from_dict(columns())

    def test_a_dataset_and_its_getitems(self, dataset):
        asked = []
        several = type(dataset).__getitems__

        class Asked(type(dataset)):
            def __getitems__(self, indices):
                asked.append(indices)
                return several(self, indices)

        dataset.__class__ = Asked
        assert stream(DataLoader(dataset, 3)) == expected(3)
        assert asked == [[0, 1, 2], [3, 4, 5], [6]]

    @pytest.mark.parametrize("kind", ["numpy", "torch"])
    def test_its_formats(self, dataset, kind):
        if kind == "torch":
            pytest.importorskip("torch")
        assert stream(DataLoader(dataset.with_format(kind), 3)) == expected(3)

    def test_a_stream(self, dataset):
        assert stream(DataLoader(dataset.to_iterable_dataset(), 3)) == expected(3)

    def test_parts_of_it(self, dataset):
        parts = random_split(dataset, [4, 3], seed=0)
        labels = [
            label
            for part in parts
            for feed in DataLoader(part, 2)
            for label in stream([feed["label"]])[0]
        ]
        assert sorted(labels) == list(range(7))


class TestGrain:
    @pytest.fixture
    def grain(self):
        return pytest.importorskip("grain")

    def test_a_source_and_a_map_dataset(self, grain):
        rows = [
            dict(zip(columns(), row, strict=True)) for row in zip(*columns().values(), strict=True)
        ]
        source = grain.MapDataset.source(rows)
        assert stream(DataLoader(source, 3)) == expected(3)
        assert stream(DataLoader(grain.sources.RangeDataSource(0, 4, 1), 2)) == [[0, 1], [2, 3]]
        doubled = source.map(lambda row: row["label"] * 2)
        assert stream(DataLoader(doubled, 4)) == [[0, 2, 4, 6], [8, 10, 12]]

    def test_its_batches_are_feeds_without_ours(self, grain):
        batches = grain.MapDataset.range(6).batch(3)
        assert stream(DataLoader(batches, batch_size=None)) == [[0, 1, 2], [3, 4, 5]]

    def test_a_stream(self, grain):
        numbers = grain.MapDataset.range(5).to_iter_dataset()
        assert stream(DataLoader(numbers, 2)) == [[0, 1], [2, 3], [4]]

    def test_what_it_filters_out_is_refused_by_index(self, grain):
        odd = grain.MapDataset.range(4).filter(lambda n: n % 2 == 1)
        with pytest.raises(ValueError, match=r"sample 0 of .* is None"):
            list(DataLoader(odd, 2))


class TestTensorFlowDatasets:
    @pytest.fixture
    def source(self, tmp_path):
        datasets = pytest.importorskip("tensorflow_datasets")
        pytest.importorskip("array_record")

        class Numbers(datasets.core.GeneratorBasedBuilder):
            VERSION = datasets.core.Version("1.0.0")
            pkg_dir_path = tmp_path

            def _info(self):
                features = datasets.features.FeaturesDict(
                    {"x": np.float32, "label": np.int64, "name": datasets.features.Text()}
                )
                return datasets.core.DatasetInfo(builder=self, features=features)

            def _split_generators(self, dl_manager):
                return {"train": self._generate_examples()}

            def _generate_examples(self):
                for n in range(7):
                    yield n, {"x": n, "label": n, "name": f"{n}"}

        builder = Numbers(data_dir=tmp_path, file_format="array_record")
        builder.download_and_prepare()
        return builder.as_data_source(split="train")

    def test_a_data_source(self, source):
        feeds = stream(DataLoader(source, 3))
        names = [feed.pop("name") for feed in feeds]
        assert sorted(label for feed in feeds for label in feed["label"]) == list(range(7))
        assert all(feed["x"] == feed["label"] for feed in feeds)
        assert [[int(name) for name in part] for part in names] == [feed["label"] for feed in feeds]
        assert len(stream(DataLoader(Subset(source, [6, 0]), 1))) == 2
