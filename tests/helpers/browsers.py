"""A real browser, where there is one: how it lays out what notebooks are handed."""

from __future__ import annotations

import json
import shutil
import subprocess
from html import escape, unescape
from typing import NamedTuple

import pytest
from programs import PATIENCE

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

SCRIPT = """
const over = (top, below) => {  // a colour [r, g, b, a] on an opaque one
  const a = top[3] ?? 1;
  return [0, 1, 2].map((k) => a * top[k] + (1 - a) * below[k]);
};
const colour = (text) => text.match(/[\\d.]+/g).map(Number);
const light = (rgb) => {
  const [r, g, b] = rgb.map((v) => v / 255)
    .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ground = (node) => {
  let below = [255, 255, 255];
  const up = [];
  for (let at = node; at; at = at.parentElement) up.unshift(at);
  for (const at of up) below = over(colour(getComputedStyle(at).backgroundColor), below);
  return below;
};
const contrast = (node) => {
  let shade = 1;
  for (let at = node; at; at = at.parentElement) shade *= getComputedStyle(at).opacity;
  const below = ground(node);
  const ink = colour(getComputedStyle(node).color);
  const shown = over([...ink.slice(0, 3), (ink[3] ?? 1) * shade], below);
  const [one, two] = [light(shown), light(below)];
  return (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
};
const found = [];
document.querySelectorAll("[data-picture]").forEach((picture) => {
  const frame = picture.getBoundingClientRect();
  const walker = document.createTreeWalker(picture, NodeFilter.SHOW_TEXT);
  const cells = new Map();
  while (walker.nextNode()) {
    const node = walker.currentNode;
    const range = document.createRange();
    range.selectNodeContents(node);
    const cell = node.parentElement.closest("td, p, h1") ?? node.parentElement;
    if (!cells.has(cell)) cells.set(cell, cells.size);
    const boxes = [...range.getClientRects()].filter((box) => box.width && box.height)
      .map((box) => [box.left, box.top, box.right, box.bottom]
        .map((edge, k) => Math.round(10 * (edge - (k % 2 ? frame.top : frame.left))) / 10));
    found.push([picture.dataset.picture, cells.get(cell), node.data, boxes,
      contrast(node.parentElement), picture.clientWidth]);
  }
});
const told = document.createElement("pre");
told.id = "told";
told.textContent = JSON.stringify(found);
document.body.append(told);
"""


class Text(NamedTuple):
    """A text as a browser shows it.

    Attributes:
        cell: The number of its cell in its picture.
        text: The text.
        boxes: Left, top, right and bottom of each of its lines, in pixels from its picture's.
        contrast: That of its colour with the ground below it (WCAG), from 1 to 21.
        wide: The pixels that its picture has.
    """

    cell: int
    text: str
    boxes: list[list[float]]
    contrast: float
    wide: int


def laid_out(pictures, styles, path):
    """The texts of each picture, as a browser lays them out; skips a test where there is none.

    Args:
        pictures: A class of the page for each picture, and its HTML: by its name.
        styles: The style sheet of the page.
        path: A folder for the page, and for what the browser keeps.
    """
    browser = next(filter(None, map(shutil.which, NAMES)), None)
    if browser is None:
        pytest.skip(f"there is no browser here: {', '.join(NAMES)}")
    inside = "".join(
        f'<div data-picture="{escape(name)}" class="{of}">{html}</div>'
        for name, (of, html) in pictures.items()
    )
    page = path / "pictures.html"
    page.write_text(
        f'<!doctype html><meta charset="utf-8"><style>{styles}</style>{inside}'
        f"<script>{SCRIPT}</script>",
        encoding="utf-8",
    )
    told = subprocess.run(
        [
            *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-extensions"),
            *("--window-size=1300,800", f"--user-data-dir={path / 'browser'}", "--dump-dom"),
            page.as_uri(),
        ],
        capture_output=True,
        timeout=PATIENCE,
        check=True,
    ).stdout.decode()
    lines = json.loads(unescape(told.rpartition('<pre id="told">')[2].partition("</pre>")[0]))
    found = {name: [] for name in pictures}
    for name, *rest in lines:
        found[name].append(Text(*rest))
    return found


def overlapping(texts):
    """The pairs of texts, of cells that differ, that lie over one another by a pixel or more."""
    boxes = [(text, box) for text in texts for box in text.boxes]
    return [
        (one.text, two.text)
        for number, (one, (left, top, right, bottom)) in enumerate(boxes)
        for two, (begins, above, ends, below) in boxes[:number]
        if one.cell != two.cell
        and min(right, ends) - max(left, begins) >= 1
        and min(bottom, below) - max(top, above) >= 1
    ]
