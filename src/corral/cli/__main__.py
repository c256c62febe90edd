"""`python -m corral.cli`."""

from corral.cli.main import main

main()
