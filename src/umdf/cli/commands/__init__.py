"""The commands of `umdf`: one module each. Its function has the module's name, and its docstring is the help."""
