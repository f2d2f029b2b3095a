"""`python -m megalabel` is `megalabel`."""

from megalabel.cli import main

main()
