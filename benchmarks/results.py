"""What compressing SmolLM2-135M-Instruct costs: the tables of docs/results.md.

    python benchmarks/results.py --data DIR [--cache DIR] [--quick] [--estimate]

DIR holds wikitext2/, c4/ and tasks/, and ptb/ if there is one, with the files that results_setting.py
names. What is finished is in the cache, fitted operators and steps of the training included: a run that
was stopped, however, goes on where it was, and loses a few minutes at most. The tables are written
between their marks; the text around them stays.
"""

import argparse
from pathlib import Path

import torch
from notebook import BEGIN, END, put_between
from results_bench import CAN_TRAIN, Bench
from results_parts import pace_of, parts_of, work
from results_setting import FULL, QUICK
from results_tables import tables

from ghosted_cli.request import cache_folder

REPORT = Path(__file__).parents[1] / "docs" / "results.md"
TINY = (
    "**A trial of the program on a handful of tokens. No figure here means anything.** "
    "The real tables are in docs/results.md.\n\n"
)


def main() -> None:
    """Measure what is missing, then write the tables."""
    arguments = _arguments()
    bench = Bench(arguments.data, cache_folder(arguments.cache), QUICK if arguments.quick else FULL)
    if not CAN_TRAIN:
        print("This version trains nothing: the row of 'finetune' is left out.", flush=True)
    parts, pace = parts_of(bench), pace_of(bench)
    if arguments.estimate:
        for part in parts:
            left = "done" if part.is_done() else f"{part.cost / pace / 60:.1f} minutes"
            print(f"{part.name}: {left}")
        return
    work(parts, pace)
    command = "make results DATA=DIR" + (" ARGS=--quick" if arguments.quick else "")
    text = tables(bench, command)
    if arguments.quick:
        report = bench.folder / "results.md"
        put_between(report, TINY + text, f"{BEGIN}\n{END}\n")
        print(f"{report}: a trial, whose figures mean nothing")
    else:
        print(text)
        put_between(REPORT, text, f"# Results\n\n{BEGIN}\n{END}\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=None)
    parser.add_argument("--quick", action="store_true", help="a trial on a handful of tokens")
    parser.add_argument("--estimate", action="store_true", help="only say what is left and how long it takes")
    parser.add_argument("--threads", type=int, default=None, help="of torch; as many as it likes by default")
    arguments = parser.parse_args()
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    return arguments


if __name__ == "__main__":
    main()
