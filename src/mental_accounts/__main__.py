"""`python -m mental_accounts` is the same as `mental-accounts`."""

import sys

from mental_accounts.cli import main

if __name__ == "__main__":
    sys.exit(main())
