#!/usr/bin/env python3
"""Measures how many runs `clew hunt` needs for each bug, and prints a table of docs/hunt.md.

    tools/hunt-table.py [--set bugs|open|held] [--clew PATH] [--seeds 20] [--other-seeds 5] [--native 1000] [--only STRATEGY]... [--bug NAME]...

Bugs are those in tests/guests/bugs, or those in tests/guests/hunt that aren't (`open`) or are (`held`) in its held-back.txt: nothing is tuned with the
latter. A cell is the median number of runs to the first failure over the seeds, and how many seeds found it within 200 runs if not all. Every recording
that is found is replayed and verified.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MOST = 200


def sources(which):
    if which == "bugs":
        return sorted((ROOT / "tests/guests/bugs").glob("*.c"))
    hunt = ROOT / "tests/guests/hunt"
    lines = (hunt / "held-back.txt").read_text().splitlines()
    held = {line for line in lines if line and not line.startswith("#")}
    return sorted(source for source in hunt.glob("*.c") if (source.stem in held) == (which == "held"))


def build(folder, which):
    for source in sources(which):
        program = folder / source.stem
        flags = "-g -O2 -fPIE -pie -pthread -D_GNU_SOURCE".split()
        subprocess.run(["gcc", *flags, "-o", program, source], check=True)
        yield program


def native(program, runs):
    """How many of so many plain runs fail. A hanging one is ended by timeout(1): waiting with a limit in Python means polling,
    which keeps a processor busy and makes some of these programs fail a hundred times as often."""
    null = subprocess.DEVNULL
    ended = (subprocess.run(["timeout", "2", program], stdout=null, stderr=null).returncode for _ in range(runs))
    return f"{sum(status != 0 for status in ended)} of {runs}"


def hunt(clew, program, seed, options):
    """Runs to the first failure, or None."""
    recordings = tempfile.mkdtemp(prefix="hunt-table-")
    command = [clew, "hunt", "--json", "--jobs", "1", "--runs", str(MOST), "--seed", str(seed), *options, program]
    done = subprocess.run(command, stdout=subprocess.PIPE, env={**os.environ, "CLEW_DIR": recordings})
    found = json.loads(done.stdout)["found"]
    if found:
        replay = [clew, "replay", "--verify", found[0]["folder"]]
        said = subprocess.run(replay, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=120).stderr
        if b"verified:" not in said:
            raise SystemExit(f"{program}, seed {seed}: the recording doesn't replay: {found[0]['folder']}")
    shutil.rmtree(recordings, ignore_errors=True)
    return found[0]["after_runs"] if found else None


def cell(results):
    found = [runs for runs in results if runs is not None]
    if not found:
        return f"none of {len(results)}"
    median = statistics.median(runs if runs is not None else MOST for runs in results)
    text = f"{median:.0f} (most {max(found)})"
    return text if len(found) == len(results) else f"{median:.0f}; {len(found)} of {len(results)}"


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--clew", default=ROOT / "target/x86_64-unknown-linux-musl/release/clew")
    arguments.add_argument("--set", choices=["bugs", "open", "held"], default="bugs")
    arguments.add_argument("--seeds", type=int, default=20)
    arguments.add_argument("--other-seeds", type=int, default=5)
    arguments.add_argument("--native", type=int, default=1000)
    arguments.add_argument("--only", action="append", metavar="STRATEGY", help="such columns alone; also: plain")
    arguments.add_argument("--bug", action="append", metavar="NAME", help="such rows alone")
    line = arguments.parse_args()
    strategies = [
        ("mixed", [], line.seeds),
        ("random", ["--sched", "random"], line.other_seeds),
        ("pct", ["--sched", "pct"], line.other_seeds),
        ("pct, depth 100", ["--sched", "pct", "--depth", "100"], line.other_seeds),
        *((name, ["--sched", name], line.other_seeds) for name in ["idiom", "surw", "pos", "points", "delay", "hold", "meet"]),
        ("chaos", ["--sched", "chaos"], line.other_seeds),
    ]
    plain = not line.only or "plain" in line.only
    if line.only:
        unknown = set(line.only) - {"plain"} - {name for name, _, _ in strategies}
        if unknown:
            arguments.error(f"no such column: {', '.join(sorted(unknown))}")
        strategies = [strategy for strategy in strategies if strategy[0] in line.only]
    columns = ["plain runs that fail"] * plain + [name for name, _, _ in strategies]
    print("| bug | " + " | ".join(columns) + " |")
    print("|---|" + "---|" * len(columns), flush=True)
    pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count())
    with tempfile.TemporaryDirectory() as folder:
        for program in build(pathlib.Path(folder), line.set):
            if line.bug and program.name not in line.bug:
                continue
            cells = [native(program, line.native)] if plain else []
            for _, options, seeds in strategies:
                one = lambda seed: hunt(line.clew, program, seed, options)
                cells.append(cell(list(pool.map(one, range(1, seeds + 1)))))
            print(f"| {program.name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
