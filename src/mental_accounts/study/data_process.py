"""The process that makes data sets: it reads lines of JSON, [task, steps, seed, workers], and answers each of them."""

import contextlib
import json
import sys
import warnings

from mental_accounts.data.tasks import load_task


def main() -> None:
    """Make one data set after another, until there are no more."""
    answers, sys.stdout = sys.stdout, sys.stderr
    warnings.simplefilter("ignore")  # the study says what matters
    for line in sys.stdin:
        task, steps, seed, workers = json.loads(line)
        try:
            with contextlib.redirect_stderr(None):  # no progress bars: several are made at a time
                load_task(task, steps, seed, workers=workers)
            answer = {"made": task}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
