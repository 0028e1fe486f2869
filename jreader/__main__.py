"""The command line: `jreader show`, `check`, `peek`, `bench`, `prepare`, `lock`, `demo`, ..."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jreader import __version__
from jreader.errors import LintWarning

_TARGET = (
    "a pipeline, reader or loader, or a function that returns one: module:name, as in "
    "train:pipeline, or file.py:name"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command in the arguments; without arguments, that of the command line.

    Returns:
        The exit code: 0; 1 if `check` found something, or a command failed, which is reported on
        one line; 130 after Ctrl-C. Wrong arguments exit with 2 at once.
    """
    parser = argparse.ArgumentParser(prog="jreader", description="Feed JAX from readers.")
    parser.add_argument("--version", action="version", version=f"jreader {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    show = _command(commands, "show", "print the plan of a pipeline; nothing is read")
    show.add_argument("--html", metavar="FILE", help="write a page for a browser instead")
    check = _command(commands, "check", "look for probable mistakes, and exit with 1 if found")
    check.add_argument("--ignore", action="append", default=[], metavar="NAME", help="of a finding")
    check.add_argument(
        "--locked",
        nargs="?",
        const="jreader.lock",
        metavar="LOCK",
        help="compare with what `jreader lock` wrote instead (default: jreader.lock)",
    )
    check.add_argument("--no-measure", action="store_true", help="call and time no function")
    peek = _command(commands, "peek", "print the fields of the first samples, batches or feeds")
    peek.add_argument("-n", type=_positive, default=5, help="how many (default: 5)")
    peek.add_argument("--png", metavar="FILE", help="write pictures side by side (needs Pillow)")
    peek.add_argument(
        "--tokenizer",
        type=_target,
        metavar="MODULE:NAME",
        help="show rows of tokens as text: a function of a list of ints, or what has decode(ints)",
    )
    bench = _command(commands, "bench", "time a pipeline, from its source alone to the whole")
    bench.add_argument("--seconds", type=_seconds, default=1.0, help="for each stage (default: 1)")
    prepare = _command(commands, "prepare", "fill each cache(path) and filter(keep=path) of a plan")
    prepare.add_argument("--processes", type=_positive, help="worker processes (default: none)")
    prepare.add_argument(
        "--part", type=_part, help="what this host makes, such as 3/8 (default: all)"
    )
    lock = _command(commands, "lock", "write down the files, packages and functions of a pipeline")
    lock.add_argument("--to", metavar="LOCK", default="jreader.lock", help="(default: %(default)s)")
    lock.add_argument("--sampled", action="store_true", help="hash 1 MiB of each larger file only")
    where = _command(commands, "where", "print the steps that hold a sample; nothing is read")
    where.add_argument(
        "--sample", required=True, metavar="[SOURCE:]NUMBER", help="of a file or a named source"
    )
    where.add_argument("--epochs", type=_positive, help="how many to look at")
    where.add_argument("--until", metavar="CURSOR", help="a cursor, as JSON: no later steps")
    _add_index(commands)
    _add_demo(commands)
    options = parser.parse_args(arguments)
    return _run_demo(options) if options.command == "demo" else _run(options)


def _command(commands: Any, name: str, does: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=does, description=f"{does[0].upper()}{does[1:]}."
    )
    parser.add_argument("target", type=_target, help=_TARGET)
    return parser


def _add_index(commands: Any) -> None:
    index = commands.add_parser(
        "index",
        help="index many files before the first start does",
        description=(
            "Finds where records begin in many files, or reads their footers, and keeps an index "
            "that all later starts use. It lies beside the files, in a folder .jreader, for all "
            "hosts that see them."
        ),
    )
    index.add_argument("paths", nargs="+", metavar="PATH", help="a folder, a file or a pattern")
    index.add_argument(
        "--format",
        choices=["parquet", "jsonl", "tar", "tfrecord"],
        help="of the files (default: by their suffixes)",
    )
    index.add_argument("--cache", action="store_true", help="keep it in your cache folder instead")


def _run(options: argparse.Namespace) -> int:
    """Print the lines of a command; an error is one line of standard error."""
    from jreader import commands  # noqa: PLC0415  # `demo` needs none

    found, path = False, list(sys.path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LintWarning)  # `check` prints them
            warnings.showwarning = _warned
            for line in _command_lines(options):
                found = True
                print(line, flush=True)
            if not found and getattr(options, "locked", None):
                print(commands.agreement(options.target, options.locked))
    except commands.CommandFailed as error:
        return _failed(options, error, 1)
    except KeyboardInterrupt:
        return _failed(options, "interrupted", 130)
    except BrokenPipeError:  # of `| head`
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115  # flushed at exit
        return 1
    except Exception as error:
        return _failed(options, f"raised {commands.in_one_line(error)}", 1)
    finally:
        sys.path[:] = path  # without the user's folder
    return int(found and options.command == "check")


def _warned(
    message: Warning | str, category: object, filename: str, lineno: int, *_: object, **__: object
) -> None:
    """Print a warning on one line, without its line of code."""
    del category  # `warnings.showwarning` may pass it by name
    print(f"{filename}:{lineno}: {' '.join(str(message).split())}", file=sys.stderr)


def _failed(options: argparse.Namespace, why: object, code: int) -> int:
    target = getattr(options, "target", None)
    asked = f"{options.command}: {target}" if target else options.command
    print(f"jreader {asked}:", *f"{why}".split(), file=sys.stderr)
    return code


def _command_lines(options: argparse.Namespace) -> Iterator[str]:
    """Return the lines of any command but `demo`."""
    from jreader import commands  # noqa: PLC0415  # as above

    if options.command == "index":
        return commands.index(options.paths, options.format, beside=not options.cache)
    subject = commands.pipeline_named(options.target)
    if options.command == "peek":
        decode = commands.tokenizer(options.tokenizer) if options.tokenizer else None
        return commands.peek(subject, options.n, options.png, decode)
    lines: dict[str, Callable[[], Iterator[str]]] = {
        "show": lambda: commands.show(subject, options.target, options.html),
        "check": lambda: commands.check(
            subject, options.ignore, measure=not options.no_measure, locked=options.locked
        ),
        "bench": lambda: commands.bench(subject, options.seconds),
        "prepare": lambda: commands.prepare(subject, options.processes, options.part),
        "where": lambda: commands.steps_holding(
            subject, options.sample, options.epochs, options.until
        ),
        "lock": lambda: commands.write_lock(subject, options.to, sampled=options.sampled),
    }
    return lines[options.command]()


def _add_demo(commands: Any) -> None:
    demo = commands.add_parser(
        "demo",
        help="train a small classifier of handwritten digits, data-parallel on every device",
        description=(
            "Trains the tutorials' MNIST classifier (784-200-200-10) data-parallel on every local "
            "device, and prints loss, test accuracy, samples a second, and the share of time that "
            "the step waited for data. The batch is global, so results do not depend on devices."
        ),
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    demo.add_argument("--devices", type=_positive, help="number of devices to emulate on the CPU")
    demo.add_argument("--pmap", action="store_true", help="use pmap instead of jit with a sharding")
    demo.add_argument(
        "--data",
        choices=["mnist", "digits"],
        help="mnist is downloaded if need be; the default is MNIST if its files are on this "
        "machine, else scikit-learn's small digits",
    )
    demo.add_argument(
        "--epochs", type=_positive, help="number of epochs (default: 3, or 20 with digits)"
    )
    demo.add_argument(
        "--batch", type=_positive, default=64, help="samples per step, over all devices"
    )
    demo.add_argument("--seed", type=int, default=0, help="seed of the parameters and of the order")


def _target(text: str) -> str:
    where, _, name = text.rpartition(":")
    if not where or not name:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not module:name, as in train:pipeline, or file.py:name"
        )
    return text


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0")
    return seconds


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number


def _part(text: str) -> tuple[int, ...]:
    try:
        return tuple(map(int, text.split("/")))  # `prepare` checks it
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a part, such as 3/8") from None


def _run_demo(options: argparse.Namespace) -> int:
    """Train; an error that users can fix is one line of standard error."""
    if options.devices:  # before jax is imported
        # with fewer threads than devices, XLA's emulated collectives deadlock on small machines
        os.environ.setdefault("NPROC", str(max(32, 4 * options.devices)))
        os.environ["JAX_PLATFORMS"] = "cpu"
        flag = f"--xla_force_host_platform_device_count={options.devices}"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}".strip()
    from jreader import demo  # noqa: PLC0415  # it imports jax, whose devices are settled now

    try:
        demo.run(options.data, options.pmap, options.epochs, options.batch, options.seed)
    except demo.DemoFailed as error:
        return _failed(options, error, 1)
    except KeyboardInterrupt:
        return _failed(options, "interrupted", 130)
    return 0


if __name__ == "__main__":
    sys.exit(main())
