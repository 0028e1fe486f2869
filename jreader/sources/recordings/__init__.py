"""Recordings: files of sounds or pictures that follow one another, and clips of one size of them.

A recording has a number of frames, which is known before any of them is decoded: so a clip is a
file and its first frame, both found by arithmetic. A format says what it keeps of a file
(`Recordings.look`), and decodes frames (`Recording`); how files are opened, what is decoded ahead,
and what is damaged is the same for all.
"""

from jreader.sources.recordings.recorded import Measured, Open, Recording, Recordings

__all__ = ["Measured", "Open", "Recording", "Recordings"]
