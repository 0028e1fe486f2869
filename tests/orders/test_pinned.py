"""Orders and keys are the same for ever: these are theirs."""

import numpy as np
import pytest

from jreader.orders import STREAM_VERSION, key, permutation
from jreader.orders.block_orders import BlockOrder

GOLDEN = {
    (2, (0,)): [0, 1],
    (5, (1,)): [4, 1, 0, 2, 3],
    (10, (42,)): [4, 9, 0, 7, 8, 6, 1, 5, 2, 3],
    (16, (7, 1)): [1, 2, 8, 11, 12, 15, 13, 3, 4, 7, 10, 14, 6, 5, 9, 0],
    (17, (7, 1)): [13, 6, 3, 12, 4, 10, 7, 14, 16, 0, 2, 15, 9, 11, 8, 1, 5],
    (20, (18446744073709551617,)): [
        12,
        15,
        17,
        16,
        6,
        13,
        8,
        9,
        11,
        18,
        4,
        3,
        10,
        1,
        5,
        14,
        2,
        7,
        0,
        19,
    ],
    (100, (0, 0)): [1, 22, 35, 49, 39, 33],
    (256, (3,)): [231, 235, 165, 11, 240, 84],
    (257, (3,)): [2, 4, 170, 75, 239, 132],
    (1009, (42, 1, 2)): [202, 795, 229, 471, 97, 681],
    (4096, (9,)): [1086, 600, 2718, 3279, 3819, 2129],
    (4097, (9,)): [1813, 1627, 3029, 2850, 1870, 438],
    (60000, (42, 0, 1)): [24731, 43707, 44949, 20459, 48055, 580],
    (65537, (8,)): [63038, 23991, 42338, 33882, 25463, 19506],
    (1000000000, (42,)): [596757414, 724494133, 362674733, 440306678, 815493590, 126509586],
    (1073741824, (5,)): [459489514, 651166225, 430475718, 423541304, 568852636, 618345959],
    (1073741825, (5,)): [300105659, 416941655, 344696703, 48403274, 764390650, 380908951],
    (2147483648, (4294967295,)): [
        1982241216,
        1653558454,
        1360470305,
        2009728389,
        1188563697,
        106367397,
    ],
    (2147483649, (1,)): [22845753, 1269769901, 110989909, 1481033182, 457953302, 983350263],
    (10000000000, (42, 7)): [1627789714, 9220000065, 9383724982, 4430335827, 239916079, 2450056592],
    (1000000000000, (42, 7)): [
        416307072167,
        844312040184,
        827776235192,
        88557178937,
        51045829552,
        627062151554,
    ],
    (281474976710656, (0, 9223372036854775808)): [
        134448591158583,
        110988390270088,
        57926684020617,
        108334141230287,
        176727631881456,
        78758832760705,
    ],
}
KEY = [2232840258, 3289131414]


def test_the_stream_version_is_the_one_that_is_pinned():
    assert STREAM_VERSION == 2


@pytest.mark.parametrize(("n", "path"), GOLDEN)
def test_orders_never_change(n, path):
    """A failure here means another `STREAM_VERSION`, never another expectation."""
    some = np.arange(n) if n <= 20 else np.array([0, 1, 2, n // 2, n - 2, n - 1])
    assert permutation(some, n, key(*path)).tolist() == GOLDEN[n, path]


def test_keys_never_change():
    assert [int(word) for word in key(2**70 + 5, 3, 1 << 40)] == KEY


IN_BLOCKS = {  # of (blocks together, lanes), the samples at PLACES
    (1, 1): [51, 46, 59, 43, 44, 392, 305, 283, 307],
    (3, 1): [96, 81, 44, 65, 371, 63, 346, 269, 123],
    (1, 4): [51, 109, 297, 309, 46, 296, 392, 217, 307],
    (2, 4): [404, 140, 298, 315, 403, 300, 56, 228, 149],
    (3, 7): [402, 108, 241, 276, 197, 109, 367, 205, 19],
}
PLACES = [0, 1, 2, 3, 4, 50, 200, 201, 411]


@pytest.mark.parametrize(("together", "lanes"), IN_BLOCKS)
def test_orders_of_blocks_never_change(together, lanes):
    sizes = [7, 30, 0, 5, 18, 40, 3] * 4
    order = BlockOrder(np.cumsum([0, *sizes])[:-1], sum(sizes), together, lanes)
    found = order.rows(np.array(PLACES), (7, 2, 1)).tolist()
    assert found == IN_BLOCKS[together, lanes]


def test_an_order_of_large_blocks_in_many_lanes_never_changes():
    order = BlockOrder(np.arange(0, 10**6, 1000), 10**6, 8, 64)
    found = order.rows(np.array([0, 1, 63, 64, 10**5, 999_999]), (2**40, 1, 1)).tolist()
    assert found == [417225, 665994, 294688, 319095, 50185, 239592]
