"""Records the terminal session that README shows: `python docs/recording.py`, in an empty folder.

It runs the commands below and writes what they print to `docs/pictures/resume.svg`, an animation
in plain SVG and CSS. Pauses are shortened; lines are as they were printed.
"""

from __future__ import annotations

import html
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = """
import argparse, json, pathlib, signal

import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh

from jreader import Pipeline, datasets

parser = argparse.ArgumentParser()
parser.add_argument("--devices", type=int, default=1)
parser.add_argument("--stop-at", type=int)
parser.add_argument("--from-scratch", action="store_true")
args = parser.parse_args()
jax.config.update("jax_num_cpu_devices", args.devices)

mesh = Mesh(np.array(jax.devices()), ("data",))
digits = Pipeline(datasets.digits.train()).shuffle(seed=0).batch(64)
loader = digits.load({"image": 0, "label": 1}, sharding=mesh)
saved = pathlib.Path("run.npz")
weights, cursor = np.zeros((784, 10), np.float32), None
if saved.exists() and not args.from_scratch:
    weights, cursor = np.load(saved)["weights"], json.loads(pathlib.Path("cursor.json").read_text())
feeds = loader.steps(400, at=cursor)
print(f"{args.devices} device{'s' * (args.devices > 1)}, next: step {feeds.step + 1}")


@jax.jit
def step(weights, feed):
    def loss_of(weights):
        return -jax.nn.log_softmax(feed["image"] @ weights)[jnp.arange(64), feed["label"]].mean()
    loss, slope = jax.value_and_grad(loss_of)(weights)
    return weights - 0.05 * slope, loss


weights = loader.replicate(weights)
for feed in feeds:
    weights, loss = step(weights, feed)
    if feeds.step % 100 == 0:
        print(f"step {feeds.step}: loss {loss:.4f}, first labels {feed['label'][:8].tolist()}")
    if feeds.step == args.stop_at:
        np.savez(saved, weights=weights)
        pathlib.Path("cursor.json").write_text(json.dumps(feeds.cursor))
        print(f"stopped after step {feeds.step}; weights and cursor saved")
        break
"""
COMMANDS = (
    "python train.py --stop-at 230",
    "python train.py --devices 8  # resume on eight devices",
    "python train.py --from-scratch  # compare: never stopped",
)
WIDTH, LINE, LEFT, TYPED, SHOWN, END = 660, 21, 16, 0.035, 0.35, 4.0
"""Pixels, then seconds: a typed letter, a printed line, the pause before the animation repeats."""


def printed() -> list[tuple[str, list[str]]]:
    """Each command with the lines that it prints."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(PROGRAM)
        return [(command, _lines_of(command, folder)) for command in COMMANDS]


def _lines_of(command: str, folder: str) -> list[str]:
    program = command.partition("#")[0].replace("python", sys.executable, 1).split()
    environment = {**os.environ, "NPROC": "32", "JAX_PLATFORMS": "cpu"}  # or emulation deadlocks
    ran = subprocess.run(  # noqa: S603  # the commands above
        program, cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return ran.stdout.splitlines()


def animation(session: list[tuple[str, list[str]]]) -> str:
    """An SVG in which the lines of a session appear one after another, again and again."""
    rows: list[tuple[str, float, float]] = []  # markup, when it begins to appear, for how long
    now = 0.5
    for command, lines in session:
        took = TYPED * len(command)
        program, mark, comment = command.partition("#")
        text = html.escape(program) + (f"<tspan class='c'>{mark}{html.escape(comment)}</tspan>")
        rows.append((f"<tspan class='p'>$</tspan> {text}", now, took))
        now += took + 0.6
        for line in lines:
            rows.append((html.escape(line), now, 0.0))
            now += SHOWN
        now += 0.6
    total = now + END
    height = LINE * (len(rows) + 1)
    style, body = [], []
    for number, (markup, begins, took) in enumerate(rows):
        first, last = 100 * begins / total, 100 * (begins + took) / total
        style.append(
            f"@keyframes r{number}{{0%,{first:.2f}%{{clip-path:inset(0 100% 0 0)}}"
            f"{last + 0.01:.2f}%,100%{{clip-path:inset(0 0 0 0)}}}}"
            f"#r{number}{{animation:r{number} {total:.1f}s linear infinite}}"
        )
        y = LINE * (number + 1)
        body.append(f'<text id="r{number}" x="{LEFT}" y="{y}">{markup}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="A run that stops after step 230 resumes on eight devices at step 231">\n'
        "<style>text{font:14px ui-monospace,Menlo,Consolas,monospace;fill:#e6e6e6;"
        "white-space:pre}.p{fill:#7ec699}.c{fill:#9a9a9a}\n"
        + "\n".join(style)
        + "\n@media (prefers-reduced-motion:reduce){text{animation:none!important}}</style>\n"
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#1e1e24"/>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


if __name__ == "__main__":
    target = Path(__file__).parent / "pictures" / "resume.svg"
    target.write_text(animation(printed()))
