"""Both orders in which samples of several processes come: in turn, or as they are made."""

from __future__ import annotations

import pytest


@pytest.fixture(params=[True, False])
def use_pipe(request):
    return request.param
