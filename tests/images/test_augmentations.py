"""Crops, flips and normalization of batches on the devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jreader import Pipeline, arrays, images

crop = jax.jit(images.random_resized_crop, static_argnames=("size", "scale", "ratio"))
KEYS = jax.random.split(jax.random.key(3), 6)


def pictures(count=6, height=20, width=30):
    rows, columns = np.mgrid[:height, :width]
    one = np.stack([rows, columns, 0 * rows], -1).astype(np.uint8)
    return np.repeat(one[None], count, 0)


def test_a_crop_is_a_part_of_the_picture_scaled():
    made = np.asarray(crop(pictures(), KEYS, (8, 10)))
    assert made.shape == (6, 8, 10, 3)
    steps = np.diff(made[..., 1], axis=2)[:, 2:-2, 2:-2]
    assert (steps.std((1, 2)) < 0.35).all(), "columns go on evenly"
    assert made[..., 0].max() <= 19.01
    assert made[..., 1].max() <= 29.01
    assert len({image.tobytes() for image in made}) == 6


def test_a_crop_of_everything_is_the_picture():
    made = crop(pictures(2, 16, 16), KEYS[:2], 16, scale=(1, 1), ratio=(1, 1))
    assert np.allclose(made, pictures(2, 16, 16), atol=1e-3)


@pytest.mark.parametrize("made", [{"scale": (0, 1)}, {"ratio": (2, 1)}])
def test_a_range_that_is_none_is_refused(made):
    with pytest.raises(ValueError, match="needs 0 < low <= high"):
        images.random_resized_crop(pictures(), KEYS, 8, **made)


def test_a_flip_mirrors_some():
    made = np.asarray(images.random_flip(pictures(), KEYS))
    turned = [np.array_equal(image, pictures(1)[0][:, ::-1]) for image in made]
    stayed = [np.array_equal(image, pictures(1)[0]) for image in made]
    assert all(np.logical_xor(turned, stayed))
    assert made.dtype == np.uint8
    assert any(turned)
    assert any(stayed)


@pytest.mark.slow
def test_a_flip_and_a_crop_of_one_key_draw_apart():
    wide = jax.random.split(jax.random.key(0), 400)
    flips = np.asarray(images.random_flip(np.array([[[[0], [1]]]] * 400), wide))[:, 0, 0, 0] == 1
    crops = np.asarray(images.random_resized_crop(pictures(400), wide, 4))[:, 0, 0, 1]
    assert abs(np.corrcoef(flips, crops)[0, 1]) < 0.2


def test_keys_have_to_be_as_many_as_pictures():
    with pytest.raises(ValueError, match="a key for each"):
        images.random_flip(pictures(), KEYS[:2])
    with pytest.raises(ValueError, match="a key for each"):
        images.random_flip(pictures(), jnp.zeros(6))


def test_normalize_has_one_mean_a_color():
    values = images.normalize(pictures(), (0, 0, 0), (1, 1, 1))
    assert np.allclose(values, pictures() / 255)
    with pytest.raises(ValueError, match="each of the 3 colours"):
        images.normalize(pictures(), (0,), (1,))


@pytest.mark.slow
def test_it_is_the_same_on_one_device_and_on_several_and_after_a_resume():
    def augmented(feed, keys):
        image = images.random_resized_crop(feed["image"], keys, 8)
        return {"image": images.normalize(images.random_flip(image, keys))}

    def loader(**where):
        plan = Pipeline(arrays(image=pictures(16))).batch(8)
        return plan.load(**where).on_device(augmented, rng="sample", seed=1)

    one = [np.asarray(feed["image"]) for feed in loader()]
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
    several = [np.asarray(feed["image"]) for feed in loader(sharding=mesh)]
    assert np.allclose(one, several, atol=1e-5)
    feeds = loader().steps(2)
    next(feeds)
    rest = [np.asarray(feed["image"]) for feed in loader().steps(2, at=feeds.cursor)]
    assert np.allclose(rest, one[1:], atol=1e-6)
