"""Several processes of one run, played one after another: what each makes, and all together."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np

from jreader.feeds.shares import Share
from jreader.loaders.checkpoints.cursors import beginning, sealed
from jreader.loaders.checkpoints.positions import Place
from jreader.loaders.host_feeds import HostFeeds
from jreader.readers import map_tree


def even(size, hosts):
    """The shares of hosts that have equal parts, side by side."""
    each = size // hosts
    return [Share(size, ((host * each, host * each + each),)) for host in range(hosts)]


def feeds_of(pipeline, share, cursor=None, drop_last=True, chunk=None):
    """What one of the hosts makes, and its cursors."""
    loader = pipeline.load(sharding="host", drop_last=drop_last)
    yield from feeds_of_loader(loader.chunk(chunk) if chunk else loader, share, cursor)


def feeds_of_loader(loader, share, cursor=None, shares=()):
    loading = loader._loaded
    cursor = {**(cursor or beginning(0)), "plan": loading.plan(cursor)}
    here = replace(loading.here, share=share, shares=shares)
    feeds = HostFeeds(here, loading.of_epoch(cursor), cursor)
    feeds.numbered = True
    host = feeds.begun()
    for feed, first, _ in host.items:
        moved = Place(*host.position()).cursor
        yield feed, first, json.loads(json.dumps(sealed(moved)))


def joined(hosts, shares, chunk=None):
    """The global feeds of what several hosts made, as lists, and their cursors."""
    for feed, cursor in side_by_side(hosts, shares, chunk):
        yield map_tree(np.ndarray.tolist, feed), cursor


def side_by_side(hosts, shares, chunk=None):
    """The same, as arrays."""
    for each in zip(*hosts, strict=True):
        assert all(cursor == each[0][2] for _, _, cursor in each)
        assert all(first == each[0][1] for _, first, _ in each)

        def whole(*columns):
            axis = 0 if chunk is None else 1
            before = columns[0].shape[:axis]
            assert all(column.shape[:axis] == before for column in columns)
            shape = (*before, shares[0].size, *columns[0].shape[axis + 1 :])
            out, fed = np.empty(shape, columns[0].dtype), set()
            for column, share in zip(columns, shares, strict=True):
                out[(slice(None),) * axis + (share.rows(),)] = column
                fed |= set(share.rows().tolist())
            assert fed == set(range(shares[0].size))
            return out

        yield map_tree(whole, *(feed for feed, *_ in each)), each[0][2]


def alone(pipeline, **options):
    return [
        {name: column.tolist() for name, column in feed.items()}
        for feed in pipeline.load(sharding="host", **options)
    ]
