"""`python -m umdf.cli` is the `umdf` command."""

from umdf.cli.app import main

main()
