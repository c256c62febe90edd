"""What `corral up --demo` runs: shipped with the package, so that it is there without a clone."""
