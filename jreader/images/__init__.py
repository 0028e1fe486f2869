"""Images: decoded on the host to uint8, and augmented on the devices.

A device receives `uint8`, a quarter of the bytes of floats. `random_resized_crop`, `random_flip`
and `normalize` run in a jitted stage (`loader.on_device(fn, rng="sample")`) whose keys depend on
the seed, the epoch and the sample: you get the same images on any number of devices. `decode`,
`decode_batch` and `image_text` (images in text) need the extra `images` (simplejpeg, OpenCV and
Pillow); importing this package imports neither them nor jax, so worker processes start fast.

    >>> import numpy as np
    >>> from jreader import Pipeline, arrays, images
    >>> def augmented(feed, keys):
    ...     image = images.random_resized_crop(feed["image"], keys, 24)
    ...     return {"image": images.normalize(images.random_flip(image, keys))}
    >>> rows = Pipeline(arrays(image=np.zeros((4, 32, 32, 3), np.uint8))).batch(2)
    >>> [feed["image"].shape for feed in rows.load().on_device(augmented, rng="sample")]
    [(2, 24, 24, 3), (2, 24, 24, 3)]
"""

from jreader.images.augmentations import normalize, random_flip, random_resized_crop
from jreader.images.decoding import decode, decode_batch
from jreader.images.image_text import image_text

__all__ = [
    "decode",
    "decode_batch",
    "image_text",
    "normalize",
    "random_flip",
    "random_resized_crop",
]
