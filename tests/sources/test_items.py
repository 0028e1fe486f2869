"""`source`: any data set as a reader, one by one or in batches."""

import numpy as np
import pytest
from samples import everything

import jreader
from jreader import DataLoader, source


class Squares:
    """Numbers, of which one may go wrong."""

    def __init__(self, error=None):
        self.error = error

    def __len__(self):
        return 10

    def __getitem__(self, index):
        if self.error and index == 5:
            raise self.error
        return index * index


@pytest.mark.parametrize("make", [source, lambda data: jreader.shuffle(source(data), seed=1)])
@pytest.mark.parametrize("above", [lambda reader: reader, lambda reader: jreader.batch(reader, 4)])
def test_a_stop_iteration_of_the_data_is_an_error_not_the_end(make, above):
    with pytest.raises(RuntimeError, match="StopIteration"):
        everything(above(make(Squares(StopIteration()))))


@pytest.mark.parametrize("batched", [False, True])
def test_a_loader_takes_it_for_a_data_set(batched):
    data = np.arange(10) ** 2 if batched else Squares()
    loader = DataLoader(source(data, batched=batched), batch_size=4)
    assert [feed.tolist() for feed in loader] == [[0, 1, 4, 9], [16, 25, 36, 49], [64, 81]]
    loader = DataLoader(source(data, batched=batched), batch_sampler=[[-1, 0], [3]])
    assert [feed.tolist() for feed in loader] == [[81, 0], [9]]
