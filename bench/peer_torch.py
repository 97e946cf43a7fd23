#!/usr/bin/python3
"""Training steps of roundoff_bench in PyTorch, on one thread; and the two in turns.

    bench/peer_torch.py                       PyTorch alone
    bench/peer_torch.py --against PROGRAM     PROGRAM (build/release/bin/roundoff_bench) and PyTorch
                                              take turns; ratios are quotients of the same turn

Times are processor time of the process, medians over the turns with quartiles. The models, batches,
loss and optimizer are those of bench/training.cpp: learning rate 0, one batch that stays the same.
bf16 is torch.autocast("cpu", dtype=torch.bfloat16). PyTorch runs the convolutions in its own order
of axes and with channels last; Roundoff has one order. Exits with 77 where there is no PyTorch
(Debian: apt-get install python3-torch).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

ABSENT = 77
# Model, precision, order of PyTorch's axes.
CASES = [(model, precision, layout)
         for model, layouts in (("tiny-mlp", [""]), ("convnet", ["", "channels last"]))
         for precision in ("fp32", "bf16") for layout in layouts]


def make_step(torch, model_name, precision, layout):
    """A function that runs one step."""
    nn = torch.nn
    torch.manual_seed(1)
    batch = 16 if model_name == "tiny-mlp" else 64
    x = torch.randn(batch, 1, 24, 24)
    labels = torch.arange(batch) % 3
    if model_name == "tiny-mlp":
        model = nn.Sequential(nn.Flatten(), nn.Linear(576, 16), nn.ReLU(), nn.Linear(16, 3))
    else:
        model = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(32 * 6 * 6, 3))
        if layout == "channels last":
            model = model.to(memory_format=torch.channels_last)
            x = x.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0)
    loss_function = nn.CrossEntropyLoss()

    def step():
        optimizer.zero_grad(set_to_none=True)
        if precision == "bf16":
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = loss_function(model(x), labels)
        else:
            loss = loss_function(model(x), labels)
        loss.backward()
        optimizer.step()
        # roundoff's step also hands the loss to its caller.
        return loss.item()

    return step


class Torch:
    """Measures steps of PyTorch."""

    def __init__(self, torch):
        torch.set_num_threads(1)
        self.steps = {case: make_step(torch, *case) for case in CASES}
        self.times = {}

    def turn(self, case, seconds):
        step = self.steps[case]
        if case not in self.times:
            for _ in range(3):
                step()
            begin = time.process_time()
            count = 0
            while time.process_time() - begin < seconds / 4 or count < 1:
                step()
                count += 1
            self.times[case] = max(1, round(seconds * count / (time.process_time() - begin)))
        count = self.times[case]
        begin = time.process_time()
        for _ in range(count):
            step()
        return (time.process_time() - begin) / count


class Program:
    """Measures steps of roundoff_bench, which waits for a line and answers with one."""

    def __init__(self, path):
        self.process = subprocess.Popen([path, "--serve"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def turn(self, case, seconds):
        self.process.stdin.write("%s %s %g\n" % (*case[:2], seconds))
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit("peer_torch: the benchmark ended without an answer")
        return float(answer)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def spread(values):
    """Median and quartiles."""
    if len(values) == 1:
        return {"median": values[0], "low": values[0], "high": values[0]}
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": median, "low": low, "high": high}


def describe(torch):
    """What decides how fast PyTorch can be here."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        flags = set(next((line for line in file if line.startswith("flags")), "").split())
    bf16 = "with" if flags & {"avx512_bf16", "avx_ne_convert", "amx_bf16"} else "without"
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA")
    return "PyTorch %s, its own kernels %s, oneDNN %s; a processor %s bf16 instructions" % (
        torch.__version__,
        torch.__config__.show().partition("CPU capability usage: ")[2].partition("\n")[0],
        "limited to " + limit if limit else "without a limit", bf16)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", metavar="PROGRAM")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.1, help="length of a turn")
    parser.add_argument("--json", metavar="FILE", help="write the results, - for standard output")
    options = parser.parse_args()
    try:
        import torch
    except ImportError as error:
        print("skipped: PyTorch cannot be imported (%s); Debian: apt-get install python3-torch"
              % error, file=sys.stderr)
        return ABSENT

    peer = Torch(torch)
    ours = Program(options.against) if options.against else None
    times = {case: {"torch": [], "roundoff": []} for case in CASES}
    for _ in range(options.rounds):
        for case in CASES:
            if ours:
                times[case]["roundoff"].append(ours.turn(case, options.seconds))
            times[case]["torch"].append(peer.turn(case, options.seconds))
    if ours:
        ours.close()

    print("Measured on one thread, processor time, medians of %d turns of %g s (quartiles)"
          % (options.rounds, options.seconds))
    print(describe(torch))
    print("%-28s %16s %16s   %s" % ("", "PyTorch, us", "Roundoff, us" if ours else "",
                                    "PyTorch's time over Roundoff's" if ours else ""))
    rows = []
    for case in CASES:
        theirs = spread(times[case]["torch"])
        row = {"provenance": "measured", "model": case[0], "precision": case[1],
               "torch_layout": case[2] or "default", "torch_seconds": theirs}
        line = "%-28s %16.2f" % (" ".join(case), theirs["median"] * 1e6)
        if ours:
            mine = spread(times[case]["roundoff"])
            quotient = spread([t / r for t, r in zip(times[case]["torch"],
                                                     times[case]["roundoff"])])
            row.update(roundoff_seconds=mine, torch_over_roundoff=quotient)
            line += " %16.2f   %.2f  (%.2f to %.2f)" % (
                mine["median"] * 1e6, quotient["median"], quotient["low"], quotient["high"])
        print(line)
        rows.append(row)
    if options.json:
        report = json.dumps({"provenance": "measured", "peer": describe(torch),
                             "rounds": options.rounds, "turn_seconds": options.seconds,
                             "train": rows}, indent=2)
        if options.json == "-":
            print(report)
        else:
            with open(options.json, "w", encoding="utf-8") as file:
                file.write(report + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
