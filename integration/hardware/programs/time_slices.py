"""Whether processes on one GPU still take turns after one was checkpointed and restored, by the driver's calls alone.

One process runs a kernel of 6 s, the other one small kernels. Prints for each case what became of both.
"""
import ctypes
import subprocess
import sys
import time

import torch

SECONDS = 6
CYCLES_A_SECOND = int(1.9e9)


def work():
    data = torch.ones(1024, device="cuda")
    torch.cuda.synchronize()
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            if line.strip() == "long":
                torch.cuda._sleep(SECONDS * CYCLES_A_SECOND)
                torch.cuda.synchronize()
                print("done", flush=True)
            else:
                end, last, longest = time.time() + SECONDS + 2, time.time(), 0
                while (now := time.time()) < end:
                    longest, last = max(longest, now - last), now
                    data.add_(1)
                    torch.cuda.synchronize()
                print(f"waited for {longest:.2f} s at most", flush=True)
        except Exception as error:
            print(str(error).splitlines()[0], flush=True)


def worker():
    process = subprocess.Popen(
        [sys.executable, __file__, "work"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout.readline() == "ready\n"
    return process


def ask(process, what):
    process.stdin.write(what + "\n")
    process.stdin.flush()


def cycle(cuda, process):
    for call in ("Lock", "Checkpoint", "Restore", "Unlock"):
        result = getattr(cuda, f"cuCheckpointProcess{call}")(process.pid, None)
        assert result == 0, f"{call}: {result}"


def case(name, cuda, cycled):
    pair = [worker(), worker()]
    for index in cycled:
        cycle(cuda, pair[index])
    ask(pair[1], "short")
    time.sleep(0.5)
    ask(pair[0], "long")
    said = [process.stdout.readline().strip() for process in pair]
    print(f"{name} | a kernel of {SECONDS} s: {said[0]}; the other process {said[1]}", flush=True)
    for process in pair:
        process.kill()
        process.wait()


if sys.argv[1:] == ["work"]:
    work()
else:
    cuda = ctypes.CDLL("libcuda.so.1")
    cuda.cuInit(0)
    case("untouched", cuda, [])
    case("the other one restored", cuda, [1])
    case("its process restored", cuda, [0])
