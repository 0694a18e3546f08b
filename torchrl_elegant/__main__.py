"""Entry of `python -m torchrl_elegant`."""

import sys

if __name__ == "__main__":
    # Here, because worker processes read this file as well, and need none of it.
    from torchrl_elegant.cli.main import main

    sys.exit(main())
