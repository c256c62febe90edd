"""Runner: runs inside a module's process, around the module. Not for module authors."""
