"""``python -m thence`` is the ``thence`` command, for where it is not on the path."""

from __future__ import annotations

from thence.cli.main import main

if __name__ == "__main__":
    main()
