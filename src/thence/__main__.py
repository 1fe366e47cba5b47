"""The ``thence`` command, also as ``python -m thence``, for where it is not on the path.

It is apart from ``thence.cli.main`` since what that imports takes long enough to be interrupted. This file imports
nothing before it is ready for that.
"""

import sys

EXIT_INTERRUPTED = 130
"""The same as in ``thence.cli.main``, which is not imported yet when this is needed."""


def main() -> None:
    """Run the command line and exit the process; when interrupted, without a word, also while it is being imported."""
    try:
        from thence.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
