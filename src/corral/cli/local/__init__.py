"""Commands for this machine alone: `corral up`, `corral down`, `corral local` and the demo."""
