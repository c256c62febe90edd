"""The program of `corral up --demo`: shipped with the package, so that it is there without a clone."""
