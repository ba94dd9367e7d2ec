"""The conformance matrix: `python -m tests.conformance.matrix [FAMILY ...] -o docs/conformance.md`.

Carries out every check for every family, or for those named, and writes the page; without `-o` to standard
output. Ends with an error if anything was wrong.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch

from tests.conformance.checks import check_family
from tests.conformance.outcome import Outcome
from tests.conformance.page import render
from tests.graph import families

FAMILIES = (*families.EVERY, *families.FURTHER, *families.OTHERS)
"""All that the tests know, those that cannot be captured last."""


def run_matrix(
    names: Sequence[str], jobs: int = 1, records: Path | None = None, every: bool = False
) -> Iterator[list[Outcome]]:
    """Yield the outcomes of each family.

    Arguments:
        jobs: processes that work side by side, each with one thread.
        every: try every pass, preset and head of every family.
        records: a folder that keeps what is finished, a file for each family; the same call resumes.
    """
    waiting = [name for name in names if _recorded(records, name) is None]
    # a fork of a process that has run torch may wait for threads that it does not have
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        jobs, mp_context=context, initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        timed = partial(_timed, every=every)
        fresh = dict(zip(waiting, pool.map(timed, waiting), strict=True)) if jobs > 1 else {}
        for name in names:
            outcomes = _recorded(records, name)
            if outcomes is None:
                outcomes = fresh[name] if name in fresh else timed(name)
                if records is not None:
                    records.mkdir(parents=True, exist_ok=True)
                    text = json.dumps([asdict(outcome) for outcome in outcomes], indent=1)
                    (records / f"{name}.json").write_text(text + "\n", encoding="utf-8")
            yield outcomes


def _recorded(records: Path | None, name: str) -> list[Outcome] | None:
    file = None if records is None else records / f"{name}.json"
    if file is None or not file.is_file():
        return None
    return [Outcome(**entry) for entry in json.loads(file.read_text(encoding="utf-8"))]


def _timed(name: str, every: bool) -> list[Outcome]:
    start = time.perf_counter()
    outcomes = check_family(name, every)
    wrong = [f"  {o.column}, {o.item}: {o.told}\n" for o in outcomes if o.state == "wrong"]
    sys.stderr.write(f"{name}: {len(outcomes)} checks, {time.perf_counter() - start:.0f} s\n{''.join(wrong)}")
    return outcomes


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the matrix, write its page, and return how many checks were wrong, 1 at most."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.matrix", description=__doc__)
    parser.add_argument("families", nargs="*", choices=[*FAMILIES, []], metavar="FAMILY")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="the page (default: stdout)")
    parser.add_argument("-j", "--jobs", type=int, default=1, metavar="N", help="processes (default: 1)")
    parser.add_argument("--records", type=Path, metavar="DIR", help="keep what is finished here, and resume")
    parser.add_argument("--every", action="store_true", help="every pass, preset and head of every family")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    run = run_matrix(given.families or FAMILIES, given.jobs, given.records, given.every)
    outcomes = [outcome for each in run for outcome in each]
    page = render(outcomes)
    if given.output is None:
        sys.stdout.write(page)
    else:
        given.output.write_text(page, encoding="utf-8")
    return int(any(outcome.state == "wrong" for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
