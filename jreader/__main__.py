"""The command line: `jreader demo` trains a small digit classifier on all local devices."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command that the arguments name; without arguments, those of the command line."""
    parser = argparse.ArgumentParser(prog="jreader", description="Feed JAX from readers.")
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser(
        "demo",
        help="train a small classifier of handwritten digits, data-parallel on every device",
        description=(
            "Trains the tutorials' MNIST classifier (784-200-200-10) data-parallel on every local "
            "device, and prints loss, test accuracy, and the share of time that the training step "
            "waited for data. The batch is global, so results do not depend on the devices."
        ),
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    demo.add_argument("--devices", type=_positive, help="number of devices to emulate on the CPU")
    demo.add_argument("--jit", action="store_true", help="use jit with a sharding instead of pmap")
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
    _run_demo(parser.parse_args(arguments))


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number


def _run_demo(options: argparse.Namespace) -> None:
    if options.devices:  # before jax is imported
        # with fewer threads than devices, XLA's emulated collectives deadlock on small machines
        os.environ.setdefault("NPROC", str(max(32, 4 * options.devices)))
        os.environ["JAX_PLATFORMS"] = "cpu"
        flag = f"--xla_force_host_platform_device_count={options.devices}"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}".strip()
    from jreader import demo  # noqa: PLC0415  # it imports jax, whose devices are settled now

    demo.run(options.data, options.jit, options.epochs, options.batch, options.seed)


if __name__ == "__main__":
    main()
