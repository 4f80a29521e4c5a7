"""The process that makes data sets: it reads lines of JSON, [task, steps, seed, workers], and answers each of them.

Meanwhile it tells how far it is.
"""

import json
import sys
import time
import warnings
from typing import Any

from mental_accounts.data.progress import progress_told_to
from mental_accounts.data.tasks import load_task
from mental_accounts.machine import is_out_of_memory

TELL_SECONDS = 0.25


def main() -> None:
    """Make one data set after another, until there are no more."""
    answers, sys.stdout = sys.stdout, sys.stderr
    told = 0.0

    def say(**what: Any) -> None:
        print(json.dumps(what), file=answers, flush=True)

    def tell(share: float) -> None:
        nonlocal told
        if time.monotonic() - told >= TELL_SECONDS:
            told = time.monotonic()
            say(share=share)

    warnings.simplefilter("ignore")  # the study says what matters
    for line in sys.stdin:
        task, steps, seed, workers = json.loads(line)
        try:
            with progress_told_to(tell):
                load_task(task, steps, seed, workers=workers)
        except Exception as error:
            problem = f"{type(error).__name__}: {' '.join(str(error).split())}"
            say(error=problem, out_of_memory=is_out_of_memory(error))
        else:
            say(made=task)


if __name__ == "__main__":
    main()
