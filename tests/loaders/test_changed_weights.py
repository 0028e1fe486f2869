"""A run goes on with other weights: what was given stays, and every source goes on where it is."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from widths import examples

from jreader import NotResumable, Pipeline, arrays, mix

LENGTHS = (400, 300, 200)


def rows(source, many):
    return arrays(of=np.full(many, source), n=np.arange(many))


def stream(source, many):
    return lambda: ({"of": np.int64(source), "n": np.int64(n)} for n in range(many))


def loader(make, weights, at=None, seed=0, size=16, stop="first", **options):
    sources = [make(*pair) for pair in enumerate(LENGTHS)]
    mixed = mix(sources, weights, at=at, seed=seed, stop=stop)
    return Pipeline(mixed).batch(size).load(sharding="host", **options)


def given_(feeds):
    rows = [np.stack([feed["of"], feed["n"]], 1).tolist() for feed in feeds]
    return [(of, n) for part in rows for of, n in part]


def head(feeds, steps):
    """The samples of some steps, and the cursor after them, through JSON."""
    made = given_([next(feeds) for _ in range(steps)])
    return made, json.loads(json.dumps(feeds.cursor))


def in_order(samples):
    """Each source gives its samples one after another, none twice."""
    for source in range(len(LENGTHS)):
        mine = [n for of, n in samples if of == source]
        assert mine == list(range(len(mine)))


def shares(samples):
    return np.bincount([of for of, _ in samples], minlength=len(LENGTHS)) / len(samples)


ONE, OTHER, THIRD = [8, 1, 1], [1, 1, 8], [1, 2, 1]


@pytest.mark.parametrize("make", [rows, stream])
@pytest.mark.parametrize("seed", [0, None])
def test_every_source_goes_on_where_it_is_with_other_weights(make, seed):
    first, cursor = head(loader(make, ONE, seed=seed).epoch(0), 10)
    rest = given_(loader(make, OTHER, seed=seed).epoch(0, at=cursor))
    in_order(first + rest)
    np.testing.assert_allclose(shares(first), np.array(ONE) / 10, atol=0.02)
    np.testing.assert_allclose(shares(rest[:64]), np.array(OTHER) / 10, atol=0.02)


@pytest.mark.parametrize("make", [rows, stream])
def test_weights_may_change_at_every_resume_or_stay(make):
    samples, cursor = head(loader(make, ONE).epoch(0), 5)
    for weights in (OTHER, OTHER, ONE, THIRD, THIRD):
        more, cursor = head(loader(make, weights).epoch(0, at=cursor), 3)
        samples += more
        in_order(samples)
    rest = given_(loader(make, THIRD).epoch(0, at=cursor))
    in_order(samples + rest)


@given(st.integers(1, 6), st.integers(1, 6), st.sampled_from([7, 16]))
@examples(10)
def test_a_resumed_run_that_is_resumed_is_one_that_was_not(one, two, size):
    """Where a run is interrupted a second time does not show in its samples."""
    _, cursor = head(loader(rows, ONE, size=size).epoch(0), one)
    whole = given_(loader(rows, OTHER, size=size).epoch(0, at=cursor))
    part, again = head(loader(rows, OTHER, size=size).epoch(0, at=cursor), two)
    assert part + given_(loader(rows, OTHER, size=size).epoch(0, at=again)) == whole


def test_a_schedule_may_be_added_changed_and_taken_back_ahead_of_a_cursor():
    plain = given_(loader(rows, ONE).epoch(0))
    samples, cursor = head(loader(rows, ONE).epoch(0), 4)
    ahead = loader(rows, ONE, at={128: OTHER}).epoch(0, at=cursor)
    more, later = head(ahead, 6)
    in_order(samples + more)
    assert (samples + more)[:128] == plain[:128]
    assert shares(more[64:96])[2] == pytest.approx(0.8, abs=0.05)
    in_order(samples + more + given_(loader(rows, ONE).epoch(0, at=later)))
    assert given_(loader(rows, ONE, at={10**6: OTHER}).epoch(0, at=cursor)) == plain[64:]


def test_the_next_epoch_has_the_new_weights_from_its_beginning_on():
    _, cursor = head(loader(rows, ONE).epoch(0), 10)
    run = loader(rows, OTHER).steps(at=cursor)
    after = [next(run) for _ in range(200)]
    other = loader(rows, OTHER)
    first = next(index for index, feed in enumerate(after) if int(feed["n"].max()) < 16)
    assert given_(after[first : first + 5]) == given_(other.epoch(1))[: 5 * 16]


@pytest.mark.parametrize("make", [rows, stream])
def test_epochs_of_some_steps_of_a_mixture_without_an_end_go_on_with_other_weights(make):
    options = {"stop": "repeat", "steps_per_epoch": 4, "size": 8}
    samples, cursor = head(loader(make, ONE, **options).steps(), 6)
    more, again = head(loader(make, OTHER, **options).steps(at=cursor), 6)
    in_order(samples + more)
    rest, _ = head(loader(make, OTHER, **options).steps(at=again), 3)
    in_order(samples + more + rest)


def test_the_samples_of_every_step_are_told_before_and_after_the_change():
    first, cursor = head(loader(rows, ONE).epoch(0), 5)
    resumed = loader(rows, OTHER)
    feeds = resumed.epoch(0, at=cursor)
    samples = first + given_([next(feeds) for _ in range(7)])
    starts = np.cumsum([0, *LENGTHS])
    for step in (0, 4, 5, 9, 11):
        expected = [starts[of] + n for of, n in samples[16 * step : 16 * step + 16]]
        assert resumed.samples(step).rows["n"].tolist() == expected
        assert resumed.samples(step).sources.tolist() == [of for of, _ in samples[16 * step :][:16]]
    told, later = resumed.samples(12), given_([next(feeds)])
    assert told.sources.tolist() == [of for of, _ in later]
    assert (told.rows["n"] - starts[told.sources]).tolist() == [n for _, n in later]
    given_(feeds)
    assert resumed.samples(0).epoch == 1


def test_the_state_of_a_loader_takes_other_weights_too():
    one = loader(rows, ONE)
    feeds = iter(one)
    samples = given_([next(feeds) for _ in range(7)])
    two = loader(rows, OTHER)
    two.load_state_dict(json.loads(json.dumps(one.state_dict())))
    feeds = iter(two)
    samples += given_([next(feeds) for _ in range(3)])
    three = loader(rows, OTHER)
    three.load_state_dict(json.loads(json.dumps(two.state_dict())))
    assert in_order(samples + given_(iter(three))) is None


def test_where_an_op_above_counts_the_samples_other_weights_are_refused():
    def shuffled(weights):
        sources = [rows(*pair) for pair in enumerate(LENGTHS)]
        return (
            Pipeline(mix(sources, weights, seed=0)).shuffle(seed=1).batch(16).load(sharding="host")
        )

    _, cursor = head(shuffled(ONE).epoch(0), 3)
    assert given_(shuffled(ONE).epoch(0, at=cursor)) == given_(shuffled(ONE).epoch(0))[48:]
    with pytest.raises(NotResumable, match="another plan"):
        shuffled(OTHER).epoch(0, at=cursor)


def test_other_seeds_sources_and_stops_are_refused_as_ever():
    _, cursor = head(loader(rows, ONE).epoch(0), 3)
    for changed in ({"seed": 1}, {"stop": "all"}):
        with pytest.raises(NotResumable, match="another plan"):
            loader(rows, ONE, **changed).epoch(0, at=cursor)


def test_data_on_the_devices_keep_their_weights():
    def resident(weights):
        sources = [rows(*pair) for pair in enumerate(LENGTHS)]
        return Pipeline(mix(sources, weights, seed=0)).batch(16).load(resident=True)

    _, cursor = head(resident(ONE).epoch(0), 3)
    whole = given_(loader(rows, ONE).epoch(0))
    assert given_(resident(ONE).epoch(0, at=cursor)) == whole[48 : len(whole) // 16 * 16]
    with pytest.raises(NotResumable, match="resume with the weights it had"):
        list(resident(OTHER).epoch(0, at=cursor))
