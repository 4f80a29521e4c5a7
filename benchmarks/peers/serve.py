"""One side of a comparison, as a process: it receives what to prepare and how often to run it, and replies with times.

    python serve.py PEER DEVICE THREADS

Lines of JSON on standard input: {"prepare": case}, then any number of {"run": n}, then the next case. PEER is a module
next to this one with `make(case, device)`, which returns a function that runs the case once, or raises
NotImplementedError.
"""

import gc
import importlib
import json
import resource
import sys
import time
from pathlib import Path

import torch


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    peer, device, threads = sys.argv[1:4]
    torch.set_num_threads(int(threads))
    sys.path.insert(0, str(Path(__file__).parent))
    answer, sys.stdout = sys.stdout, sys.stderr  # output printed by libraries must not mix with the replies

    def reply(**what: object) -> None:
        print(json.dumps(what), file=answer, flush=True)

    try:
        module = importlib.import_module(peer)
    except ImportError as error:
        reply(error=f"cannot be imported: {error}")
        return
    reply(version=module.version())
    work, before = None, 0
    for line in sys.stdin:
        asked = json.loads(line)
        if "prepare" in asked:
            work = None
            if device == "cuda":
                torch.compiler.reset()
                gc.collect()
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()  # workspaces of libraries, kept from earlier cases
            try:
                torch.manual_seed(0)
                work = module.make(asked["prepare"], device)
                work()
                work()
                wait(device)
                reply(ready=True)
            except NotImplementedError as error:
                reply(error=str(error))
            except Exception as error:
                reply(error=f"{type(error).__name__}: {str(error)[:300]}")
        if "run" in asked:
            assert work is not None
            times = []
            for _ in range(asked["run"]):
                begun = time.perf_counter()
                work()
                wait(device)
                times.append((time.perf_counter() - begun) * 1e3)
            used = (
                torch.cuda.max_memory_allocated() - before
                if device == "cuda"
                else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            )
            reply(ms=times, bytes=used)


if __name__ == "__main__":
    main()
