"""`image_folder` finds images by number, with the labels of their folders."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import check_resumes_everywhere, ends
from widths import examples

from jreader import Pipeline, batch, image_folder, shuffle
from jreader.errors import DamagedData
from jreader.readers import indexed


def write_images(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode())
    return folder


@pytest.fixture(name="image_folder")
def image_folder_placed(placed):
    """For the tests that take it, files lie here and elsewhere."""
    return placed.reader(image_folder)


def names_of(reader):
    return [(sample["image"].decode(), sample["label"]) for sample in reader()]


@pytest.mark.parametrize("end", ["/", "//", "/."])
def test_a_folder_may_be_typed_with_slashes_at_its_end(tmp_path, end):
    write_images(tmp_path, "a/1.png", "b/c/2.png")
    assert names_of(image_folder(f"{tmp_path}{end}")) == [("a/1.png", 0), ("b/c/2.png", 1)]


def test_classes_and_files_are_in_order_as_in_torchvision(image_folder, tmp_path):
    write_images(
        tmp_path,
        "b/2.png",
        "b/10.JPG",
        "a/x/1.webp",
        "a/z.jpg",
        "a/a/3.gif",
        "ü/1.bmp",
        "a/a-/4.png",
    )
    reader = image_folder(tmp_path)
    assert reader.classes == ("a", "b", "ü")
    assert names_of(reader) == [
        ("a/z.jpg", 0),
        ("a/a/3.gif", 0),
        ("a/a-/4.png", 0),
        ("a/x/1.webp", 0),
        ("b/10.JPG", 1),
        ("b/2.png", 1),
        ("ü/1.bmp", 2),
    ]
    assert len(reader) == 7
    check_resumes_everywhere(reader)


@examples(40)
@given(counts=st.lists(st.integers(1, 5), min_size=1, max_size=4), seed=st.integers(0, 9))
def test_any_folder_is_read_from_any_place_on_and_shuffled_as_a_whole(
    tmp_path_factory, counts, seed
):
    folder = tmp_path_factory.mktemp("images")
    names = [f"{label}/{n}.png" for label, count in enumerate(counts) for n in range(count)]
    reader = image_folder(write_images(folder, *names))
    assert [name for name, _ in names_of(reader)] == names
    check_resumes_everywhere(reader)
    dealt = [sample for each in batch(shuffle(reader, seed=seed), 2)() for sample in each]
    assert sorted(sample["image"].decode() for sample in dealt) == sorted(names)
    assert all(sample["image"].decode().startswith(f"{sample['label']}/") for sample in dealt)


def test_what_is_hidden_or_to_be_skipped_is_left_out(image_folder, placed, tmp_path):
    write_images(tmp_path, "a/1.png", "a/.DS_Store", ".cache/1.png", "a/1.txt", "a/2.json")
    reader = image_folder(tmp_path, skip=(".txt", ".json"))
    assert names_of(reader) == [("a/1.png", 0)]
    path = placed.path(tmp_path) if placed.place else str(tmp_path)
    assert repr(reader) == f"image_folder({path!r}, skip=('.txt', '.json'))"
    assert repr(image_folder(tmp_path, skip=None)) == f"image_folder({path!r})"
    with pytest.raises(
        ValueError, match=r"1\.txt does not have the name of an image.*skip=\('\.txt',\)"
    ):
        list(image_folder(tmp_path)())


def test_an_image_in_no_class_and_a_class_without_images_are_errors(image_folder, tmp_path):
    write_images(tmp_path, "a/1.png", "loose.png")
    with pytest.raises(ValueError, match=r"loose\.png is not in the folder of a class"):
        list(image_folder(tmp_path)())
    (tmp_path / "loose.png").unlink()
    (tmp_path / "b").mkdir()
    (tmp_path / "b/.hidden.png").write_bytes(b"")  # elsewhere, no folder is empty
    with pytest.raises(ValueError, match=r"b has no image"):
        list(image_folder(tmp_path)())


@pytest.mark.parametrize("empty", [True, False])
def test_an_image_that_is_empty_or_gone_is_an_error_behind_the_good_ones(
    image_folder, placed, tmp_path, empty
):
    reader = image_folder(write_images(tmp_path, "a/1.png", "a/2.png", "a/3.png"))
    assert len(reader) == 3
    (tmp_path / "a/2.png").write_bytes(b"") if empty else (tmp_path / "a/2.png").unlink()
    placed.update()
    samples, error = ends(reader())
    assert [sample["image"] for sample in samples] == [b"a/1.png"]
    assert isinstance(error, DamagedData)
    assert "/a/2.png " in str(error)
    (last,) = indexed(reader).each(np.array([2]))
    assert last["image"] == b"a/3.png"


def test_the_note_under_an_error_names_the_file_where_samples_have_their_paths(tmp_path):
    folder = write_images(tmp_path, "a/1.jpg", "b/2.jpg", "b/3.jpg")

    def decode(sample):
        if sample["image"] == b"b/2.jpg":
            raise ValueError("damaged")
        return sample["label"]

    reader = image_folder(folder, with_paths=True)
    assert [sample["path"] for sample in reader()] == [
        str(folder / name) for name in ("a/1.jpg", "b/2.jpg", "b/3.jpg")
    ]
    assert "with_paths=True" in repr(reader)
    for threads in (0, 2):
        with pytest.raises(ValueError, match="damaged") as caught:
            list(Pipeline(reader).shuffle(seed=0).map(decode, threads=threads))
        assert "b/2.jpg'" in caught.value.__notes__[0]  # the end of a long path is not cut
    with pytest.raises(TypeError, match="with_paths, not 'yes'"):
        image_folder(folder, with_paths="yes")


def test_what_is_no_folder_of_classes_is_an_error_where_it_is_written(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere', which does not exist"):
        image_folder(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="finds no folder in"):
        image_folder(tmp_path)
    with pytest.raises(TypeError, match="a str or a path, not 3"):
        image_folder(3)
    write_images(tmp_path, "a/1.png")
    with pytest.raises(TypeError, match="suffixes of names to skip"):
        image_folder(tmp_path, skip=[5])
    with pytest.raises(TypeError, match=r"suffixes of names to skip, .* not 5"):
        image_folder(tmp_path, skip=5)


def test_thousands_of_classes_are_listed_in_time_that_grows_with_their_number(tmp_path):
    write_images(tmp_path, *(f"{number}/a.png" for number in range(4000)))
    reader = image_folder(tmp_path)
    began = time.process_time()
    assert len(reader) == 4000
    assert time.process_time() - began < 0.6  # 0.05; 2 s if each class looked at all folders


def test_building_it_lists_no_files(image_folder, tmp_path):
    write_images(tmp_path, "a/odd.txt")
    reader = image_folder(tmp_path)
    with pytest.raises(ValueError, match="not have the name of an image"):
        len(reader)


def test_a_loader_names_the_files_of_a_step(tmp_path):
    reader = image_folder(write_images(tmp_path, "a/1.png", "a/2.png", "b/1.png"))
    sizes = (
        Pipeline(reader)
        .batch(3)
        .map_batches(
            lambda samples: np.array([len(sample["image"]) for sample in samples]), stacked=False
        )
    )
    told = sizes.load(sharding="host").samples(0)
    assert [path for path, _ in told.files] == [
        str(tmp_path / name) for name in ("a/1.png", "a/2.png", "b/1.png")
    ]


@pytest.mark.peers
def test_samples_are_those_of_torchvision(tmp_path):
    datasets = pytest.importorskip("torchvision.datasets")
    write_images(tmp_path, "b/2.png", "b/10.png", "a/x/1.png", "a/z.jpg", "a/Z.jpg", "a/a/3.png")
    theirs = datasets.ImageFolder(str(tmp_path))
    reader = image_folder(tmp_path)
    assert list(reader.classes) == theirs.classes
    assert [(str(tmp_path / name), label) for name, label in names_of(reader)] == theirs.samples
