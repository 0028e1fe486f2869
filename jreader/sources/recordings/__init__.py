"""Recordings: files of consecutive frames (sounds, videos), and clips of one size cut from them.

The number of frames of a recording is known before decoding, so a clip is a file and a first frame,
both computed by arithmetic. A format defines what to index of a file (`Recordings.look`), and how
to decode frames (`Recording`); opening files, decoding ahead, and reporting damage are shared.
"""

from jreader.sources.recordings.recorded import Measured, Open, Recording, Recordings

__all__ = ["Measured", "Open", "Recording", "Recordings"]
